"""The border with a user's own law: the usual answers fill in what it leaves out."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from guarantees.laws.law import LossLaw, Tails
from guarantees.numerics.array import Array


class Tabled(Protocol):
    """The least that a user's law must have; ``as_law`` makes a full law of it."""

    @property
    def error(self) -> float:
        """Absolute error of each tail."""
        ...

    def tails(self, threshold: Array) -> Tails:
        """The four tail probabilities at each threshold, which may be infinite."""
        ...


NEEDED = ("error", *sorted(LossLaw.__abstractmethods__))
"""What a law must answer itself."""
USUAL = {name: answer for name, answer in vars(LossLaw).items() if not name.startswith("_") and name not in NEEDED}
"""All other questions to a law, with the usual answer of a law that knows no better."""
ABSENT = object()


@dataclasses.dataclass(frozen=True)
class _Given:
    """A user's law, with the usual answers for what it leaves out."""

    law: Any


def _answer(name: str) -> property:
    """Property that gives the user's own answer, or the usual one if there is none."""

    def answer(self: Any) -> Any:
        if name in NEEDED:
            return getattr(self.law, name)
        given = getattr(self.law, name, ABSENT)
        return USUAL[name].__get__(self) if given is ABSENT else given

    return property(answer)


_Adapted = type("_Adapted", (_Given, LossLaw), {name: _answer(name) for name in (*NEEDED, *USUAL)})


def as_law(given: LossLaw | Tabled) -> LossLaw:
    """A full law: the given one itself, or the user's law with the usual answers filled in.

    The one border: below it nothing asks whether a law has an attribute.
    """
    return given if isinstance(given, LossLaw) else _Adapted(given)
