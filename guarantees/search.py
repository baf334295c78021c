"""Searches in one variable, in every entry of an array at once: crossings and maxima."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


def crossing(
    excess: Callable[[Array, Array], Array],
    low: Array,
    high: Array,
    goal: Array,
    *,
    absolute: float = 1e-16,
    relative: float = 4e-16,
) -> Array:
    """Smallest x in [low, high] with ``excess(x, goal) <= 0``, for a decreasing excess that may jump or rest.

    Illinois steps inside a bracket that always holds the crossing, with a bisection whenever a step gained
    less than half; the upper end of the last bracket is returned, so a plateau gives its left edge.
    """
    low, high, goal = (np.array(x, float) for x in np.broadcast_arrays(low, high, goal))
    at_low, at_high = excess(low, goal), excess(high, goal)
    high = np.where(at_low <= 0, low, high)
    active = np.flatnonzero((at_low > 0) & (at_high <= 0))
    a, b, fa, fb = low[active], high[active], at_low[active].copy(), at_high[active].copy()
    last, bisect = np.zeros(active.shape), np.zeros(active.shape, bool)
    for _ in range(250):
        width = b - a
        tolerance = absolute + relative * np.maximum(np.abs(a), np.abs(b))
        done = width <= tolerance
        if done.any():
            high[active[done]] = b[done]
            keep = ~done
            active, a, b, fa, fb = active[keep], a[keep], b[keep], fa[keep], fb[keep]
            last, bisect, width, tolerance = last[keep], bisect[keep], width[keep], tolerance[keep]
        if not active.size:
            return high
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            secant = b - fb * width / (fb - fa)
        usable = np.isfinite(secant) & (fb < 0) & ~bisect
        margin = np.minimum(0.5 * tolerance, 0.25 * width)
        x = np.where(usable, np.clip(secant, a + margin, b - margin), a + 0.5 * width)
        fx = excess(x, goal[active])
        down = fx <= 0
        # Illinois: the end that stayed twice has its value halved, so that both ends close in.
        fa = np.where(~down, fx, np.where(last == 1, 0.5 * fa, fa))
        fb = np.where(down, fx, np.where(last == -1, 0.5 * fb, fb))
        a, b, last = np.where(down, a, x), np.where(down, x, b), np.where(down, 1, -1)
        bisect = (b - a) > 0.5 * width
    high[active] = b
    return high


def maximum(function: Callable[[Array], Array], grid: Array, *, rounds: int = 60) -> tuple[float, float]:
    """Where a function is largest, and how large: a grid, then golden sections about its local maxima.

    Exact for a function with one local maximum between any three neighbours of the grid; jumps are allowed.
    """
    grid = np.unique(np.asarray(grid, float))
    values = np.where(np.isnan(found := function(grid)), -np.inf, found)
    best = int(np.argmax(values))
    where, top = float(grid[best]), float(values[best])
    if len(grid) < 3 or np.isinf(top):
        return where, top
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    peaks = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]) & np.isfinite(values))
    peaks = peaks[np.argsort(values[peaks])[::-1][:16]]
    a, b = grid[np.maximum(peaks - 1, 0)], grid[np.minimum(peaks + 1, len(grid) - 1)]
    for _ in range(rounds):
        left, right = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
        at_left, at_right = function(left), function(right)
        for x, y in ((left, at_left), (right, at_right)):
            index = int(np.nanargmax(y))
            if y[index] > top:
                where, top = float(x[index]), float(y[index])
        climb = at_left < at_right
        a, b = np.where(climb, left, a), np.where(climb, b, right)
    return where, top
