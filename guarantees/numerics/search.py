"""Searches in one variable for all entries of an array at once: brackets, crossings and maxima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
SECTIONS = 36
TOLERANCE = 1e-14
"""Tolerance of a crossing, absolute and relative."""


def crossing(excess: Callable[[Array, Array], Array], low: Array, high: Array, goal: Array) -> Array:
    """Smallest x in [low, high] with ``excess(x, goal) <= 0``, for a decreasing excess that may jump or rest.

    Inverse quadratic steps inside a bracket that always holds the crossing, else bisections; the upper end of
    the last bracket is returned, so a plateau gives its left edge. [chandrupatla1997]
    """
    low, high, goal = (np.array(x, float) for x in np.broadcast_arrays(low, high, goal))
    at_low, at_high = excess(low, goal), excess(high, goal)
    high = np.where(at_low <= 0, low, high)
    active = np.flatnonzero((at_low > 0) & (at_high <= 0))
    # Newest point, the end across the crossing from it, and the point before.
    x1, x2, x3 = high[active], low[active], low[active]
    f1, f2, f3 = at_high[active].copy(), at_low[active].copy(), at_low[active].copy()
    step, crept = np.full(active.shape, 0.5), np.zeros(active.shape)
    for _ in range(250):
        upper = np.where(f1 <= 0, x1, x2)
        tolerance = TOLERANCE + TOLERANCE * np.abs(upper)
        done = np.abs(x2 - x1) <= tolerance
        high[active[done]] = upper[done]
        if done.all():
            return high
        if done.any():
            keep = ~done
            active, step, crept, tolerance = active[keep], step[keep], crept[keep], tolerance[keep]
            x1, x2, x3, f1, f2, f3 = (v[keep] for v in (x1, x2, x3, f1, f2, f3))
        x = x1 + step * (x2 - x1)
        f = excess(x, goal[active])
        stays = (f <= 0) == (f1 <= 0)
        x3, f3 = np.where(stays, x1, x2), np.where(stays, f1, f2)
        x2, f2 = np.where(stays, x2, x1), np.where(stays, f2, f1)
        x1, f1 = x, f
        # Twice the same value, or a smallest step that did not cross, means a plateau: left by ever longer steps.
        crept = np.where(stays, np.maximum(crept, f1 == f3), 0)
        step, crept = _next_step((x1, x2, x3), (f1, f2, f3), 0.5 * tolerance, crept=crept)
    high[active] = np.where(f1 <= 0, x1, x2)
    return high


def _next_step(x: tuple[Array, ...], f: tuple[Array, ...], least: Array, *, crept: Array) -> tuple[Array, Array]:
    """Length of the next step, as a share of the way to the other end; and the count of steps since a smallest one."""
    (x1, x2, x3), (f1, f2, f3) = x, f
    with np.errstate(all="ignore"):
        place, value = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        smooth = (value**2 < place) & ((1 - value) ** 2 < 1 - place)
        share = f1 / (f1 - f2) * f3 / (f3 - f2) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
        smallest = np.minimum(least / np.abs(x2 - x1), 0.5)
    inverse = smooth & np.isfinite(share) & (crept == 0)
    inside = np.minimum(np.maximum(share, smallest), 1 - smallest)
    if not crept.any():
        step = np.where(inverse, inside, 0.5)
        return step, (inverse & (step <= smallest)).astype(float)
    longer = np.where(crept > 0, np.minimum(smallest * 32.0 ** np.minimum(crept, 20), 0.5), 0.5)
    step = np.where(inverse, inside, longer)
    return step, np.where(crept > 0, crept + 1, inverse & (step <= smallest))


def halved(
    beyond: Callable[[Any], Any], low: Any, high: Any, *, rounds: int | None = None, within: float | None = None
) -> tuple[Any, Any]:
    """Both ends of a bracket, floats or arrays, of the place from which ``beyond`` is true, after halving it.

    So many ``rounds``, or until it is no wider than ``within``. Whoever needs a bound takes the end on the safe side:
    ``beyond`` was seen to be false at the first and true at the second, unless that is where the bracket began.
    """
    done = 0
    while done < rounds if rounds is not None else high - low > within:
        middle = (low + high) / 2
        found = beyond(middle)
        if np.ndim(found):
            low, high = np.where(found, low, middle), np.where(found, middle, high)
        else:
            low, high = (low, middle) if found else (middle, high)
        done += 1
    return low, high


def first(beyond: Callable[[int], bool], low: int, high: int, *, guess: int | None = None) -> int:
    """The first whole number above ``low`` from which ``beyond`` is true; it is assumed to be true at ``high``.

    A good ``guess`` takes two calls, one that is off by n about as many as n has binary digits, twice.
    """
    if guess is not None:
        step = 1
        at = min(max(guess, low + 1), high)
        while low < at < high:
            low, high, at = (low, at, at - step) if beyond(at) else (at, high, at + step)
            step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return high


def maximum(function: Callable[[Array], Array], grid: Array) -> tuple[float, float]:
    """Place and value of a function's maximum: a grid, then golden sections around its best local maxima.

    Exact for a function with one local maximum between any three neighbours of the grid; jumps are allowed.
    """

    def values(at: Array) -> Array:
        found = function(at)
        return np.where(np.isnan(found), -np.inf, found)

    grid = np.unique(np.asarray(grid, float))
    found = values(grid)
    best = int(np.argmax(found))
    where, top = float(grid[best]), float(found[best])
    if len(grid) < 3 or np.isinf(top):
        return where, top
    padded = np.concatenate([[-np.inf], found, [-np.inf]])
    peaks = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]) & np.isfinite(found))
    peaks = peaks[np.argsort(found[peaks])[::-1][:4]]
    a, b = grid[np.maximum(peaks - 1, 0)], grid[np.minimum(peaks + 1, len(grid) - 1)]
    left, right = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_left, at_right = values(left), values(right)
    for _ in range(SECTIONS):
        for x, y in ((left, at_left), (right, at_right)):
            index = int(np.argmax(y))
            if y[index] > top:
                where, top = float(x[index]), float(y[index])
        climb = at_left < at_right
        a, b = np.where(climb, left, a), np.where(climb, b, right)
        # One of the two inner points is inner again: only one new value a round.
        new = np.where(climb, a + GOLDEN * (b - a), b - GOLDEN * (b - a))
        at_new = values(new)
        left, right = np.where(climb, right, new), np.where(climb, new, left)
        at_left, at_right = np.where(climb, at_right, at_new), np.where(climb, at_new, at_left)
    return where, top
