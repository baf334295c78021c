"""Pairs for code of others: what differs, and that a record can build them again."""

import numpy as np
import pytest

from mechanisms.pairs import foreign_pairs
from mechanisms.pairs.foreign_pairs import exchanged_pair, labelled_pair

PAIRS = {
    "local": ("exchanged_pair", {"dimension": 3}),
    "batch": ("exchanged_pair", {"dimension": 3, "records": 2, "length": 5.0}),
    "labelled": ("labelled_pair", {"norm": 7.0}),
}


@pytest.mark.parametrize("which", PAIRS)
def test_a_record_can_build_them_again(which):
    name, words = PAIRS[which]
    made = getattr(foreign_pairs, name)(**words)
    again = getattr(foreign_pairs, made.name)(**made.parameters)
    np.testing.assert_array_equal(made.without, again.without)
    np.testing.assert_array_equal(made.with_record, again.with_record)


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
