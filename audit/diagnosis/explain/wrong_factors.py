"""Where the number goes wrong by which PyTorch code multiplies a record, or each part of it, to clip it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from audit.diagnosis.explain.numbers_given import returned_at
from audit.diagnosis.explain.places import NOWHERE, Place, place, spelled
from audit.diagnosis.explain.wrong_lengths import SAME, Number, is_measured, mismeasured

SLACK = 0.02
"""By which a factor may differ from another: rounding."""


def wrong_factor(cost: Any, clip: float | None) -> tuple[Place, str] | None:
    """Where the number went wrong by which all of a record is multiplied: its length, or what is made of that."""
    weights = cost.weights
    if not weights or clip is None or any(abs(one.by - weights[0].by) > SLACK * weights[0].by for one in weights):
        return None
    by, length = weights[0].by, math.hypot(*(one.before for one in weights))
    if math.isnan(length):
        # its loss was multiplied, and its gradient with it
        length = cost.sensitivity / by if by else math.nan
    numbers = [
        Number(place(one.where, len(one.where)), one.value, one.first, one.whole, place(one.joined))
        for one in weights[0].numbers
    ]
    if (wrong := mismeasured(numbers, by, length, clip)) is not None:
        by_others = [place(one.mixed) for one in weights[0].numbers if one.mixed]
        others = f" (that number depends on other records since {spelled(by_others[0])})" if by_others else ""
        return (by_others or [wrong.at])[0], f"{wrong.says}{others}"
    return (numbers[-1].at, "") if is_measured(numbers, length) else None


def each_alone(weights: Sequence[Any], once_more: Callable[..., None]) -> tuple[Place, str] | None:
    """Where parts of a record are clipped each by its own length, and that as a clause."""
    clipped = [one for one in weights if one.by < 1]
    own = [[number for number in one.numbers if abs(number.value - one.before) <= SAME * one.before] for one in clipped]
    if len({round(one.by, 6) for one in clipped}) < 2 or not all(own):
        return None
    at = place(own[0][0].where)
    lengths = [one.by * one.before for one in clipped]
    if max(lengths) - min(lengths) > SAME * max(lengths):
        return at, f" (each part is clipped by its own length, measured at {spelled(at)})"
    each = f" (each part is clipped by its own length, measured at {spelled(at)}, to {lengths[0]:.4g}"
    made = returned_at(once_more, lengths[0])
    return (at, f"{each})") if made is NOWHERE else (made, f"{each}, from {spelled(made)})")
