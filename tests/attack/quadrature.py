"""Truth by brute force where sampling is too coarse: densities of one or two numbers, summed on a fine grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp

Side = tuple[np.ndarray, np.ndarray]
"""Weights and means of a mixture of unit normals; means of shape (parts,) or (parts, 2)."""
Delta = Callable[[float, str], float]

REACH = 12.0
"""Standard deviations beyond the outermost means: what lies there has mass below 1e-31."""
POINTS = {1: 400_000, 2: 2_500}
WIDEST = {1: 0.02, 2: 0.05}
"""Largest step of a grid, in standard deviations; wider pairs are left unjudged.

The kink of the integrand costs the step squared: below 1e-4 of delta.
"""


def integrated(without: Side, with_record: Side) -> Delta | None:
    """The profile of a pair, on a grid of its own; None where the grid would be too coarse."""
    means = np.concatenate([side[1] for side in (without, with_record)])
    means = means.reshape(len(means), -1)
    dimension = means.shape[1]
    low, high = means.min(axis=0) - REACH, means.max(axis=0) + REACH
    axes = [np.linspace(a, b, POINTS[dimension]) for a, b in zip(low, high, strict=True)]
    steps = [axis[1] - axis[0] for axis in axes]
    if max(steps) > WIDEST[dimension]:
        return None
    cell = float(np.prod(steps)) / (2 * np.pi) ** (dimension / 2)
    squares = [[(axis - mean) ** 2 / 2 for axis, mean in zip(axes, point, strict=True)] for point in means]

    def log_density(side: Side, offset: int) -> np.ndarray:
        parts = []
        for part, weight in enumerate(side[0]):
            own = squares[offset + part]
            inside = -own[0] if dimension == 1 else -(own[0][:, None] + own[1][None, :])
            parts.append(np.log(weight) + inside)
        return logsumexp(np.stack(parts), axis=0)

    first, second = log_density(without, 0), log_density(with_record, len(without[0]))

    def delta(epsilon: float, direction: str) -> float:
        high, low = (second, first) if direction == "with_given_without" else (first, second)
        return float(np.sum(-np.exp(high) * np.expm1(np.minimum(epsilon + low - high, 0.0))) * cell)

    return delta


def places(rounds: int, shift: float) -> Side:
    """One of one or two unit normals is shifted, each with the same chance."""
    if rounds == 1:
        return np.ones(1), np.array([shift])
    return np.full(2, 0.5), np.array([[shift, 0.0], [0.0, shift]])


def shuffled(given: dict[str, Any], shifts: tuple[float, float]) -> Delta | None:
    """One epoch of at most two rounds, the record's shift without it and with it in units of 1/noise."""
    if given["rounds"] > 2 or given.get("epochs", 1) > 1:
        return None
    mu = 1 / given["noise_multiplier"]
    without = places(given["rounds"], shifts[0] * mu)
    return integrated(without, places(given["rounds"], shifts[1] * mu))
