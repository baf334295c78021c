"""Make the record of an audit that could not run: what was requested, and why there is no answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from audit.record.record import AuditRecord, Band, ClaimPart, Curve, Part, plain
from audit.risk import RiskBudget
from audit.verdict.verdict import Verdict

NOT_BUILT = "not built"
"""Source of a claim that could not be built, and so allows everything."""
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
"""Fields of a record whose trials were not drawn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestedAudit:
    """What was requested, by name; parts that could not be built are described as in the suite."""

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


def could_not_run(requested: RequestedAudit, *, why: str, started: str, seconds: float) -> AuditRecord:
    """A record without trials, with p-value 1, which proves nothing. Its share of the risk is not given to others."""
    return AuditRecord(
        **vars(requested),
        **NO_TRIALS,
        verdict="could_not_run",
        reason=why,
        p_value=1.0,
        adjusted_p_value=1.0,
        budget=RiskBudget(risk=requested.risk),
        started=started,
        seconds=seconds,
    )


def part_as_stated(table: Mapping[str, Any] | None) -> Part:
    """A part that was not built, as in the suite."""
    words = dict(table or {})
    names = [str(words.pop(key)) for key in ("kind", "function", "step") if key in words]
    return Part(name=names[0] if names else "default", parameters=plain(words))


def claim_as_stated(table: Mapping[str, Any]) -> ClaimPart:
    """A claim that was not built, since what computes it is missing: it allows everything."""
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
    """Make a record with this verdict again from what was requested and the reason."""
    requested = RequestedAudit(
        **{field.name: getattr(record, field.name) for field in dataclasses.fields(RequestedAudit)}
    )
    again = could_not_run(requested, why=record.reason, started=record.started, seconds=record.seconds)
    return dataclasses.replace(again, look=record.look, suite=record.suite)
