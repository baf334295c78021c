"""The record of an audit of a suite that could not run."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping

import guarantees
from audit.record.derive import claim_part
from audit.record.record import AuditRecord, ClaimPart, Part, plain
from audit.record.unrun import RequestedAudit, claim_as_stated, could_not_run, part_as_stated
from audit.suites.build import Built
from audit.suites.claim_names import CLAIMS
from audit.suites.suite import AuditSpec
from audit.trials.both_sides import Auditable
from mechanisms.pairs.neighbours import Neighbours


def unrun(
    spec: AuditSpec,
    built: Built | None,
    *,
    why: str,
    risk: float,
    key: str,
    environment: Mapping[str, str],
    seconds: float = 0.0,
) -> AuditRecord:
    """The record of an audit that could not run, its parts as they were built or else as the suite states them."""
    requested = RequestedAudit(
        name=spec.name,
        expect=spec.expect,  # type: ignore[arg-type]
        mechanism=part_as_stated(spec.mechanism) if built is None else _part(built.mechanism, built.mechanism.kind),
        neighbours=part_as_stated(spec.neighbours)
        if built is None
        else _part(built.neighbours, built.neighbours.relation),
        distinguisher=part_as_stated(spec.distinguisher or {"kind": "battery"}),
        claim=_claim(spec) if built is None else claim_part(built.claim, spec.delta),
        policy={"kind": part_as_stated(spec.policy).name},
        risk=risk,
        report_delta=spec.delta,
        trials_planned=spec.trials,
        key=key,
        diagnose=spec.diagnose,
        environment=environment,
    )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return could_not_run(requested, why=why, started=now, seconds=seconds)


def _part(made: Auditable | Neighbours, kind: str) -> Part:
    """A built part as records describe it."""
    return Part(name=made.name, parameters=plain(made.parameters), kind=kind)


def _claim(spec: AuditSpec) -> ClaimPart:
    """The claim, if it can be built without the other parts: our own claims run no other code."""
    words = dict(spec.claim)
    kind = words.pop("kind", None)
    if kind in CLAIMS:
        with contextlib.suppress(Exception):
            return claim_part(getattr(guarantees, kind)(**words), spec.delta)
    return claim_as_stated(spec.claim)
