"""Code that writes into its dataset gets a copy of it: the pair stays as it was, and each trial begins with that."""

from __future__ import annotations

import collections

import jax
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from mechanisms.pairs.lent import LentDataset, copied

RECORDS = np.arange(6.0, dtype=np.float32).reshape(3, 2)
Batch = collections.namedtuple("Batch", ["x", "y"])


def torch_sets():
    torch = pytest.importorskip("torch")
    from torch.utils.data import ConcatDataset, Subset, TensorDataset

    own = TensorDataset(torch.from_numpy(RECORDS.copy()), torch.arange(3))
    return [own, Subset(own, range(2)), ConcatDataset([Subset(own, range(2)), [(torch.ones(2), torch.tensor(1))]])]


def written(dataset):
    """Every array of a dataset, or of its records, is set to seven."""
    if isinstance(dataset, np.ndarray) or hasattr(dataset, "detach"):
        dataset[...] = 7
    elif isinstance(dataset, dict):
        list(map(written, dataset.values()))
    elif hasattr(dataset, "tensors"):
        list(map(written, dataset.tensors))
    elif not np.isscalar(dataset):
        for record in dataset:
            written(record)


def numbers(dataset):
    parts = dataset.values() if isinstance(dataset, dict) else dataset
    return [np.asarray(leaf).tolist() for part in parts for leaf in jax.tree.leaves(part)]


KINDS = [
    RECORDS,
    {"y": RECORDS[:, 0], "x": RECORDS},
    Batch(RECORDS, RECORDS[:, 1]),
    [(row, np.float32(1.0)) for row in RECORDS],
]


def test_a_copy_has_arrays_of_its_own():
    for dataset in [*KINDS, *torch_sets()]:
        before, own = numbers(dataset), copied(dataset)
        assert type(own) is type(dataset)
        assert numbers(own) == before
        written(own)
        assert numbers(own) != before
        assert numbers(dataset) == before


def test_a_dict_keeps_its_order():
    assert [*copied(KINDS[1])] == ["y", "x"]


def test_what_was_written_is_undone():
    for dataset in [*KINDS, *torch_sets()]:
        before, own = numbers(dataset), LentDataset(dataset)
        assert not own.restore()
        written(own.lent)
        assert own.restore()
        assert numbers(own.lent) == before
        assert not own.restore()


def test_not_a_number_is_no_change():
    assert not LentDataset(np.array([np.nan, 1.0])).restore()


def test_an_object_of_another_class_is_handed_on():
    assert copied(given := object()) is given
    assert not LentDataset(given).restore()


def test_a_file_that_is_only_read_stays_on_disk(tmp_path):
    np.save(tmp_path / "rows.npy", RECORDS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert copied(mapped) is mapped
    assert not LentDataset(mapped).restore()
    written(copied(np.load(tmp_path / "rows.npy", mmap_mode="r+")))
    assert np.load(tmp_path / "rows.npy").tolist() == RECORDS.tolist()


def noise(seed):
    return np.random.default_rng(seed).standard_normal(4)


def right(seed, x):
    return x.sum(0) + noise(seed)


def grows(seed, x):
    x += 1
    return right(seed, x)


def clips_in_place(seed, x):
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    return right(seed, x)


def never_clips(seed, x):
    return right(seed, x)


LONG = np.array([50, 0, 0, 0], np.float32)
GIVEN = {"claim": guarantees.gaussian(mu=1.0), "trials": 200, "risk": 0.05, "key": jax.random.key(0), "diagnose": False}


def drawn(function, pair, **more):
    from audit.trials.both_sides import both_sides

    return both_sides(mechanisms.callable_step(function, **more), pair).outputs(
        (jax.random.key(1), jax.random.key(2)), 5, size=3
    )


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.long)])
def test_each_trial_gets_the_dataset_as_it_was(workers):
    pair = mechanisms.add_record(np.zeros((2, 4), np.float32), np.array([1, 0, 0, 0], np.float32))
    found, expected = (drawn(function, pair, workers=workers) for function in (grows, right))
    for records, outputs, other in zip((2, 3), found, expected, strict=True):
        np.testing.assert_allclose(outputs, other + records, rtol=1e-5)


def test_an_audit_leaves_its_pair_as_it_was():
    pair = mechanisms.add_record(np.zeros((2, 4), np.float32), LONG)
    clipped = audit.run_audit(mechanisms.callable_step(clips_in_place), pair, **GIVEN)
    bare = audit.run_audit(mechanisms.callable_step(never_clips), pair, **GIVEN)
    assert clipped.verdict != "violation"
    assert bare.verdict == "violation"
    np.testing.assert_array_equal(pair.with_record[-1], LONG)


def test_gradients_may_be_computed_in_place():
    def gradients(x):
        x *= 2
        return x

    step = mechanisms.callable_step(right, gradients=gradients)
    given = RECORDS.copy()
    assert step.gradients(given).tolist() == (2 * RECORDS).tolist()
    assert given.tolist() == RECORDS.tolist()


def centres(dataset, seed):
    import torch
    from torch import nn

    x = dataset.tensors[0]
    x -= x.mean(0)
    model = nn.Linear(2, 1, bias=False)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    sgd.step()
    return model


def test_a_training_that_writes_into_its_dataset_leaves_the_pair_as_it_was():
    torch = pytest.importorskip("torch")
    from torch.utils.data import TensorDataset

    data = TensorDataset(torch.arange(6.0).reshape(3, 2), torch.zeros(3))
    pair = mechanisms.add_record(data, (torch.ones(2), torch.tensor(0.0)))
    step = mechanisms.torch_training(centres)
    assert step.steps_on(pair.with_record) == 1
    step.gradients(pair.without)
    with torch.no_grad():
        audit.explain(step, pair, key=jax.random.key(0), claim=guarantees.gaussian(mu=1.0))
    assert data.tensors[0].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert pair.with_record.tensors[0].tolist()[-1] == [1.0, 1.0]
