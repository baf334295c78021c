"""The record of one training with many canaries: no trials, only coins that were guessed."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Iterable

import numpy as np

from audit.one_run.procedure import judged
from audit.one_run.result import OneRun
from audit.record.derive import claim_part
from audit.record.record import AuditRecord, OneRunPart, Part
from audit.record.unrun import NO_TRIALS
from audit.risk import RiskBudget
from audit.trials.versions import own_code, version_of
from guarantees.claim import Claim

POLICY = "one_run"


def as_records(found: Iterable[AuditRecord | OneRun]) -> list[AuditRecord]:
    """All of them as records; a training whose name another one has already gets a number."""
    records: list[AuditRecord] = []
    for one in found:
        record = as_record(one)
        if isinstance(one, OneRun):
            taken = {other.name for other in records}
            names = (record.name, *(f"{record.name} ({number})" for number in range(2, len(records) + 2)))
            record = dataclasses.replace(record, name=next(name for name in names if name not in taken))
        records.append(record)
    return records


def as_record(found: AuditRecord | OneRun) -> AuditRecord:
    """A record as it is; of one training, the record of its guesses.

    Raises:
      ValueError: no claim was judged.
    """
    if isinstance(found, AuditRecord):
        return found
    if found.claim is None or found.judgement is None:
        raise ValueError(f"{found.name!r} judged no claim, and a record needs one; give claim= to one_run.")
    judged = found.judgement
    return AuditRecord(
        name=found.name,
        verdict=judged.verdict,
        reason=judged.reason,
        p_value=judged.p_value,
        adjusted_p_value=judged.p_value,
        expect="no_violation_found",
        risk=found.risk,
        report_delta=found.report_delta,
        trials_planned=0,
        policy={"kind": POLICY},
        budget=RiskBudget(risk=found.risk),
        claim=claim_part(found.claim, found.report_delta),
        mechanism=Part(name="one training", parameters={}),
        neighbours=Part(name="canaries", parameters={}, kind=found.relation),
        distinguisher=Part(name="scores of canaries", parameters={}),
        **NO_TRIALS,
        key=f"seed {found.seed}",
        environment={
            "dpsgd_audit": version_of("dpsgd-audit"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "own_code": own_code(),
            **found.known,
        },
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        one_run=OneRunPart(
            guesses=found.guesses,
            canaries=found.canaries,
            included=found.included,
            seed=found.seed,
            tied=found.tied,
            conditions=found.conditions,
        ),
    )


def judged_again(record: AuditRecord, claim: Claim) -> AuditRecord:
    """A record of one training made again from its guesses and the claim."""
    once = record.one_run
    assert once is not None
    found = OneRun(
        guesses=once.guesses,
        canaries=once.canaries,
        included=once.included,
        relation=record.neighbours.kind,  # pyright: ignore[reportArgumentType]
        risk=record.risk,
        seed=once.seed,
        tied=once.tied,
        conditions=once.conditions,
        judgement=judged(once.guesses, claim, delta=record.report_delta),
        claim=claim,
        report_delta=record.report_delta,
        name=record.name,
    )
    return dataclasses.replace(
        as_record(found), expect=record.expect, environment=record.environment, started=record.started
    )
