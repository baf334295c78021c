"""A record in a few lines of plain text: for pytest failures, CI annotations, Markdown."""

from __future__ import annotations

from audit.record.record import AuditRecord
from audit.report.caveats import (
    close_call,
    ended_early,
    learned_note,
    other_than_told,
    second_pair,
    trials_note,
)
from audit.report.diagnoses import HINT, REPLAYED, asked, looks_wrong, not_followed, untold
from audit.report.escaping import shown
from audit.report.promises import unchecked_steps
from audit.report.repeat import NOT_REPEATABLE
from audit.report.spent import spent
from audit.report.table import readable
from dpsgd_audit.spelling import counted
from guarantees.numerics.rounding import at_least, at_most


def record_lines(record: AuditRecord) -> list[str]:
    """What is violated, if anything; what was claimed, what was proven, from which counts."""
    record = shown(record)
    if not record.ran:
        return [
            f"{record.name}: {readable(record.verdict)}{not_as_expected(record)}",
            f"  claim:   {record.claim.describe()}",
            f"  because: {record.reason}",
        ]
    epsilon = record.epsilon(record.report_delta)
    return [
        f"{record.name}: {readable(record.verdict)}{not_as_expected(record)} (p-value {record.p_value:.2g}, "
        f"risk {record.risk:.2g}{f', look {record.look}' if record.look else ''})",
        *_broken_lines(record),
        *_code_lines(record),
        f"  claim:   {record.claim.describe()}: epsilon {record.claim.epsilon_at(record.report_delta)}, "
        f"delta {at_most(record.claim.advantage)} at epsilon 0",
        *_step_lines(record),
        *([f"  seen:    {note}"] if (note := other_than_told(record)) else []),
        f"  proven:  epsilon >= {at_least(epsilon)} at delta {record.report_delta:g}, "
        f"delta >= {at_least(record.delta(0.0))} at epsilon 0, mu >= {at_least(record.mu)}",
        *_length_lines(record),
        *([f"  learned: {note}"] if (note := learned_note(record)) else []),
        *([f"  trials:  {note}"] if (note := trials_note(record)) else []),
        *([f"  spent:   {note}"] if (note := spent(record)) else []),
        _counts_line(record),
        f"  because: {record.reason}",
        *(f"  valid:   if {condition}" for condition in record.conditions),
        f"  key:     {record.key}",
        *([f"  repeat:  {NOT_REPEATABLE}"] if record.repeatable is False else []),
        *_wrong_lines(record),
        *([f"  ended:   {note}"] if (note := ended_early(record)) else []),
        *([f"  close:   {note}"] if (note := close_call(record)) else []),
        *([f"  next:    {note}"] if (note := second_pair(record)) else []),
    ]


def not_as_expected(record: AuditRecord) -> str:
    """Clause: what the suite expected, where that is another verdict than that the claim holds."""
    if record.as_expected or record.expect == "no_violation_found":
        return ""
    return ", expected a violation" if record.expect == "violation" else f", expected {readable(record.expect)}"


BRIEF = ("broken", "line", "replay", "wrong", "hint", "claim", "proven", "guesses", "because", "valid")
"""Lines of a record to print if there is room for a few."""


def brief_lines(record: AuditRecord, *, but: tuple[str, ...] = ()) -> list[str]:
    """What is violated, where, what was claimed and proven; for a violation the rest would only repeat it.

    ``but`` is what stands elsewhere.
    """
    first, *rest = record_lines(record)
    but += ("because",) if record.verdict == "violation" else ()
    kept, brief = [first], False
    for line in rest:
        label = line[2:].partition(":")[0] if line[2:3] != " " else None
        brief = brief if label is None else label in BRIEF and label not in but
        kept += [line] if brief else []
    return kept


def _counts_line(record: AuditRecord) -> str:
    """Errors of the most telling test; for one training the guessed coins."""
    if record.one_run is not None:
        return f"  guesses: {record.one_run.told(record.report_delta)}"
    best = min(record.points, key=lambda point: point.alpha_upper + point.beta_upper)
    counts = best.counts
    return (
        f"  counts:  {counted(counts.false_alarms, 'false alarm')} in {counts.trials_without:,} trials without the "
        f"record, {counted(counts.misses, 'miss', 'misses')} in {counts.trials_with:,} with it ({best.member}, "
        f"threshold {best.threshold:.4g})"
    )


def _broken_lines(record: AuditRecord) -> list[str]:
    return [] if record.violated_at is None else [f"  broken:  {record.violated_at.says}"]


def _code_lines(record: AuditRecord) -> list[str]:
    """Lines of code that look wrong, which a reader opens first; or why none was searched for."""
    with_lines = tuple(answer for answer in record.diagnoses if answer.lines)
    wrong, unread = looks_wrong(with_lines), not_followed(record.diagnoses)
    if record.verdict != "violation":
        shown_wrong = [f"  replay:  {REPLAYED}:", *(f"           {says}" for says in wrong)] if wrong else []
        return [*shown_wrong, *(f"  replay:  {says}" for says in unread)]
    return [f"  line:    {says}" for says in wrong + unread]


def _step_lines(record: AuditRecord) -> list[str]:
    """For a training, whose steps the claim must count: both numbers of steps if they differ."""
    taken, counted = record.steps, record.claim.steps
    if record.releases in ("", "update") or (taken == counted and taken is not None):
        return []
    if taken is None and counted is None:
        return ["  steps:   neither the claim nor the training says how many"]
    if counted is None:
        return [f"  steps:   {taken} taken; the claim does not say how many it counts"]
    if taken is None:
        return [f"  steps:   {unchecked_steps(record)}"]
    return [f"  steps:   {taken} taken, {counted} counted by the claim"]


def _length_lines(record: AuditRecord) -> list[str]:
    """Length of the record's gradient, if another record would show more."""
    lengths = record.gradient_lengths
    if lengths is None or not lengths.is_short:
        return []
    return [f"  record:  {lengths.describe()}. {lengths.advice()}"]


def _wrong_lines(record: AuditRecord) -> list[str]:
    """What looks wrong, after a violation; or hints."""
    if not record.diagnoses:
        return []
    tail = asked(record.diagnoses)
    answers = tuple(answer for answer in record.diagnoses if not answer.lines)
    wrong = looks_wrong(answers)
    if not any(answer.wrong for answer in answers) and any(answer.wrong for answer in record.diagnoses):
        # a line of code looks wrong and stands above
        wrong = ["the line above; the outputs show no other cause."] if tail else []
    if record.verdict != "violation":
        return [f"  hint:    {says} ({HINT})" for says in wrong]
    lines = [f"  wrong:   {says}" for says in wrong]
    lines += [f"           ({tail})"] if tail else []
    return [*lines, *(f"  untold:  {says}" for says in untold(record.diagnoses))]
