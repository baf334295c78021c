import numpy as np
import pytest

from guarantees.numerics.search import crossing, halved


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


def test_a_plateau_next_to_the_crossing_costs_few_steps():
    """Values of a table are asked for once: what counts is how many of its entries are. Bisection asks for 23."""
    asked, width, first = set(), 1e-5, 3.41565

    def excess(x, goal):
        at = np.floor(x / width)
        asked.update(at.tolist())
        short = first - at * width
        return 0.8 * short - 1e-7 + 0.05 * np.maximum(short, 0) ** 2 - goal

    found = crossing(excess, np.zeros(1), np.full(1, 4.0), np.zeros(1))
    assert found[0] == pytest.approx(first, rel=1e-12)
    assert excess(found, 0.0) <= 0
    assert len(asked) <= 12


def test_jumps_and_wide_plateaus_give_their_left_edge():
    goals = np.array([0.5, 0.2, 0.7])

    def steps(x, goal):
        return np.where(x < 1 / 3, 1.0, np.where(x < 2, 0.5, 0.1)) - goal

    found = crossing(steps, np.zeros(3), np.full(3, 5.0), goals)
    assert found == pytest.approx([1 / 3, 2, 1 / 3], abs=1e-13)
