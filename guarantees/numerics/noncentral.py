"""Noncentral chi-square probabilities that stay accurate when the noncentrality is huge."""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import ndtr

from guarantees.numerics.array import Array
from guarantees.numerics.chi_square import chi_square_tails
from guarantees.numerics.distributions import chi2

REACH = 13.0
"""Standard deviations to integrate along the shifted coordinate, either side of 0 and of where the ball begins."""
DEEPEST = 25.0
"""Farthest beginning of the ball that is followed: masses below e^-312 are not needed."""

SURE, NEVER = 39.2, 700.0
"""``e^-x`` is 1e-17, which 1 does not feel, and 1e-304."""


@functools.cache
def chi_square_levels(degrees: float, farthest: float = 12.0) -> Array:
    """0 and the quantiles two normal scores apart: between neighbours the law's logarithm is smooth."""
    scores = np.arange(-farthest, farthest + 0.5, 2.0)
    lower = chi2.ppf(ndtr(scores[scores <= 0]), degrees)
    upper = chi2.isf(ndtr(-scores[scores > 0]), degrees)
    if degrees < 30:
        # Nearer to 0 the law is a power of w, which the panel that starts at 0 integrates exactly.
        lower = lower[lower > 0.3 * degrees]
    return np.concatenate([[0.0], lower, upper])


@functools.cache
def panel_rule(degrees: float) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1] for integrands with the chi-square's root at one end.

    The law behaves like w^(degrees/2) at 0: for few degrees a map that is flat at both ends removes the root.
    """
    x, weight = np.polynomial.legendre.leggauss(12 if degrees >= 30 else 24)
    x, weight = (x + 1) / 2, weight / 2
    if degrees >= 30:
        return x, weight
    return x**2 * (3 - 2 * x), weight * 6 * x * (1 - x)


def ball_masses(excess: Array, centre: Array, degrees: float) -> tuple[Array, Array]:
    """Probability that a standard normal vector lies inside, and outside, a ball.

    The ball's centre lies ``centre >= 0`` from the origin and ``excess`` is its squared radius minus
    centre^2; the vector has ``degrees + 1`` coordinates. With v the coordinate towards the centre,
    ``P = int phi(v) F(excess + 2 centre v - v^2) dv``, F chi-square with ``degrees`` degrees of freedom: the
    noncentral chi-square law, without the cancellation of a large centre^2. Estimated error 1e-14.
    """
    excess, centre = np.broadcast_arrays(np.asarray(excess, float), np.asarray(centre, float))
    shape = excess.shape
    excess, centre = excess.ravel(), centre.ravel()
    inside, outside = np.empty(excess.shape), np.empty(excess.shape)
    for start in range(0, excess.size, 2048):
        part = slice(start, start + 2048)
        method = _interval if degrees == 0 else _integral
        inside[part], outside[part] = method(excess[part], centre[part], degrees)
    return inside.reshape(shape), outside.reshape(shape)


def ball_mass(excess: Array, centre: Array, degrees: float, *, outside: bool = False) -> Array:
    """Probability inside or outside a ball; 0 or 1 without integration below 1e-304 and within 1e-17 of 1.

    A noncentral chi-square of n degrees exceeds its mean by ``2 sqrt((n + 2 centre^2) x) + 2 x``, and falls short of it
    by ``2 sqrt((n + 2 centre^2) x)``, with probability at most ``e^-x`` each. [birge2001, lemma 8.1]
    """
    excess, centre = np.broadcast_arrays(np.asarray(excess, float), np.asarray(centre, float))
    below, above = (SURE, NEVER) if outside else (NEVER, SURE)
    reach = 2 * np.sqrt(degrees + 1 + 2 * centre**2)
    beyond = excess - (degrees + 1)
    found = np.where((beyond > 0) != outside, 1.0, 0.0)
    open_ = (beyond > -reach * np.sqrt(below)) & (beyond < reach * np.sqrt(above) + 2 * above)
    found[open_] = ball_masses(excess[open_], centre[open_], degrees)[int(outside)]
    return found


def _roots(excess: Array, centre: Array, level: Array) -> tuple[Array, Array]:
    """Where ``excess + 2 centre v - v^2`` equals each level; the centre itself where it never does."""
    room = excess - level
    with np.errstate(invalid="ignore", divide="ignore"):
        radius = np.sqrt(np.maximum(0.0, centre**2 + room))
        low = np.where(radius + centre > 0, -room / (radius + centre), 0.0)
    return np.where(centre**2 + room > 0, low, centre), centre + radius


def _interval(excess: Array, centre: Array, degrees: float) -> tuple[Array, Array]:
    low, high = _roots(excess, centre, np.zeros_like(excess))
    right = low + high > 0
    inside = ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low))
    empty = centre**2 + excess <= degrees
    return np.where(empty, 0.0, inside), np.where(empty, 1.0, ndtr(low) + ndtr(-high))


def _integral(excess: Array, centre: Array, degrees: float) -> tuple[Array, Array]:
    low, high = _roots(excess[:, None], centre[:, None], chi_square_levels(degrees))
    base = np.linspace(-REACH, REACH, 14)
    # A mass of 1e-40 counts as well: it may be multiplied by e^epsilon. Half the chi-square's mass lies beyond begin.
    begin = np.clip(low[:, low.shape[1] // 2], -DEEPEST, DEEPEST)[:, None]
    begin = np.where(np.abs(begin) > REACH / 2, begin, 0.0)
    # so far out the density falls by e^25 over one deviation: there the panels are shorter
    beyond = begin + np.where(begin == 0, 0.0, np.linspace(-REACH, REACH, 53))
    edges = np.concatenate([low, high, np.broadcast_to(base, (len(excess), len(base))), beyond], axis=1)
    edges = np.sort(np.clip(edges, np.minimum(begin, 0.0) - REACH, np.maximum(begin, 0.0) + REACH), axis=1)
    width = np.diff(edges, axis=1)
    # no panel is left out because its mass is small: the smaller of the two answers may be multiplied by e^epsilon
    row, column = np.nonzero(width > 0)
    x, weight = panel_rule(degrees)
    v = edges[row, column][:, None] + width[row, column][:, None] * x
    mass = np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi) * weight * width[row, column][:, None]
    below, above = chi_square_tails(excess[row, None] + 2 * centre[row, None] * v - v**2, degrees)
    return (
        np.bincount(row, (mass * below).sum(axis=1), len(excess)),
        np.bincount(row, (mass * above).sum(axis=1), len(excess)),
    )
