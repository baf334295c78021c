"""Scores in order, ties broken at random: a recorded seed that knows nothing of the coins."""

from __future__ import annotations

import numpy as np

from guarantees.checks import require
from guarantees.numerics.array import Array

PURPOSE = 0x71E5
"""Keeps these draws apart from a user's own ``default_rng(seed)``, which may have drawn the coins."""


def from_highest(scores: Array, *, seed: int) -> Array:
    """Places of the scores from the highest to the lowest, equal scores in an order drawn by ``seed``.

    The order reads scores and seed alone, so it may stand in for the scores wherever these are independent of what is
    guessed. Ordered by their labels, ties would leak them; ordered against a guesser, they cost power: answers of 0 and
    1 are nothing but ties.
    """
    require("seed", isinstance(seed, int | np.integer) and seed >= 0, "an integer >= 0", seed)
    drawn = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSE,))).permutation(len(scores))
    return np.lexsort((drawn, -scores))


def tied(scores: Array) -> int:
    """How many scores are shared by two or more."""
    _, counts = np.unique(scores, return_counts=True)
    return int(counts[counts > 1].sum())
