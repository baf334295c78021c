"""Where the length by which a record is clipped is computed wrongly, from the numbers that make its factor."""

from __future__ import annotations

import dataclasses
import linecache
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from audit.diagnosis.explain.numbers_given import returned_at
from audit.diagnosis.explain.places import NOWHERE, Place, chosen_for, function_around, handed_out, place, spelled

SLACK = 0.02
"""By which a length, or a factor, may differ from another or exceed a bound: rounding."""
LENGTHS = re.compile(r"def (?!\w*sq)\w*(norm|length|magnitude)", re.IGNORECASE)
"""Pattern of functions that should return lengths and not squares."""
SAME = 1e-4
"""Relative difference below which two computations give one number."""


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of the record's own, and where it was made."""

    at: Place
    value: float
    first: bool = False
    """Whether it was made of entries of the record, and not of such numbers."""
    whole: bool = True
    """Whether it is the sum or the length of all that it was made of."""
    joined: Place = NOWHERE
    """Where the parts of the record that it was made of were put together, if they were."""


@dataclasses.dataclass(frozen=True)
class Wrong:
    """Where a record is measured wrongly, and that as a clause."""

    at: Place
    says: str
    part: bool
    """Whether it is measured rightly but for entries that are left out."""


def mismeasured(numbers: Sequence[Number], by: float, length: float, clip: float) -> Wrong | None:
    """Where a record is measured wrongly, if its factor is right for the length found there.

    ``by`` is the factor, ``length`` the record's own. The line is that of the first number that leaves out a part of
    what it is made of; else, where entries of the record were left out, the first that is made of them.
    """
    last = reversed(range(len(numbers)))
    if by < 1:
        at = next((at for at in last if near(numbers[at].value * by, clip, SAME)), None)
    else:
        at = next((at for at in last if not _follows(numbers, at, by, clip)), None)
    if at is None or not numbers[at].value > 0 or not near(min(1.0, clip / numbers[at].value), by):
        return None
    if near(numbers[at].value, length):
        return None
    # a clamp that does nothing hands it on
    while at and numbers[at].whole and near(numbers[at - 1].value, numbers[at].value, SAME):
        at -= 1
    taken = numbers[: at + 1]
    if near(taken[-1].value, length**2, SAME) and at + 1 < len(numbers):
        # whoever makes squares may do so rightly, and whoever takes them for lengths does not
        own = [linecache.getline(*function_around(frame)) for frame in taken[-1].at.own[:1]]
        lead = NOWHERE if any(map(LENGTHS.search, own)) else handed_out(numbers[at + 1].at, taken[-1].at)
        squared = f"the square of its length, {taken[-1].value:.4g}, is taken for its length, {length:.4g}"
        says = f", since {squared} ({spelled(taken[-1].at)})"
        return Wrong(taken[-1].at if lead is NOWHERE else lead, says, part=False)
    short = next((number for number in taken if not number.whole), None)
    begun = [number for number in taken if number.first]
    if short is None and begun and not _all_of_it(begun, length):
        short = begun[0]
    at_fault = short or taken[-1]
    divided = any(near(number.value, length, SAME) for number in taken[:-1])
    if by < 1 and short is None and divided and near(clip, 1.0):
        # what a bound divides, as it may any length, is no length that is wrong
        says = f", since {spelled(at_fault.at)} makes {taken[-1].value:.4g} of its length, {length:.4g}"
        return Wrong(at_fault.at, says, part=False)
    says = f", since {spelled(at_fault.at)} measures its length as {taken[-1].value:.4g} when it is {length:.4g}"
    times = round(length / taken[-1].value)
    if times > 1 and near(taken[-1].value * times, length, SAME):
        says += f" (1/{times} of it, as of {times} records that are averaged before they are clipped as one)"
    if at_fault.first and at_fault.whole and at_fault.joined.nearest not in (None, at_fault.at.nearest):
        return Wrong(at_fault.joined, f"{says} (of what {spelled(at_fault.joined)} puts together)", part=True)
    if at_fault.first and at_fault.whole and (chosen := chosen_for(at_fault.at)) is not NOWHERE:
        return Wrong(chosen, f"{says} (of what {spelled(chosen)} gives it)", part=True)
    return Wrong(at_fault.at, says, part=short is not None)


def _follows(numbers: Sequence[Number], at: int, by: float, clip: float) -> bool:
    """Whether a number is made of a length before it, as the bound over it is, or is the factor or the bound itself."""
    value, before = numbers[at].value, [number.value for number in numbers[:at]]
    if not before or not value or any(near(value, one, SAME) for one in (by, 1 / by if by else 0.0, clip)):
        return bool(before)
    return any(near(made, value, SAME) for one in before if one for made in (clip / one, 1 / one, one / clip))


def _all_of_it(begun: Sequence[Number], length: float) -> bool:
    """Whether numbers that are lengths, or squares of them, are together the record's."""
    values = [number.value for number in begun]
    return any(near(total, length**2) for total in (sum(values), sum(value**2 for value in values)))


def near(one: float, other: float, slack: float = SLACK) -> bool:
    """Whether two numbers are the same up to rounding."""
    return abs(one - other) <= slack * abs(other)


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
    if by >= 1 and weights[0].read:
        # Python may have made that of any number that it read
        return None
    if (wrong := mismeasured(numbers, by, length, clip)) is not None:
        by_others = [place(one.mixed) for one in weights[0].numbers if one.mixed]
        others = f" (that number depends on other records since {spelled(by_others[0])})" if by_others else ""
        return (by_others or [wrong.at])[0], f"{wrong.says}{others}"
    measured = any(near(number.value, right) for number in numbers for right in (length, length**2))
    return (numbers[-1].at, "") if measured and not weights[0].read else None


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
