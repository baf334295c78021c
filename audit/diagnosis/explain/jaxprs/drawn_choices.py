"""Choices that are drawn for each record: their rate, and a number that stands in for the one of the record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence, Set
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import logit, ndtri

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.value import COUNT, Value, host, others_differ
from audit.diagnosis.explain.numbers_given import not_handed
from audit.diagnosis.explain.places import Place, Reader, among_records, spelled
from audit.diagnosis.explain.sentences import counted_rate, found, led

COINS = "bernoulli"
LAWS: dict[str, Callable[[float], float]] = {
    "uniform": float,
    "randint": float,
    "normal": ndtri,
    "normal_real": ndtri,
    "exponential": lambda share: -math.log1p(-share),
    "logistic": logit,
    "gumbel": lambda share: -math.log(-math.log(share)),
}
"""What a library's functions draw for each record, and the number below which a share of such draws lies."""
BETWEEN = ("uniform", "randint")
"""Those that are given the smallest and the largest number."""
CHOOSING = ("uniform", COINS)
"""Those that choose where there are more numbers than records: others may be noise."""
LEAST = 2.0**-24
"""Share below which no draw lies."""


@dataclasses.dataclass(eq=False)
class Forced:
    """The record's number in each draw of one for every record, as a share of all numbers."""

    share: float
    slots: frozenset[int]
    counts: tuple[int, int]
    seats: bool = False
    """Whether there are more numbers than records, the first of them for the records."""
    rest: float | None = None
    """A share for all other numbers, if they are not as drawn."""
    draws: list[Place] = dataclasses.field(default_factory=list)
    """Where such numbers are drawn."""
    compared: Place | None = None
    """Where they become a choice."""

    def put(self, name: str, ins: Sequence[Value], a: Any, b: Any, at: Place) -> tuple[Any, Any]:
        """Both sides of what a library's function draws, with the record's number in its place."""
        name = name.lstrip("_")
        if not (name in LAWS or name == COINS) or any(value.random for value in ins[1:]):
            return a, b
        sizes = (np.size(b), np.size(b)) if self.seats else self.counts
        axes = [axis for axis, pair in enumerate(zip(np.shape(a), np.shape(b), strict=True)) if pair == sizes]
        if len(axes) != 1 or np.size(b) != sizes[1]:
            return a, b
        if self.seats and (name not in CHOOSING or sizes[1] <= self.counts[1]):
            return a, b
        self.draws.append(at)
        self.compared = self.compared or (at if name == COINS else None)
        changed = self._changed(name, ins, b, axes[0])
        if self.rest is not None and a is not b:
            a = np.delete(changed, sorted(self.slots), axes[0])
        return (changed if a is b else a), changed

    def compare(self, ins: Sequence[Value], at: Place) -> None:
        """Remember the first comparison of the numbers."""
        if self.compared is None and any(value.noise and value.draw in self.draws for value in ins):
            self.compared = at

    def _changed(self, name: str, ins: Sequence[Value], b: Any, axis: int) -> np.ndarray:
        given = [np.broadcast_to(host(value.b), np.shape(b)) for value in ins[1:] if np.ndim(value.b) <= np.ndim(b)]
        own = np.zeros(np.shape(b), bool)
        np.moveaxis(own, axis, 0)[sorted(self.slots)] = True
        rest = host(b) if self.rest is None else _number(name, given, self.rest)
        return np.where(own, _number(name, given, self.share), rest).astype(b.dtype)


def _number(name: str, given: Sequence[np.ndarray], share: float) -> Any:
    """The number of a law below which this share of its draws lies."""
    if name == COINS:
        return share < given[0]
    if name in BETWEEN and len(given) == 2:
        # whole numbers are cut down to the next one
        number = given[0] + share * (given[1] - given[0])
        return np.floor(number) if name == "randint" else number
    return LAWS[name](min(max(share, LEAST), 1 - LEAST))


@dataclasses.dataclass(eq=False)
class Choices:
    """The choices of one run."""

    taken: dict[Place, bool] = dataclasses.field(default_factory=dict)
    """Where one is drawn, and whether it always takes the differing record."""
    first: list[Value] = dataclasses.field(default_factory=list)
    """Those before the first release."""

    def see(self, out: Value, place: Place, *, released: bool) -> None:
        """Remember a result that is such a choice, and whether there was a release before it."""
        if out.tag is None or not out.random or out.values or is_key(out.b):
            return
        if out.a.dtype == jnp.bool_:
            takes = bool(np.take(host(out.b), sorted(out.tag.slots), axis=out.tag.axis).all())
            self.taken[place] = takes and self.taken.get(place, True)
        if not released and np.isin(host(out.b), (0, 1)).all():
            self.first.append(out)


@dataclasses.dataclass(frozen=True)
class Rate:
    """A number that draws are compared with, and that the number of records changes."""

    at: Place
    """Where they are compared."""
    number: Value

    def told(self, draw: Place, holders: Set[Reader], counts: tuple[int, int], code: Callable[[], object]) -> Finding:
        """That as a finding: first the innermost function that is not handed the number.

        Where Python does not show it, the function that has records in its hands.
        """
        one, other = _only_number(self.number.a), _only_number(self.number.b)
        if one is None or other is None:
            lead = among_records(draw, holders)
            called = "" if lead == draw else f", called at {spelled(lead)}"
            return led(found(Kind.RANDOMNESS_FROM_DATA, draw=draw, origin=f" ({COUNT}{called})"), lead)
        lead = not_handed(code, self.at, one, returned=True)
        return counted_rate(draw=draw, rates=(one, other), counts=counts, lead=lead)


def rate_of(ins: Sequence[Value], place: Place) -> dict[Place, Rate]:
    """The rate that a comparison has, if it has one, by the draw that is compared with it."""
    drawn = [value.draw or place for value in ins if value.noise and not value.values]
    rates = [value for value in ins if not (value.noise or value.values or value.random) and others_differ(value)]
    return {drawn[0]: Rate(place, rates[0])} if drawn and rates else {}


def _only_number(side: object) -> float | None:
    """The one number of an array of it, if it is not 0."""
    numbers = np.unique(host(side).astype(np.float64))
    return float(numbers[0]) if numbers.size == 1 and numbers[0] else None
