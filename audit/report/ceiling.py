"""The most that a number of trials can prove: what a test without a single error would show at the same shares."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import Limits
from audit.bounds.points import proven_epsilon, rectangles
from audit.policies.policy import ANY_TARGET
from audit.record.record import AuditRecord, ProvenPoint
from audit.verdict.proven_numbers import without_errors

CEILING = "Ceiling: the most that this many trials, or guesses of canaries, can prove."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ceiling:
    """What the trials would have proven without any error."""

    point: Limits
    epsilon: float
    """Epsilon at the record's delta."""


def ceiling(record: AuditRecord) -> Ceiling | None:
    """The ceiling of a record's trials; None if the data may have ended them, as their number was not fixed."""
    if record.stops_early or not record.points:
        return None
    best = max(record.points, key=lambda point: point.risk)
    point, delta = _perfect(best), record.report_delta
    # what the band, another point or another number proves can be proven, too
    most = max(record.epsilon(delta), *proven_epsilon((point,), delta=delta))
    for number in record.numbers:
        if number.name == "epsilon" and number.given is not None:
            tests = sum(one.target in ("epsilon", ANY_TARGET) for one in record.points) or 1
            question, share = EpsilonAt(delta=delta), record.budget.epsilon
            most = max(most, without_errors(best.counts, question, number, share=share, tests=tests))
    return Ceiling(point=point, epsilon=most)


def _perfect(point: ProvenPoint) -> Limits:
    clean = dataclasses.replace(point.counts, false_alarms=0, misses=0)
    return rectangles((clean,), np.array([point.risk]), on_alpha=point.on_alpha)[0]


def most_epsilon(record: AuditRecord) -> float | None:
    """Largest epsilon that this many trials, or guesses, can prove at the record's delta, if known."""
    if record.one_run is not None:
        return record.one_run.most(record.report_delta)
    found = ceiling(record)
    return None if found is None else found.epsilon
