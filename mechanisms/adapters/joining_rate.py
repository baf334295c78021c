"""How often a record joins a batch that uniform numbers choose, and how likely Poisson batches all have one size."""

from __future__ import annotations

import math
from collections.abc import Callable

SLACK = 0.02
"""By which a rate may exceed the claim's: rounding."""
LARGEST_UNIFORM = 1 - 2**-24
FINE = 1e-4
"""Width of the interval in which a rate is found."""
SPOTS = (0.1, 0.5, 0.9)
"""Shares of the numbers on either side of a rate that are tried."""


def joining_rate(joins: Callable[[float], bool | None], above: float) -> float | None:
    """The share of numbers with which the record joins, if it is above this one and below one.

    ``joins`` says whether the record joins if its number is this share of all numbers; None if that is unknown.
    """
    if above >= 1 or not joins(above) or joins(LARGEST_UNIFORM) is not False:
        return None
    low, high = above, 1.0
    while high - low > FINE * high:
        middle = (low + high) / 2
        joined = joins(middle)
        if joined is None:
            return None
        low, high = (middle, high) if joined else (low, middle)
    inside = all(joins(low * spot) for spot in SPOTS)
    outside = all(joins(high + (1 - high) * spot) is False for spot in SPOTS)
    return (low + high) / 2 if inside and outside else None


def same_size_by_chance(runs: int, records: int, rate: float) -> float:
    """How likely so many Poisson batches have one size, at most: that of the likeliest size, all but one time."""
    if rate >= 1:
        return 1.0
    size = math.floor((records + 1) * rate)
    ways = math.lgamma(records + 1) - math.lgamma(size + 1) - math.lgamma(records - size + 1)
    likely = math.exp(ways + size * math.log(rate) + (records - size) * math.log1p(-rate))
    return likely ** (runs - 1)
