"""Scores that somebody gave, in words: how many were judged, what others were for, and what somebody vouches for."""

from __future__ import annotations

from collections.abc import Iterable

from audit.record.record import AuditRecord


def judged_scores(record: AuditRecord) -> str:
    """How many given scores were judged, without the record and with it, and what the others were for."""
    (zero, one), part = record.judged, record.scores
    assert part is not None
    learned = sum(part.learned_from or ())
    chose = record.fit_trials - learned
    others = [f"{learned:,} others learned a score"] if learned else []
    others += [f"{chose:,}{'' if learned else ' others'} chose thresholds"] if chose else []
    said = f"{zero:,} {part.what} without the record and {one:,} with it"
    return "; ".join([said, *([" and ".join(others)] if others else [])])


def vouched(record: AuditRecord) -> str:
    """The conditions of a record as one sentence; empty where our own code drew the trials."""
    said = [f"({number}) {condition}" for number, condition in enumerate(record.conditions, 1)]
    return f"The bounds hold if {'; '.join(said)}." if said else ""


def conditions_once(told: Iterable[str], conditions: Iterable[str]) -> list[str]:
    """Paragraphs, one a record, in which conditions that an earlier one states word by word are not said again."""
    said, stated = [], set[str]()
    for paragraph, condition in zip(told, conditions, strict=True):
        again = condition in stated - {""}
        said.append(paragraph.replace(condition, "The bounds hold under the same conditions.") if again else paragraph)
        stated.add(condition)
    return said


def source(record: AuditRecord) -> str:
    """Where given numbers came from; arrays that were passed in Python have no files."""
    files = record.mechanism.parameters
    named = f"{files.get('without')} without the record, {files.get('with')} with it"
    return named if files else "arrays passed in Python"
