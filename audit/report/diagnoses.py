"""Diagnoses as reports tell them: what looks wrong, and how much was asked."""

from __future__ import annotations

from audit.record.diagnosis_answer import NOT_ASKED, Diagnosis


def looks_wrong(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """What every answer 'wrong' says that follows from no other; where there is none, that, if anything was asked."""
    wrong = [answer.says for answer in diagnoses if answer.wrong and not answer.follows]
    return wrong or (["none of the questions found anything wrong."] if asked(diagnoses) else [])


def remarks(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """Statements that are no tests: which direction leaks more."""
    return [d.says for d in diagnoses if d.risk == 0 and d.code != NOT_ASKED]


def asked(diagnoses: tuple[Diagnosis, ...]) -> str:
    """How many questions were asked, at what risk together."""
    tests = [answer for answer in diagnoses if answer.risk > 0]
    if not tests:
        return ""
    return f"{len(tests)} questions asked of fresh outputs, at risk {sum(answer.risk for answer in tests):.3g} together"
