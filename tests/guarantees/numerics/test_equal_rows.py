import numpy as np
import pytest

from guarantees.numerics.equal_rows import different_rows


@pytest.mark.parametrize(("trials", "numbers", "values"), [(2000, 3, 5), (500, 40, 1), (1000, 1, 50), (3, 2, 9)])
def test_different_rows_are_those_that_sorting_finds(trials, numbers, values):
    rows = np.random.default_rng(trials).integers(-values, values, size=(trials, numbers)) / 2
    rows[rows == 0] *= -1
    places, counts = different_rows(rows)
    expected, times = np.unique(rows, axis=0, return_counts=True)
    found = rows[places]
    order = np.lexsort(found.T[::-1])
    assert np.array_equal(found[order], expected)
    assert np.array_equal(counts[order], times)
    # each is the first of its like
    assert all(not np.any(np.all(rows[:place] == rows[place], axis=1)) for place in places)
