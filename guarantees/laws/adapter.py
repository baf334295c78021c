"""The border with somebody else's law: what it leaves out gets the usual answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from guarantees.laws.law import LossLaw, Tails
from guarantees.numerics.array import Array


class Tabled(Protocol):
    """The least that somebody else's law must have; ``as_law`` makes a whole law of it."""

    @property
    def error(self) -> float:
        """Absolute error of each tail."""
        ...

    def tails(self, threshold: Array) -> Tails:
        """The four tail probabilities at each threshold, which may be infinite."""
        ...


NEEDED = ("error", *sorted(LossLaw.__abstractmethods__))
"""What a law must answer by itself."""
USUAL = {name: answer for name, answer in vars(LossLaw).items() if not name.startswith("_") and name not in NEEDED}
"""Everything else that may be asked of a law, with the answer of one that knows no better."""
ABSENT = object()


@dataclasses.dataclass(frozen=True)
class _Given:
    """Somebody else's law."""

    law: Any


def _answer(name: str) -> property:
    """The other law's own answer; where it has none, the usual one."""

    def answer(self: Any) -> Any:
        if name in NEEDED:
            return getattr(self.law, name)
        own = getattr(self.law, name, ABSENT)
        return USUAL[name].__get__(self) if own is ABSENT else own

    return property(answer)


_Adapted = type("_Adapted", (_Given, LossLaw), {name: _answer(name) for name in (*NEEDED, *USUAL)})


def as_law(given: LossLaw | Tabled) -> LossLaw:
    """A law of which everything may be asked: itself, or with the usual answers where it gives none of its own.

    The one border: below it nothing asks whether a law has an attribute.
    """
    return given if isinstance(given, LossLaw) else _Adapted(given)
