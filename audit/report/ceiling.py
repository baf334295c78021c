"""The most that so many trials could prove: what a test without a single error would show at the same shares."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.inversion import joint_epsilon_bound
from audit.bounds.points import proven_epsilon, rectangles
from audit.policies.policy import ANY_TARGET
from audit.record.record import AuditRecord, ProvenPoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ceiling:
    """What no errors at all would have proven."""

    point: Limits
    epsilon: float
    """At the record's delta."""


def ceiling(record: AuditRecord) -> Ceiling | None:
    """The ceiling of a record's trials; None where the data may have ended them: their number was not fixed."""
    if record.stops_early or not record.points:
        return None
    best = max(record.points, key=lambda point: point.risk)
    point = _perfect(best)
    own = [number for number in record.numbers if number.name == "epsilon" and number.given is not None]
    if not own:
        return Ceiling(point=point, epsilon=max(proven_epsilon((point,), delta=record.report_delta)))
    tests = sum(one.target in ("epsilon", ANY_TARGET) for one in record.points) or 1
    share = own[0].risk / tests
    epsilon = joint_epsilon_bound(_no_errors(best), delta=record.report_delta, risk=share)
    return Ceiling(point=point, epsilon=max(epsilon, max(proven_epsilon((point,), delta=record.report_delta))))


def _no_errors(point: ProvenPoint) -> ErrorCounts:
    return ErrorCounts(
        false_alarms=0,
        trials_without=point.counts.trials_without,
        misses=0,
        trials_with=point.counts.trials_with,
    )


def _perfect(point: ProvenPoint) -> Limits:
    return rectangles((_no_errors(point),), np.array([point.risk]), on_alpha=point.on_alpha)[0]
