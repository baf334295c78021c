"""Given scores in words: how many were judged, what the others were for, and what the user vouches for."""

from __future__ import annotations

from collections.abc import Iterable

from audit.record.record import AuditRecord


def judged_scores(record: AuditRecord) -> str:
    """How many given scores were judged, without and with the record, and what the others were for."""
    (zero, one), part = record.judged, record.scores
    assert part is not None
    learned = sum(part.learned_from or ())
    chose = record.fit_trials - learned
    others = [f"{learned:,} others learned a score"] if learned else []
    others += [f"{chose:,}{'' if learned else ' others'} chose thresholds"] if chose else []
    judged = f"{zero:,} {part.what} without the record and {one:,} with it"
    return "; ".join([judged, *([" and ".join(others)] if others else [])])


def vouched(record: AuditRecord) -> str:
    """The conditions of a record in one sentence; empty if our own code drew the trials."""
    conditions = [f"({number}) {condition}" for number, condition in enumerate(record.conditions, 1)]
    return f"The bounds hold if {'; '.join(conditions)}." if conditions else ""


def conditions_once(paragraphs: Iterable[str], conditions: Iterable[str]) -> list[str]:
    """Paragraphs, one per record; conditions that an earlier one states word by word are left out."""
    shown, stated = [], set[str]()
    for paragraph, condition in zip(paragraphs, conditions, strict=True):
        again = condition in stated - {""}
        shown.append(paragraph.replace(condition, "The bounds hold under the same conditions.") if again else paragraph)
        stated.add(condition)
    return shown


def source(record: AuditRecord) -> str:
    """Where given numbers came from; arrays passed in Python have no files."""
    files = record.mechanism.parameters
    named = f"{files.get('without')} without the record, {files.get('with')} with it"
    return named if files else "arrays passed in Python"
