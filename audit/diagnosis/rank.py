"""Which answer to give first, and which follow from another and are not worth saying."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from audit.record.diagnosis_answer import Diagnosis

OVER = "is the noise over the sensitivity what is due?"
RECORD = "does the noise depend on the record?"
SLIGHT = 0.95

ALONE = (
    "does the record leave the outputs bounded?",
    "has every coordinate its noise?",
    "has every trial noise?",
    "is noise repeated from trial to trial?",
    "does the record move the sum along its gradient?",
    "is noise shared between coordinates?",
    "does the noise change from trial to trial?",
    "does the noise depend on the record?",
)
"""Each of these changes what every later question looks at: where it is wrong, what else is wrong follows from it."""

EXPLAINS = {
    "do batches vary as stated?": (
        "is the record taken at the stated rate?",
        "is the noise over the sensitivity what is due?",
    ),
    "is the record taken independently at every step?": ("is the noise over the sensitivity what is due?",),
    "is the record taken at the stated rate?": ("is the noise over the sensitivity what is due?",),
    "does the noise take too few values?": ("does the noise end too early?", "is the noise normal?"),
    "does the noise end too early?": ("is the noise normal?",),
}
"""What follows from the others, in the order in which they are said."""


def ranked(answers: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The most telling first: wrong answers that stand for themselves, those that follow, and the rest as asked."""
    wrong = {answer.question for answer in answers if answer.wrong and not _slight(answer)}
    slight = {answer.question for answer in answers if answer.wrong and _slight(answer)}
    if OVER not in wrong:
        wrong |= slight
    told = [answer if not answer.wrong else _explained(answer, wrong) for answer in answers]
    return tuple(sorted(told, key=_place))


def _slight(answer: Diagnosis) -> bool:
    """A noise that the record changes by a few percent, as sums that were cut do too."""
    return answer.question == RECORD and SLIGHT < (answer.estimate or 0.0) < 1 / SLIGHT


def _explained(answer: Diagnosis, wrong: set[str]) -> Diagnosis:
    before = ALONE[: ALONE.index(answer.question)] if answer.question in ALONE else ALONE
    if answer.question not in wrong:
        return dataclasses.replace(answer, follows=OVER)
    causes = [*before, *(cause for cause, caused in EXPLAINS.items() if answer.question in caused)]
    return dataclasses.replace(answer, follows=next((cause for cause in causes if cause in wrong), ""))


def _place(answer: Diagnosis) -> int:
    return 2 if not answer.wrong else 1 if answer.follows else 0
