"""Ranking scores, with ties broken at random by a recorded seed that does not depend on the coins."""

from __future__ import annotations

import numpy as np

from guarantees.checks import require
from guarantees.numerics.array import Array

ORDER, SAMPLE = 0x71E5, 0x5A3F
"""Keep draws apart from each other and from a user's own ``default_rng(seed)``, which may have drawn the coins."""


def from_highest(scores: Array, *, seed: int) -> Array:
    """Indices of the scores from highest to lowest, equal scores in an order drawn by ``seed``.

    The order reads scores and seed alone, so it may stand in for the scores wherever these are independent of what is
    guessed. Ordered by their labels, ties would leak them; ordered against a guesser, they cost power: answers of 0 and
    1 are nothing but ties.
    """
    return np.lexsort((_generator(seed, ORDER).permutation(len(scores)), -scores))


def drawn_places(places: int, count: int, *, seed: int) -> Array:
    """Mask that is True at ``count`` of the places, drawn at random by ``seed``."""
    return _generator(seed, SAMPLE).permutation(places) < count


def _generator(seed: int, purpose: int) -> np.random.Generator:
    require("seed", isinstance(seed, int | np.integer) and seed >= 0, "an integer >= 0", seed)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))


def tied(scores: Array) -> int:
    """How many scores are shared by two or more canaries."""
    _, counts = np.unique(scores, return_counts=True)
    return int(counts[counts > 1].sum())
