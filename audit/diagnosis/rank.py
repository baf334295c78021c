"""Which answer to give first, and which follow from another and are not worth saying."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from audit.diagnosis.cause_sentences import consequence, sentence
from audit.record.diagnosis_answer import LINE, Diagnosis

SLIGHT = 0.95

ALONE = (
    "bounded",
    "bare",
    "silent",
    "repeated",
    "direction",
    "shared",
    "noise_and_batches",
    "scale_by_trial",
    "scale_by_record",
)
"""Each of these changes what every later question looks at: where it is wrong, what else is wrong follows from it."""

EQUAL_FIRST = ("bounded", "repeated", *(code for code in ALONE if code not in ("bounded", "repeated")))
"""The same where trials are equal."""
NO_NOISE = 1e-3
"""Share of the others' noise below which a coordinate has none."""
KEPT_STATE = "kept_state"

EXPLAINS = {
    "batches": ("rate", "ratio"),
    "steps": ("ratio",),
    "rate": ("ratio",),
    "grain": ("tails", "normal", "laplace"),
    "tails": ("normal", "laplace"),
    "laplace": ("l1_ratio",),
}
"""What follows from the others, in the order in which they are said."""

NO_FRESH_NOISE = (f"{LINE}key_used_twice", f"{LINE}released_without_noise")
"""Lines after which what varies from trial to trial is not the noise that the questions take it for."""
ANOTHER_RATE = "another_rate"
OF_BATCHES = (ANOTHER_RATE, "weight_redrawn", "counted_again")
"""Causes that a replay of few batches leaves open; the likelier first."""
AS_STATED = "; in a replay of the code one release has the stated noise over what the record moves it by"
WITHDRAWN = "not judged: a replay of the code found noise that is missing or used again, and this question takes it for"
WITHDRAWN += " fresh noise."


def ranked(answers: Sequence[Diagnosis], *, too_little: bool = False) -> tuple[Diagnosis, ...]:
    """The most telling first: wrong answers that stand for themselves, those that follow, and the rest as asked.

    ``too_little``: the noise over the sensitivity is less than a scale that depends on the record explains.
    """
    wrong = {answer.code for answer in answers if answer.wrong and not _slight(answer)}
    slight = {answer.code for answer in answers if answer.wrong and _slight(answer)}
    if "ratio" not in wrong:
        wrong |= slight
    equal = any(answer.code == "repeated" and answer.wrong and KEPT_STATE not in answer.causes for answer in answers)
    told = [answer if not answer.wrong else _explained(answer, wrong, equal, too_little) for answer in answers]
    return tuple(sorted(told, key=_place))


def withdraw_right_answers(answers: Sequence[Diagnosis], lines: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The answers to outputs, none of them 'right' where a line says that the noise is not fresh; estimates go."""
    if not any(line.code in NO_FRESH_NOISE for line in lines):
        return tuple(answers)
    return tuple(
        dataclasses.replace(answer, says=WITHDRAWN, estimate=None, interval=None)
        if answer.risk > 0 and not answer.wrong
        else answer
        for answer in answers
        if answer.code not in ("scale_without", "scale_with")
    )


def blame_sampling(answers: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The answers where a replay has measured noise and sensitivity as stated: how records are taken is what is left.

    It looks at few batches, so that a record which some of them hold twice stays among the causes.
    """
    return tuple(_of_batches(answer) if ANOTHER_RATE in answer.causes else answer for answer in answers)


def _of_batches(answer: Diagnosis) -> Diagnosis:
    left = tuple(cause for cause in OF_BATCHES if cause in answer.causes)
    measured = f"{answer.says.removesuffix(sentence('', answer.causes))}{AS_STATED}"
    return dataclasses.replace(answer, says=sentence(measured, left), causes=left)


def _slight(answer: Diagnosis) -> bool:
    """A noise that the record changes by a few percent, as sums that were cut do too."""
    return answer.code == "scale_by_record" and SLIGHT < (answer.estimate or 0.0) < 1 / SLIGHT


def _explained(answer: Diagnosis, wrong: set[str], equal: bool, too_little: bool) -> Diagnosis:
    # equal trials are few draws of noise, of which some coordinate has less by chance; no noise at all is no chance
    order = EQUAL_FIRST if equal else ALONE
    if answer.code == "bare" and equal and (answer.estimate or 0.0) < NO_NOISE:
        return answer
    before = order[: order.index(answer.code)] if answer.code in order else order
    if answer.code == "scale_by_trial":
        # it is asked of the trials that have noise
        before = tuple(code for code in before if code != "silent")
    if answer.code == "ratio" and too_little:
        before = tuple(code for code in before if code != "scale_by_record")
    if answer.code not in wrong:
        return consequence(answer, "ratio")
    causes = [*before, *(cause for cause, caused in EXPLAINS.items() if answer.code in caused)]
    first = next((cause for cause in causes if cause in wrong), "")
    return consequence(answer, first) if first else answer


def _place(answer: Diagnosis) -> int:
    return 2 if not answer.wrong else 1 if answer.follows else 0
