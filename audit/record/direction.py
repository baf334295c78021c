"""Which direction leaks more, from the points of a record, without a trial."""

from __future__ import annotations

from audit.bounds.points import proven_epsilon
from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import AuditRecord
from guarantees.numerics.rounding import at_least


def direction(record: AuditRecord) -> Diagnosis:
    """The direction in which the record's points prove more; they hold at the record's risk."""
    points = tuple(point.limits for point in record.points)
    forth, back = proven_epsilon(points, delta=record.report_delta)
    larger, smaller, side = (forth, back, "with") if forth >= back else (back, forth, "without")
    return Diagnosis(
        code="leaks_more",
        question="which direction leaks more?",
        wrong=False,
        says=f"epsilon >= {at_least(larger)} is proven from outputs likelier {side} the record, and >= "
        f"{at_least(smaller)} in the other direction{_other_share(record)}.",
        risk=0.0,
        assumes="nothing: it holds at the record's risk; a smaller bound does not mean that less leaks",
        estimate=larger,
    )


def _other_share(record: AuditRecord) -> str:
    """Say why these bounds may be below the epsilon that the record reports."""
    if not any(number.name == "epsilon" for number in record.numbers):
        return ""
    return " (by the band over all thresholds; the reported epsilon has its own test)"
