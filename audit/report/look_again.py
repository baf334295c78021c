"""Advice after too few trials: what to type, how long it takes, what another look costs, and what needs fewer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from audit.one_run.judgement import NOT_ENOUGH
from audit.record.diagnosis_answer import CONSTANT
from audit.record.record import AuditRecord, ClaimPart
from audit.report.durations import duration
from audit.verdict.judgement import ONE_PLACE

NOT_PAID = "state the risk of both runs together, or plan ahead with --look 1 or --stop-early"
NOT_PAID_IN_PYTHON = "state the risk of both together, or plan ahead with policy=audit.Anytime()"
ALONE = "together with this answer they are a second look, so state the risk of both."
MORE_DELTAS = (
    " Or claim more than one epsilon at one delta: your accountant's epsilons at several deltas (`claim_from_table`) "
    "or its curve are decided with far fewer trials."
)
MOST_NAMED = 2
"""Most audits that a command names one by one."""


def look_again(records: Sequence[AuditRecord]) -> str:
    """What to type after too few trials, how long it takes, what another look costs, and what needs fewer."""
    if all(any(answer.code == CONSTANT for answer in record.diagnoses) for record in records):
        return "Every release was the same, on both datasets: use another pair, or check what the code reads."
    if all(record.reason.startswith(ONE_PLACE) for record in records):
        return "More trials would not help: use another score, or other thresholds."
    needed, look = max(record.trials_needed or 0 for record in records), max(record.look for record in records)
    if all(record.one_run is not None for record in records):
        if any(NOT_ENOUGH in record.reason for record in records):
            return "Train a larger model, or several times, with canaries, and state the risk of all trainings."
        return "Train again with as many canaries or guesses as would be enough, and state the risk of both trainings."
    if any(record.scores is not None for record in records):
        return f"Draw {f'about {needed:,}' if needed else 'more'} new trials and judge those alone: {ALONE}"
    curve = MORE_DELTAS if any(_single(record.claim) for record in records) else ""
    # a session of Python has no suite
    called = all(record.suite is None for record in records)
    not_paid = NOT_PAID_IN_PYTHON if called else NOT_PAID
    if not needed:
        return f"More trials are a second look with its own risk: {not_paid}.{curve}"
    command = f"`dpsgd-audit run SUITE{_alone(records)} --look {look + 1} --trials {needed}`"
    command = f"`audit.run_audit(..., trials={needed}, key=...)` with a new key" if called else command
    took = f"at most about {time_of(records, needed)} an audit at this run's pace"
    if look:
        return f"For the next look, which has its own share of the risk: {command} ({took}).{curve}"
    return f"To look again: {command} ({took}). Another look has its own risk: {not_paid}.{curve}"


def _alone(records: Sequence[AuditRecord]) -> str:
    """Options that leave out a suite's audits that need no more trials; empty if too many would be named."""
    suite = records[0].suite
    if suite is None or len(records) >= suite.audits or len(records) > MOST_NAMED:
        return ""
    return "".join(f" --audit {shlex.quote(record.name)}" for record in records)


def _single(claim: ClaimPart) -> bool:
    """Whether the claim is only one epsilon at one delta above 0."""
    if claim.name == "epsilon_delta":
        return claim.parameters.get("delta", 0.0) > 0
    return claim.name == "claim_from_table" and len(claim.parameters.get("points", ())) == 1


def time_of(records: Sequence[AuditRecord], trials: int) -> str:
    """How long so many trials take at the slowest record's pace, learning and compiling included."""
    return duration(trials * max(record.seconds / max(1, record.trials + record.fit_trials) for record in records))
