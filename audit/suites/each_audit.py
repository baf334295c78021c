"""What follows for each audit of a suite from the suite's risk and seed. Nothing heavy is imported here."""

from __future__ import annotations

import functools

from audit.record.record import SuitePart
from audit.suites.repeated_looks import share_of
from audit.trials.seeds import require_seed
from audit.trials.threefry import IMPLEMENTATION, threefry

LOOK = 0x6C6F6F6B
"""Folded into a key before the number of a look; the bytes of names are smaller."""


def risk_of_each(suite: SuitePart, look: int) -> float:
    """The risk of each audit of a suite, at one look."""
    return suite.risk * share_of(look) / suite.audits


def among(audits: int, p_value: float, *, look: int) -> float:
    """The p-value of one of so many audits that share a look's part of a risk evenly."""
    return min(1.0, audits * p_value / share_of(look))


def folded(name: str, look: int) -> tuple[int, ...]:
    """The numbers that are folded into the suite's key for one audit; every look has its own."""
    return (*name.encode(), *((LOOK, look) if look else ()))


def key_text(seed: int, name: str, look: int = 0) -> str:
    """The key of one audit as records write it."""
    require_seed(seed)
    one, two = functools.reduce(lambda words, number: threefry(words, (0, number)), folded(name, look), (0, seed))
    return f"{IMPLEMENTATION}:{one},{two}"
