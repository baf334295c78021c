"""The root of a function of one number, as scipy.optimize finds it: importing that takes longer than some commands."""

from __future__ import annotations

from collections.abc import Callable

ROUNDS = 100


def root(
    function: Callable[[float], float], low: float, high: float, *, absolute: float = 2e-12, relative: float = 2.0**-50
) -> float:
    """Where a function with different signs at both ends is 0, to ``absolute + relative |x|``.

    Inverse quadratic and secant steps where they shrink the bracket fast enough, else bisections. Step by step what
    ``scipy.optimize.brentq`` does, to the last bit. [brent1973, chapter 4]
    """
    before, at_before, x, at_x = low, float(function(low)), high, float(function(high))
    for end, value in ((before, at_before), (x, at_x)):
        if value == 0:
            return end
    if (at_before < 0) == (at_x < 0):
        raise ValueError(f"the function must have different signs at {low} and {high}, got {at_before} and {at_x}.")
    other, at_other, last, step = 0.0, 0.0, 0.0, 0.0
    for _ in range(ROUNDS):
        if at_before != 0 and (at_before < 0) != (at_x < 0):
            other, at_other = before, at_before
            last = step = x - before
        if abs(at_other) < abs(at_x):
            before, x, other = x, other, x
            at_before, at_x, at_other = at_x, at_other, at_x
        least, half = (absolute + relative * abs(x)) / 2, (other - x) / 2
        if at_x == 0 or abs(half) < least:
            return x
        proposed = _proposed((before, x, other), (at_before, at_x, at_other)) if abs(last) > least else None
        if proposed is not None and 2 * abs(proposed) < min(abs(last), 3 * abs(half) - least):
            last, step = step, proposed
        else:
            last = step = half
        before, at_before = x, at_x
        x += step if abs(step) > least else (least if half > 0 else -least)
        at_x = float(function(x))
    return x


def _proposed(places: tuple[float, float, float], values: tuple[float, float, float]) -> float | None:
    """The secant's step or, where three points are apart, the inverse parabola's; None where values do not fall."""
    (before, x, other), (at_before, at_x, at_other) = places, values
    if abs(at_x) >= abs(at_before):
        return None
    if before == other:
        return -at_x * (x - before) / (at_x - at_before)
    first, second = (at_before - at_x) / (before - x), (at_other - at_x) / (other - x)
    curvature = second * first * (at_other - at_before)
    return -at_x * (at_other * second - at_before * first) / curvature if curvature else None
