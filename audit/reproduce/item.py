"""One item of a paper, and the comparison of what it prints with what we compute."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from typing import Literal

State = Literal["match", "differs", "not checkable", "not reproduced"]
NUMBER = re.compile(r"([<>≈≤≥~]?)\s*([+-]?[0-9.]*[0-9](?:e[+-]?[0-9]+)?)(%?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """A number, a statement or a figure of a paper."""

    where: str
    """Its place: Table 3, Figure 2 at q = .1, section 4.1."""
    what: str
    theirs: str = ""
    """As printed: ``1.57``, ``<0.01``, ``≈1e-3``; empty for a figure without printed values."""
    ours: Callable[[], float] | None = None
    """None where nothing is computed: a figure that is only drawn, a training study."""
    why: str = ""
    """Where it differs, why; where it is not checkable or not reproduced, the reason."""
    slow: bool = False
    """Left out by ``--quick``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An item with its answer."""

    paper: str
    where: str
    what: str
    theirs: str
    ours: float | None
    state: State
    why: str
    seconds: float


def answered(paper: str, item: Item) -> Row:
    """Compute an item and compare it."""
    start = time.monotonic()
    value = None if item.ours is None else float(item.ours())
    return Row(
        paper=paper,
        where=item.where,
        what=item.what,
        theirs=item.theirs,
        ours=value,
        state=_state(item, value),
        why=item.why,
        seconds=time.monotonic() - start,
    )


def _state(item: Item, value: float | None) -> State:
    if value is None:
        return "not reproduced" if item.theirs or "study" in item.why else "not checkable"
    if not item.theirs:
        return "not checkable"
    return "match" if agrees(item.theirs, value) else "differs"


def agrees(printed: str, value: float) -> bool:
    """Whether a number is what was printed: to its printed digits, below or above it, or about it (a factor of 2)."""
    found = NUMBER.fullmatch(printed.strip())
    if found is None:
        raise ValueError(f"{printed!r} is no printed number: 1.57, <0.01, ≈1e-3, 12%.")
    sign, digits, percent = found.groups()
    target, value = float(digits), 100 * value if percent else value
    if sign in ("<", "≤"):
        return value <= target
    if sign in (">", "≥"):
        return value >= target
    if sign in ("≈", "~"):
        return 0.5 <= value / target <= 2.0
    if math.isnan(value) or math.isinf(value):
        return value == target
    mantissa, _, power = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(power or 0)
    # half a unit of the last printed digit, and what a binary fraction may add to it
    return abs(value - target) <= 0.5 * 10.0**-decimals * (1 + 1e-6)
