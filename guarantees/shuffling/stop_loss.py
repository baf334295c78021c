"""Stop-loss functions ``H(tau) = E (c - tau)^+`` in closed form, and lattice laws that provably dominate them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import ndtr

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.array import Array

Kind = Literal["with_given_without", "without_given_with", "replacement"]
"""Which divergence is bounded; ``replacement`` has both versions of the record anywhere in the ball."""

ROUNDING = 1e-14
"""Bound on the rounding error of a closed form per unit of its terms; ``ndtr`` was seen within 4e-16 of the truth."""


def worst_slot(kind: Kind, epsilon: float, noise_multiplier: float, tau: Array) -> Array:
    """``sup int (f_0 - e^eps f_1 - tau f_s)^+`` over a slot's possible means: H of the displacement bound.

    The lemma of docs/shuffling-upper-bound.md, section 4. Three Gaussians on a line whose positive set is a half-line:
    its end solves a quadratic equation.
    """
    tau = np.asarray(tau, float)
    up, down = np.maximum(tau, 0.0), np.maximum(-tau, 0.0)
    if kind == "replacement":
        mu = 2 / noise_multiplier
        above = gaussian_delta(np.log(np.exp(epsilon) + up), mu)
        below = (1 + down) * gaussian_delta(epsilon - np.log1p(down), mu)
    elif kind == "with_given_without":
        above = _all_apart(epsilon, noise_multiplier, up)
        below = (1 + down) * gaussian_delta(epsilon - np.log1p(down), 1 / noise_multiplier)
    else:
        above = gaussian_delta(np.log(np.exp(epsilon) + up), 1 / noise_multiplier)
        below = _opposed(epsilon, noise_multiplier, down)
    return np.where(tau >= 0, above, below)


def _all_apart(epsilon: float, s: float, tau: Array) -> Array:
    """``int (N(1) - E N(0) - tau N(-1))^+`` for tau >= 0."""
    b = np.exp(epsilon + 0.5 / s**2)
    end = -(s**2) * np.log(2 / (b + np.sqrt(b**2 + 4 * tau)))
    return np.maximum(ndtr((1 - end) / s) - np.exp(epsilon) * ndtr(-end / s) - tau * ndtr(-(end + 1) / s), 0.0)


def _opposed(epsilon: float, s: float, weight: Array) -> Array:
    """``int (N(0) + weight N(-1) - E N(1))^+`` for weight >= 0."""
    q = np.exp(epsilon - 0.5 / s**2)
    end = s**2 * np.log((1 + np.sqrt(1 + 4 * q * np.exp(-0.5 / s**2) * weight)) / (2 * q))
    return np.maximum(ndtr(end / s) + weight * ndtr((end + 1) / s) - np.exp(epsilon) * ndtr((end - 1) / s), 0.0)


def clone_slot(epsilon: float, distance: float, noise_multiplier: float, tau: Array) -> Array:
    """``int (N(1) - e^eps N(0) - tau m)^+`` with ``m = (N(1) + N(0))/2`` at the given distance of the means."""
    tau = np.asarray(tau, float)
    first, second = 1 - tau / 2, np.exp(epsilon) + tau / 2
    inside = (first > 0) & (second > 0)
    ratio = np.log(np.where(inside, second, 1.0) / np.where(inside, first, 1.0))
    value = np.where(inside, first * gaussian_delta(ratio, distance / noise_multiplier), 0.0)
    return np.where(second <= 0, first - second, value)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LatticeLaw:
    """Masses at ``spacing * (first, first + 1, ...)`` that dominate a variable c up to ``excess``.

    For every convex phi with slopes in [0, 1] that vanishes at -infinity, ``E phi(c) <= E phi(this) + excess``: such a
    phi is a mixture of ``(x - tau)^+`` of total weight at most 1, and ``excess`` bounds how far the stop-loss function
    of c lies above that of these very masses, rounding included.
    """

    spacing: float
    first: int
    masses: Array
    excess: float

    @cached_property
    def values(self) -> Array:
        """The lattice points."""
        return self.spacing * (self.first + np.arange(len(self.masses)))

    @cached_property
    def mean(self) -> float:
        """Mean of the masses."""
        return float(self.masses @ self.values)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the masses."""
        return float(np.sqrt(self.masses @ (self.values - self.mean) ** 2))

    def thinned(self, probability: float) -> LatticeLaw:
        """The product with an independent coin: 0 unless it falls."""
        masses = probability * self.masses
        masses[-self.first] += 1 - probability
        return LatticeLaw(
            spacing=self.spacing, first=self.first, masses=masses, excess=probability * self.excess + 1e-15
        )


def lattice_law(stop_loss: Callable[[Array], Array], *, low: float, high: float, spacing: float) -> LatticeLaw:
    """Masses of a convex stop-loss function on the multiples of ``spacing`` from low to high: its second differences.

    Joining the values of a convex function leaks nothing below it; clamping at ``low`` only raises the variable;
    what lies above ``high`` is part of ``excess``, which is measured on the masses themselves.
    """
    first, last = int(np.floor(min(low, 0.0) / spacing)), int(np.ceil(max(high, 0.0) / spacing))
    points = spacing * np.arange(first, last + 1)
    value = stop_loss(points)
    slopes = np.concatenate([[-1.0], np.diff(value) / spacing, [0.0]])
    masses = np.maximum(np.diff(np.maximum.accumulate(np.clip(slopes, -1.0, 0.0))), 0.0)
    wide = masses.astype(np.longdouble)
    above = np.concatenate([np.cumsum(wide[::-1])[::-1][1:], np.zeros(1, np.longdouble)])
    own = spacing * np.cumsum(above[::-1])[::-1]
    short = abs(1 - float(wide.sum()))
    excess = float(np.max(value - own)) + ROUNDING * (1 + float(np.max(value))) + short * (points[-1] - points[0])
    return LatticeLaw(spacing=spacing, first=first, masses=masses, excess=max(excess, 0.0))
