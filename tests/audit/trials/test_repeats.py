"""Whether a step is repeatable is found out by drawing trials twice."""

import time

import numpy as np
import pytest

from audit.trials.repeats import Repeats
from audit.trials.source import Source

EDGES = np.array([[-1.0, 0.0, 1.0]], np.float32)


class Drawing(Source):
    """Scores from a seed of their own, or from none."""

    chunk = 4

    def __init__(self, *, seeded):
        self._rng = np.random.default_rng(1)
        self._seeded = seeded

    def scores(self, start, stop):
        rng = np.random.default_rng(2) if self._seeded else self._rng
        return rng.normal(size=(stop, 1))[start:]

    def cells(self, start, stop, edges):
        return np.bincount(np.searchsorted(edges[0], self.scores(start, stop)[:, 0]), minlength=4)[None]


@pytest.mark.parametrize("foreign", [True, False])
def test_what_draws_from_its_seed_is_repeatable(foreign):
    sides = Drawing(seeded=True), Drawing(seeded=True)
    assert Repeats(sides, EDGES, foreign=foreign).again(None) is True


@pytest.mark.parametrize("seeded", [(True, False), (False, True), (False, False)])
def test_what_draws_from_no_seed_is_not(seeded):
    sides = tuple(Drawing(seeded=own) for own in seeded)
    assert Repeats(sides, EDGES, foreign=True).again(None) is False


def test_without_time_nothing_is_said():
    sides = Drawing(seeded=True), Drawing(seeded=True)
    assert Repeats(sides, EDGES, foreign=True).again(time.monotonic() - 1) is None
