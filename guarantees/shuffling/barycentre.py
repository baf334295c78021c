"""Bound on how unequal a one-slot pool's weights can be: distances of the other records from their barycentre.

Section 6 of docs/shuffling-upper-bound.md, whose names are used here: ``v_s`` the query of the record at home in slot
s, ``D_s`` its distance from the mean of all, w the mean of ``D_s^2``. All three suprema (over w, over the distances,
over their shares) are taken on cells, each bounded by its worse ends.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.array import Array
from guarantees.shuffling.stop_loss import ROUNDING

DISTANCES = 32
"""Number of cells for the distances from the barycentre."""
RATIOS = np.geomspace(1.0, 1e6, 300)
"""Ratios t of a weight to the mean weight at which the excess is tabulated."""


def _spreads() -> Array:
    """Ends of the cells of w: narrow near 1, where the largest distance changes fast, and near 0."""
    return np.concatenate([[0.0], np.geomspace(1e-3, 0.35, 60), 1 - np.linspace(0.8, 0.0, 41) ** 2])


@lru_cache(maxsize=16)
def weight_excess(noise_multiplier: float) -> Array:
    """Upper bound of ``(1/N) sum int (H_s - t h)^+`` over all other records, at the ratios t."""
    rows = [_row(noise_multiplier, low, high) for low, high in itertools.pairwise(_spreads().tolist())]
    return np.max(rows, axis=0) + ROUNDING


def _row(sigma: float, low: float, high: float) -> Array:
    """For w between low and high: the concave envelope in ``D^2``, at its mean, of the excess of one record.

    Everything grows with w but for the largest distance. The excess grows with D, so on a cell of distances its value
    at the far end holds: the envelope is that of these values placed at the near ends.
    """
    farthest = 1 + np.sqrt(1 - low)
    distances = farthest * (1 - np.linspace(1, 0, DISTANCES + 1) ** 2)
    loss = np.log(RATIOS) - high / (2 * sigma**2)
    excess = gaussian_delta(loss[:, None], distances[1:] / sigma)
    return envelope_at(distances[:-1] ** 2, excess, high)


def envelope_at(places: Array, values: Array, mean: float) -> Array:
    """Least concave function above rows of non-decreasing values, at one point: a mean of two entries."""
    inside = int(np.searchsorted(places, mean, side="right"))
    best = values[:, inside - 1]
    for near in range(inside):
        share = (mean - places[near]) / (places[inside:] - places[near])
        between = values[:, near, None] * (1 - share) + values[:, inside:] * share
        best = np.maximum(best, between.max(axis=1, initial=0.0))
    return best
