"""Pairs for code of others: what differs, and that a record can build them again."""

import numpy as np
import pytest

from mechanisms.pairs import foreign_pairs
from mechanisms.pairs.foreign_pairs import exchanged_pair, labelled_pair, long_pair
from mechanisms.pairs.neighbours import materialise

PAIRS = {
    "local": ("exchanged_pair", {"dimension": 3}),
    "batch": ("exchanged_pair", {"dimension": 3, "records": 2, "length": 5.0}),
    "spread": ("exchanged_pair", {"dimension": 3, "spread": True}),
    "long": ("long_pair", {"dimension": 3, "records": 2}),
    "labelled": ("labelled_pair", {"norm": 7.0}),
    "objective": ("labelled_pair", {"norm": 7.0, "relation": "substitution"}),
}


@pytest.mark.parametrize("which", PAIRS)
def test_a_record_can_build_them_again(which):
    name, words = PAIRS[which]
    made = getattr(foreign_pairs, name)(**words)
    again = getattr(foreign_pairs, made.name)(**made.parameters)
    for side in ("without", "with_record"):
        np.testing.assert_array_equal(*(materialise(getattr(pair, side)) for pair in (made, again)))


def test_the_one_record_of_a_local_release_turns_round():
    pair = exchanged_pair(dimension=2)
    assert (pair.relation, pair.without.tolist(), pair.with_record.tolist()) == ("substitution", [[-10, 0]], [[10, 0]])


def test_a_batch_that_is_clipped_as_one_moves_by_twice_the_bound():
    pair = exchanged_pair(dimension=2, records=5)

    def clipped_mean(rows):
        mean = np.mean(rows, 0)
        return mean / max(1.0, np.linalg.norm(mean))

    assert np.linalg.norm(clipped_mean(pair.with_record) - clipped_mean(pair.without)) == pytest.approx(2.0)


def test_one_record_has_nearly_all_of_the_sum_of_squares():
    pair = labelled_pair(norm=100.0)
    assert pair.relation == "add_remove"
    assert set(pair.without[:, 1]) == {0.0, 1.0}
    assert np.sum(pair.with_record[:, 0] ** 2) == pytest.approx(10_002.0)


def test_a_spread_update_is_longest_in_l1():
    pair = exchanged_pair(dimension=16, length=1.0, spread=True)
    moved = pair.with_record - pair.without
    assert np.linalg.norm(moved) == pytest.approx(2.0)
    assert np.abs(moved).sum() == pytest.approx(8.0)


def test_a_long_gradient_moves_every_coordinate_and_opposes_all_others():
    pair = long_pair(dimension=16, records=2, length=8.0)
    rows = np.asarray(materialise(pair.with_record))
    np.testing.assert_allclose(rows, [[-2.0] * 16, [-2.0] * 16, [2.0] * 16], rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(materialise(pair.without)), rows[:2])


def test_objective_perturbation_gets_a_record_that_alone_moves_the_objective():
    pair = labelled_pair(norm=5.0, relation="substitution")
    assert pair.relation == "substitution"
    assert pair.without.tolist() == [[0, 0], [0, 1], [0, 1]]
    assert pair.with_record.tolist() == [[0, 0], [0, 1], [5, 1]]


def test_a_labelled_pair_has_two_relations():
    with pytest.raises(ValueError, match="relation"):
        labelled_pair(relation="zero_out")
