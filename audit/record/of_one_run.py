"""Make records of other results: of one training with many canaries, whose coins were guessed, and of given scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import reduce

from audit.one_run.procedure import judged
from audit.one_run.result import OneRun, weights_of
from audit.record.of_scores import judged_here, record_of_scores
from audit.record.record import AuditRecord, OneRunPart, Part
from audit.record.unrun import NO_TRIALS
from audit.risk import RiskBudget
from audit.verdict.score_bounds import ScoreBounds
from guarantees.claim import Claim

POLICY = "one_run"
ONE_RUN_STATED = ("expect", "mechanism", "environment", "started")
"""Fields of a record of one training that nothing else in it implies."""


def as_records(results: Iterable[AuditRecord | OneRun | ScoreBounds]) -> list[AuditRecord]:
    """All results as records; if a name is taken, a result that was no record gets a number."""
    records: list[AuditRecord] = []
    for result in results:
        record = as_record(result)
        records.append(record if isinstance(result, AuditRecord) else _with_own_name(record, records))
    return records


def told_apart(found: Iterable[AuditRecord]) -> tuple[AuditRecord, ...]:
    """Records of several files, with numbers added to names that occur repeatedly."""
    return tuple(
        reduce(lambda records, record: [*records, _with_own_name(record, records)], found, list[AuditRecord]())
    )


def _with_own_name(record: AuditRecord, others: Sequence[AuditRecord]) -> AuditRecord:
    """The record, with a number added to its name if another one has it."""
    taken = {other.name for other in others}
    names = (record.name, *(f"{record.name} ({number})" for number in range(2, len(others) + 2)))
    return dataclasses.replace(record, name=next(name for name in names if name not in taken))


def as_record(found: AuditRecord | OneRun | ScoreBounds) -> AuditRecord:
    """A result as a record: of one training with its guesses, of given scores with their counts.

    Raises:
      ValueError: no claim was judged.
    """
    if isinstance(found, AuditRecord):
        return found
    if isinstance(found, ScoreBounds):
        return record_of_scores(found)
    shared = judged_here(found)
    return AuditRecord(
        **{**NO_TRIALS, **shared, "environment": {**shared["environment"], **found.known}},
        trials_planned=0,
        policy={"kind": POLICY},
        budget=RiskBudget(risk=found.risk),
        mechanism=Part(name="one training", parameters={}),
        neighbours=Part(name="canaries", parameters={}, kind=found.relation),
        distinguisher=Part(name="scores of canaries", parameters={}),
        key=f"seed {found.seed}",
        one_run=OneRunPart(**{field.name: getattr(found, field.name) for field in dataclasses.fields(OneRunPart)}),
    )


def judged_again(record: AuditRecord, claim: Claim) -> AuditRecord:
    """Make a record of one training again from its guesses and the claim."""
    once = record.one_run
    assert once is not None
    found = OneRun(
        **vars(once),
        relation=record.neighbours.kind,  # pyright: ignore[reportArgumentType]
        risk=record.risk,
        judgement=judged(once.guesses, claim, delta=record.report_delta, weights=weights_of(record.environment)),
        claim=claim,
        report_delta=record.report_delta,
        name=record.name,
    )
    return dataclasses.replace(as_record(found), **{name: getattr(record, name) for name in ONE_RUN_STATED})
