import numpy as np
import pytest

from guarantees.numerics.search import halved


@pytest.mark.parametrize("place", [0.1, 0.625, 0.999])
def test_a_halved_bracket_keeps_the_place_between_its_ends(place):
    low, high = halved(lambda x: x >= place, 0.0, 1.0, rounds=20)
    assert low < place <= high
    assert high - low == 2.0**-20
    low, high = halved(lambda x: x >= place, 0.0, 1.0, within=1e-3)
    assert low < place <= high
    assert 5e-4 < high - low <= 1e-3


def test_brackets_are_halved_entry_by_entry():
    places = np.array([0.1, 0.625, 0.999])
    low, high = halved(lambda x: x >= places, np.zeros(3), np.ones(3), rounds=30)
    assert np.all((low < places) & (places <= high) & (high - low == 2.0**-30))
