import jax
import numpy as np
import pytest

import mechanisms
from mechanisms import Neighbours, neighbours_from_gradients, worst_case_pair
from mechanisms.pairs import gradient_pairs
from mechanisms.pairs import gradient_pairs as constructions
from mechanisms.pairs.neighbours import GradientTable, materialise, prepare


def test_the_aligned_pair_is_what_its_name_says():
    pair = worst_case_pair(records=3, dimension=5, clip=0.1, shared=-0.5, extra=1.0)
    without, with_record = np.asarray(materialise(pair.without)), np.asarray(materialise(pair.with_record))
    assert without.shape == (3, 5)
    assert with_record.shape == (4, 5)
    np.testing.assert_allclose(without[:, 0], -0.05)
    np.testing.assert_allclose(with_record[-1, 0], 0.1)
    assert not without[:, 1:].any()
    assert pair.parameters["shared"] == -0.5


@pytest.mark.parametrize(("relation", "place"), [("zero_out", 0.0), ("substitution", -0.1)])
def test_equal_sized_relations_fill_the_records_place(relation, place):
    pair = worst_case_pair(records=3, dimension=5, clip=0.1, relation=relation)
    without, with_record = np.asarray(materialise(pair.without)), np.asarray(materialise(pair.with_record))
    assert without.shape == with_record.shape == (4, 5)
    np.testing.assert_allclose(without[-1, 0], place)
    np.testing.assert_allclose(with_record[-1, 0], 0.1)
    np.testing.assert_array_equal(without[:-1], with_record[:-1])


def test_orthogonal_gradients_are_orthogonal_and_zero_ones_are_zero():
    pair = gradient_pairs.orthogonal_pair(records=3, dimension=6, clip=2.0)
    rows = np.asarray(materialise(pair.with_record))
    np.testing.assert_allclose(rows @ rows.T, 4.0 * np.eye(4))
    zero = mechanisms.zero_pair(records=3, dimension=6, clip=2.0)
    assert not np.asarray(materialise(zero.with_record)).any()
    opposite = worst_case_pair(records=3, dimension=6, clip=2.0)
    assert list(np.asarray(materialise(opposite.with_record))[:, 0]) == [-2, -2, -2, 2]


@pytest.mark.parametrize("relation", ["add_remove", "zero_out", "substitution"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_given_gradients_come_back_from_their_span(relation, dtype):
    rng = np.random.default_rng(5)
    rows = (rng.normal(size=(6, 2)) @ rng.normal(size=(2, 40))).astype(dtype)
    rows[1] = rows[0]
    other = rows[5] if relation == "substitution" else None
    pair = neighbours_from_gradients(rows[:4], rows[4], relation=relation, replacement=other)
    assert pair.without.rank == pair.with_record.rank == 2
    assert sorted(pair.without.counts)[-1] == 2
    dense = np.asarray(materialise(pair.with_record))
    np.testing.assert_allclose(dense[-1], rows[4], atol=1e-5)
    np.testing.assert_allclose(np.sort(dense[:4, 0]), np.sort(rows[:4, 0]), atol=1e-5)
    without = np.asarray(materialise(pair.without))
    expected = {"add_remove": None, "zero_out": np.zeros(40), "substitution": rows[5]}[relation]
    if expected is not None:
        np.testing.assert_allclose(without[-1], expected, atol=1e-5)


def test_zero_gradients_have_a_span_too():
    pair = neighbours_from_gradients(np.zeros((2, 3)), np.zeros(3))
    assert pair.without.rank == 1
    assert not np.asarray(materialise(pair.with_record)).any()


def test_gradients_whose_span_is_too_dear_stay_dense(monkeypatch):
    monkeypatch.setattr(constructions, "SPAN_WORK", 1.0)
    pair = neighbours_from_gradients(np.ones((2, 3), np.float32), np.zeros(3), relation="zero_out")
    assert isinstance(pair.without, np.ndarray)
    assert pair.without.shape == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"records": 0}, "records must be an integer >= 1, got 0"),
        ({"records": 2.5}, "records must be"),
        ({"dimension": 0}, "dimension must be"),
        ({"clip": 0.0}, "clip must be > 0 and finite, got 0.0"),
        ({"clip": float("nan")}, "clip must be"),
        ({"shared": -1.5}, r"shared must be in \[-1, 1\], got -1.5"),
        ({"extra": 2.0}, "extra must be"),
        ({"relation": "replace"}, "relation must be one of"),
    ],
)
def test_bad_pairs_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        worst_case_pair(**{"records": 3, "dimension": 5, "clip": 0.1, **arguments})


def test_a_record_that_is_alone_is_exchanged():
    pair = neighbours_from_gradients(np.ones((0, 2)), [3.0, 4.0], relation="substitution", replacement=[-3.0, -4.0])
    assert np.allclose(materialise(pair.with_record), [[3.0, 4.0]])
    assert np.allclose(materialise(pair.without), [[-3.0, -4.0]])
    assert pair.gradient_lengths is not None
    assert pair.gradient_lengths.describe() == "gradient of length 5"


def test_bad_gradients_are_refused_by_name():
    rows = np.ones((3, 4))
    broken = rows.copy()
    broken[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"gradients must be finite, got nan in row 2, coordinate 1"):
        neighbours_from_gradients(broken, rows[0])
    with pytest.raises(ValueError, match="got inf in row 0"):
        neighbours_from_gradients(rows, [1.0, np.inf, 0.0, 0.0])
    with pytest.raises(ValueError, match="extra must have the 4 coordinates"):
        neighbours_from_gradients(rows, np.ones(5))
    with pytest.raises(ValueError, match="neither zero"):
        neighbours_from_gradients(np.ones((0, 4)), rows[0])
    with pytest.raises(ValueError, match="substitution needs replacement="):
        neighbours_from_gradients(rows, rows[0], relation="substitution")
    with pytest.raises(ValueError, match="replacement applies only to substitution"):
        neighbours_from_gradients(rows, rows[0], replacement=rows[1])
    with pytest.raises(ValueError, match="more than the 3 records"):
        gradient_pairs.orthogonal_pair(records=3, dimension=3, clip=1.0)


def test_a_pair_must_fit_its_relation():
    def pair(first, second, relation):
        return Neighbours(without=np.ones(first), with_record=np.ones(second), relation=relation)

    with pytest.raises(ValueError, match="differ in size by 1"):
        pair((3, 2), (3, 2), "add_remove")
    with pytest.raises(ValueError, match="differ in size by 0"):
        pair((3, 2), (4, 2), "zero_out")
    with pytest.raises(ValueError, match="equal dimension"):
        pair((3, 2), (4, 5), "add_remove")
    with pytest.raises(ValueError, match="at least one record"):
        pair((0, 2), (1, 2), "add_remove")


def test_a_dense_array_that_cannot_fit_is_refused_with_the_remedy():
    pair = worst_case_pair(records=59_999, dimension=1_485_217, clip=0.1)
    with pytest.raises(ValueError, match="collapsed"):
        materialise(pair.without)


def test_mechanisms_get_the_form_that_they_read():
    pair = worst_case_pair(records=3, dimension=5, clip=0.1)
    step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=0.1, noise_multiplier=1.0)
    assert prepare(step, pair.without) is pair.without
    assert isinstance(prepare(mechanisms.mechanism(lambda k, d: d[0]), pair.without), jax.Array)
    given = neighbours_from_gradients(np.ones((2, 3)), np.zeros(3))
    assert isinstance(prepare(step, given.without), jax.Array)
    assert isinstance(prepare(step.collapsed(), given.without), GradientTable)
    images = {"x": 1}
    assert prepare(step, images) == images
