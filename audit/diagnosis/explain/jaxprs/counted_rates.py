"""Sampling rates that depend on the number of records, and the line that makes them so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence, Set

import numpy as np

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.value import COUNT, Value, host, others_differ
from audit.diagnosis.explain.numbers_given import not_handed
from audit.diagnosis.explain.places import Place, Reader, among_records, spelled
from audit.diagnosis.explain.sentences import counted_rate, found, led


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


@dataclasses.dataclass(eq=False)
class Rates:
    """All such numbers of one run, by the draws that are compared with them."""

    by_count: dict[Place, Rate] = dataclasses.field(default_factory=dict)

    def compare(self, ins: Sequence[Value], place: Place) -> None:
        """See a comparison."""
        drawn = [value for value in ins if value.noise and not value.values]
        rates = [value for value in ins if not (value.noise or value.values or value.random) and others_differ(value)]
        if drawn and rates:
            self.by_count.setdefault(drawn[0].draw or place, Rate(place, rates[0]))


def _only_number(side: object) -> float | None:
    """The one number of an array of it, if it is not 0."""
    numbers = np.unique(host(side).astype(np.float64))
    return float(numbers[0]) if numbers.size == 1 and numbers[0] else None
