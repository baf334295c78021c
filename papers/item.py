"""A number that a paper prints, and its comparison with what we compute."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from typing import Literal

State = Literal["match", "differs", "not checkable"]
NUMBER = re.compile(r"([<>≈]?)\s*(√?)([+-]?[0-9.]*[0-9](?:e[+-]?[0-9]+)?)(%?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """A number that a paper prints, or a table or figure that prints none that could be checked."""

    where: str
    """The row of a table, the point of a figure, the sentence: Table 3, epsilon 8, delta 1e-5."""
    section: str
    """The section or appendix that prints it."""
    what: str
    printed: str = ""
    """The number as the paper prints it: 1.57, 1.57e9, 61%, √2. A bound has < or > before it (also for 'at most' and
    'at least'), what is said to be about a number ≈. Empty for a table or figure of which no number is printed.
    """
    ours: Callable[[], float] | None = None
    """None where we cannot compute it: a training study, an unpublished input, a drawing."""
    tolerance: float | None = None
    """How far off a match may be; None: what the printed digits allow."""
    why: str = ""
    """Where it differs, the reason; where it is not checkable, what is missing. Empty exactly where it matches."""
    slow: bool = False
    """Left out by ``--quick``."""

    def __post_init__(self) -> None:
        if not self.section:
            raise ValueError(f"{self.where}: say which section prints it.")
        if self.printed:
            read(self.printed)
        elif self.ours is not None:
            raise ValueError(f"{self.where}: {self.what}: the paper prints no number for it; make it an Aside.")
        if self.ours is None and not self.why:
            raise ValueError(f"{self.where}: {self.what}: say what is missing to check it.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aside:
    """A number of our own about a paper: what a figure shows, what a sentence in words amounts to. Never counted."""

    where: str
    what: str
    ours: Callable[[], float]
    slow: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed:
    """A printed number, read."""

    sign: str
    value: float
    unit: float
    """One unit of its last digit; 0 for a number that is exact, as √2."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An item with its answer."""

    paper: str
    where: str
    section: str
    what: str
    printed: str
    ours: float | None
    tolerance: float | None
    state: State
    why: str
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remark:
    """An aside with its number."""

    paper: str
    where: str
    what: str
    ours: float
    seconds: float


def read(printed: str) -> Printed:
    """Read a printed number, with the worth of its last digit."""
    found = NUMBER.fullmatch(printed.strip())
    if found is None:
        raise ValueError(f"{printed!r} is no printed number: 1.57, <0.01, ≈1e-3, 12%, √2.")
    sign, root, digits, percent = found.groups()
    if root:
        return Printed(sign=sign, value=math.sqrt(float(digits)), unit=0.0)
    scale = 0.01 if percent else 1.0
    mantissa, _, power = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(power or 0)
    return Printed(sign=sign, value=float(digits) * scale, unit=10.0**-decimals * scale)


def allowed(printed: str, tolerance: float | None = None) -> float:
    """How far from a printed number a match may lie.

    Half a unit of the last digit, as rounding allows. A bound may be rounded away from the number that it bounds: one
    whole unit, on its own side only.
    """
    if tolerance is not None:
        return tolerance
    number = read(printed)
    return number.unit if number.sign in ("<", ">") else number.unit / 2


def agrees(printed: str, value: float, tolerance: float | None = None) -> bool:
    """Whether a number is what was printed, within what its digits (or the tolerance) allow."""
    number = read(printed)
    # a binary fraction may add a little to the last digit
    room = allowed(printed, tolerance) * (1 + 1e-6)
    below, above = number.value - room, number.value + room
    if number.sign == "<":
        above = number.value
    if number.sign == ">":
        below = number.value
    return below <= value <= above


def answered(paper: str, item: Item) -> Row:
    """Compute an item and compare it."""
    start = time.monotonic()
    value = None if item.ours is None else float(item.ours())
    state: State = "not checkable"
    if value is not None:
        state = "match" if agrees(item.printed, value, item.tolerance) else "differs"
    return Row(
        paper=paper,
        where=item.where,
        section=item.section,
        what=item.what,
        printed=item.printed,
        ours=value,
        tolerance=allowed(item.printed, item.tolerance) if item.printed else None,
        state=state,
        why=item.why,
        seconds=time.monotonic() - start,
    )


def remarked(paper: str, aside: Aside) -> Remark:
    """Compute an aside."""
    start = time.monotonic()
    value = float(aside.ours())
    return Remark(paper=paper, where=aside.where, what=aside.what, ours=value, seconds=time.monotonic() - start)
