"""The record of an audit that could not run: what was asked, and why there is no answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from audit.record.record import AuditRecord, Band, ClaimPart, Curve, Part, plain
from audit.risk import RiskBudget
from audit.verdict.verdict import Verdict

NOT_BUILT = "not built"
"""The source of a claim that could not be asked for: such a claim allows everything."""
NO_TRIALS: Mapping[str, Any] = MappingProxyType(
    {
        "trials": 0,
        "fit_trials": 0,
        "stops_early": False,
        "points": (),
        "numbers": (),
        "grids": (),
        "band": Band(risk=0.0, alpha=(), beta=()),
        "theory": None,
        "detectable_advantage_excess": None,
        "detectable_epsilon": None,
        "trials_needed": None,
    }
)
"""What a record says of trials where none were drawn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestedAudit:
    """What an audit was to be, by name: parts that could not be built are described as the suite does."""

    name: str
    expect: Verdict
    mechanism: Part
    neighbours: Part
    distinguisher: Part
    claim: ClaimPart
    policy: Mapping[str, Any]
    risk: float
    report_delta: float
    trials_planned: int
    key: str
    diagnose: bool | None
    environment: Mapping[str, str]


def could_not_run(asked: RequestedAudit, *, why: str, started: str, seconds: float) -> AuditRecord:
    """A record without trials: its p-value is 1 and it proves nothing. Its part of the risk stays its own."""
    return AuditRecord(
        **vars(asked),
        **NO_TRIALS,
        verdict="could_not_run",
        reason=why,
        p_value=1.0,
        adjusted_p_value=1.0,
        budget=RiskBudget(risk=asked.risk),
        started=started,
        seconds=seconds,
    )


def part_as_stated(table: Mapping[str, Any] | None) -> Part:
    """A part that was not built, as the suite names it."""
    words = dict(table or {})
    names = [str(words.pop(key)) for key in ("kind", "function", "step") if key in words]
    return Part(name=names[0] if names else "default", parameters=plain(words))


def claim_as_stated(table: Mapping[str, Any]) -> ClaimPart:
    """A claim that was not built, because what computes it is missing: nothing is known of what it allows."""
    part = part_as_stated(table)
    return ClaimPart(
        name=part.name,
        parameters=part.parameters,
        relation="unknown",
        unit="unknown",
        observation="unknown",
        source=NOT_BUILT,
        error=0.0,
        epsilon=None,
        advantage=1.0,
        curve=Curve(alpha=(0.0, 1.0), beta=(0.0, 0.0)),
    )


def emptied(record: AuditRecord) -> AuditRecord:
    """A record of this verdict made again from what it was asked and told."""
    asked = RequestedAudit(**{field.name: getattr(record, field.name) for field in dataclasses.fields(RequestedAudit)})
    made = could_not_run(asked, why=record.reason, started=record.started, seconds=record.seconds)
    return dataclasses.replace(made, look=record.look, suite=record.suite)
