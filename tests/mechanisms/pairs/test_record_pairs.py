"""Pairs of a user's own data, whatever it is."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.resume.fingerprint import digest_of
from mechanisms.pairs.datasets import contents
from mechanisms.pairs.gradient_pairs import RelationError, gradient_pair
from mechanisms.pairs.neighbours import Neighbours

RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.normal(size=(4, 3, 3, 1)).astype(np.float32)
DATA = {"image": IMAGES, "label": np.arange(4)}
NEW = {"image": IMAGES[0] + 1, "label": 7}


def torch_data():
    torch = pytest.importorskip("torch")
    from torch.utils.data import Subset, TensorDataset

    tensors = TensorDataset(torch.tensor(IMAGES), torch.arange(4))
    return {"tensors": tensors, "subset": Subset(tensors, range(4))}


DATASETS = {
    "array": (IMAGES, IMAGES[0] + 1),
    "jax": (jnp.asarray(IMAGES), jnp.asarray(IMAGES[0] + 1)),
    "dict": (DATA, NEW),
    "tuple": ((IMAGES, np.arange(4)), (IMAGES[0] + 1, 7)),
    "list": ([{"image": image, "label": i} for i, image in enumerate(IMAGES)], NEW),
    "texts": ([{"text": text, "label": 1} for text in ("a", "b", "c", "d")], {"text": "e", "label": 0}),
}


def numbered(name):
    if name not in DATASETS:
        torch = pytest.importorskip("torch")
        return torch_data()[name], (torch.tensor(IMAGES[0] + 1), torch.tensor(7))
    return DATASETS[name]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [*DATASETS, "tensors", "subset"])
def test_a_record_is_added_and_replaced_in_any_kind_of_dataset(name):
    dataset, record = numbered(name)
    added, replaced = mechanisms.add_record(dataset, record), mechanisms.replace_record(dataset, 1, record)
    assert (added.relation, replaced.relation) == ("add_remove", "substitution")
    first, second, third = (contents(side) for side in (dataset, added.with_record, replaced.with_record))
    if first is not None:
        assert second[:-1] == first
        assert third == [first[0], second[-1], *first[2:]]
    for made, index in ((added, 4), (replaced, 1)):
        again = mechanisms.pair(made.without, made.with_record, relation=made.relation)
        assert again.index == (-1 if first is None else index)
        assert made.records_without == 4
        # to worker processes and back
        back = pickle.loads(pickle.dumps(made.with_record))
        assert contents(back) == contents(made.with_record)
        assert digest_of(back) == digest_of(made.with_record)


def test_a_pair_prints_in_a_line_whatever_it_holds():
    assert repr(mechanisms.add_record(DATA, NEW)) == "<Neighbours 'add_record': add_remove, 4 records without>"


def test_columns_keep_their_type():
    made = mechanisms.add_record(DATA, NEW)
    assert made.with_record["label"].dtype == DATA["label"].dtype
    assert type(numbered("tensors")[0]) is type(mechanisms.add_record(*numbered("tensors")).with_record)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mechanisms.pair(IMAGES, IMAGES[:3]), "must differ in size by 1, with_record the larger"),
        (lambda: mechanisms.pair(IMAGES[:3], IMAGES + 1), "differ in one record; 3 of these are only in the first"),
        (lambda: mechanisms.pair(IMAGES, IMAGES.copy(), relation="substitution"), r"hold the same records\."),
        (lambda: mechanisms.pair(IMAGES, IMAGES[::-1], relation="substitution"), "the same records in another order"),
        (lambda: mechanisms.pair(IMAGES[[0, 1]], IMAGES[[1, 2]], relation="substitution"), "in the same order"),
        (lambda: mechanisms.pair(IMAGES[:3], IMAGES, relation="add"), "relation must be one of"),
        (lambda: mechanisms.pair([IMAGES, 1], [IMAGES, 1]), "a list is a list of records"),
        (lambda: mechanisms.pair(DATA, [DATA["image"], NEW]), "of one kind, got a dict and a list"),
        (lambda: mechanisms.replace_record(DATA, "2", NEW), "index must be an integer, got '2'"),
        (lambda: mechanisms.replace_record(DATA, NEW, 2), "index must be an integer, got {'image'"),
        (lambda: mechanisms.add_record(DATA, NEW | {"label": "cat"}), "part 'label' of the record does not fit"),
        (lambda: mechanisms.pair(IMAGES[:0], IMAGES[:1]), "at least one record"),
        (lambda: mechanisms.add_record([], 1), "at least one record"),
        (lambda: mechanisms.add_record(DATA, {"image": IMAGES[0]}), "parts and shapes"),
        (lambda: mechanisms.add_record(np.ones((4, 3)), np.ones((1, 3))), r"has the shape \(3,\), got \(1, 3\)\."),
        (lambda: mechanisms.add_record(DATA, {"image": IMAGES[0, 0], "label": 1}), "parts and shapes"),
        (lambda: mechanisms.add_record(DATA, {"image": IMAGES[0], "label": 0.5}), "'label' of the record does not fit"),
        (
            lambda: mechanisms.add_record(DATA, {"image": IMAGES[0] * np.nan, "label": 1}),
            "nan in record 4, part 'image'",
        ),
        (lambda: mechanisms.add_record({**DATA, "image": IMAGES / 0.0}, NEW), "inf in record 0, part 'image'"),
        (lambda: mechanisms.replace_record(DATA, 4, NEW), "index must be the place of one of the 4 records"),
        (lambda: mechanisms.zero_out(DATA, 0), "must be given as null="),
        (lambda: mechanisms.zero_out(IMAGES, 0), "must be given as null="),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_is_no_pair_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("dataset", [3, object(), {"a": np.zeros(2), "b": np.zeros(3)}, iter([1])])
def test_what_is_no_dataset_is_refused(dataset):
    with pytest.raises(TypeError, match="a list of records, or a PyTorch dataset"):
        mechanisms.pair(dataset, dataset)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"image": IMAGES, "label": np.arange(3)}, "got 'image' with 4 and 'label' with 3 records"),
        ("train.npz", "got a path or text; load it first"),
        ({"image": IMAGES, "label": [1, 2, 3, 4]}, "got a dict whose part 'label' is a list and no array"),
    ],
)
def test_what_is_wrong_with_a_dataset_is_said(dataset, message):
    with pytest.raises(TypeError, match=message):
        mechanisms.add_record(dataset, NEW)
    with pytest.raises(TypeError, match=message):
        mechanisms.pair(dataset, dataset)


def test_a_row_of_zeros_zeroes_out_a_gradient():
    table = mechanisms.worst_case_pair(records=2, dimension=3, clip=1.0).with_record
    for gradients in (np.asarray(table.dense()), table.dense(), table):
        made = mechanisms.zero_out(gradients, 2)
        np.testing.assert_array_equal(np.asarray(made.without)[2], np.zeros(3))
        np.testing.assert_array_equal(made.with_record, table.dense())


def weighted_gradients(data):
    return data["weight"][:, None] * np.stack([data["image"].sum(axis=(1, 2, 3)), np.ones(len(data["image"]))], axis=1)


def test_a_null_record_has_no_gradient_or_the_pair_is_refused():
    data = {**DATA, "weight": np.ones(4, np.float32)}
    null = {"image": np.zeros_like(IMAGES[0]), "label": 0, "weight": 0.0}
    read = gradient_pair(mechanisms.zero_out(data, 1, null), weighted_gradients)
    assert read.relation == "zero_out"
    np.testing.assert_allclose(read.with_record.dense()[-1], weighted_gradients(data)[1], rtol=1e-5)
    with pytest.raises(RelationError, match="one whose gradient is zero, and this one's has length 1"):
        gradient_pair(mechanisms.zero_out(data, 1, {**null, "weight": 1.0}), weighted_gradients)


def test_a_torch_dataset_is_refused_by_what_jax_traces():
    from audit.trials.both_sides import both_sides

    pair = mechanisms.add_record(*numbered("tensors"))
    with pytest.raises(TypeError, match="cannot read a PyTorch dataset"):
        both_sides(lambda key, data: jnp.zeros(2), pair).layout()


def test_a_dataset_of_an_unknown_kind_may_still_be_handed_on():
    made = Neighbours(without=object(), with_record=object(), relation="add_remove")
    assert made.records_without is None
    assert repr(made).endswith("add_remove>")


def test_a_dataset_may_have_a_column_of_typed_keys():
    """Adding a record to it failed."""
    keys = jax.random.split(jax.random.key(0), 4)
    dataset, record = {"image": IMAGES, "key": keys}, {"image": IMAGES[0] + 1, "key": jax.random.key(9)}
    added, replaced = mechanisms.add_record(dataset, record), mechanisms.replace_record(dataset, 1, record)
    assert jnp.array_equal(added.with_record["key"][4:], record["key"][None])
    assert jnp.array_equal(replaced.with_record["key"][jnp.array([0, 2, 3])], keys[jnp.array([0, 2, 3])])
    with pytest.raises(ValueError, match="the part 'key' of the record must be key<fry>"):
        mechanisms.add_record(dataset, {**record, "key": 3})
