"""Which answer to give first, and which only follow from another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from audit.diagnosis.cause_sentences import consequence, sentence
from audit.record.diagnosis_answer import LINE, Diagnosis

SLIGHT = 0.95
"""Ratio of noise scales, or its inverse, within which the record changes the noise only slightly."""

FUNDAMENTAL = (
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
"""Each changes what all later questions measure: if it is wrong, other wrong answers follow from it."""

EQUAL_FIRST = ("bounded", "repeated", *(code for code in FUNDAMENTAL if code not in ("bounded", "repeated")))
"""Order of the fundamental answers where trials are equal."""
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
"""Codes of answers that follow from the answer with the code at the left, tried in this order."""

NO_FRESH_NOISE = (f"{LINE}key_used_twice", f"{LINE}released_without_noise")
"""Findings after which what varies between trials is not the fresh noise that the questions assume."""
ANOTHER_RATE = "another_rate"
SAMPLING_CAUSES = (ANOTHER_RATE, "weight_redrawn", "counted_again")
"""Causes that a replay of a few batches leaves open, the likelier first."""
AS_STATED = "; in a replay of the code one release has the stated ratio of noise to what the record changes"
WITHDRAWN = "not judged: this question assumes fresh noise, and a replay of the code found noise that is missing or"
WITHDRAWN += " used again."


def ranked(answers: Sequence[Diagnosis], *, too_little: bool = False) -> tuple[Diagnosis, ...]:
    """Sort the answers: wrong ones on their own, wrong ones that follow from others, then the rest as asked.

    ``too_little`` says that the noise over the sensitivity is smaller than a scale that depends on the record explains.
    """
    wrong = {answer.code for answer in answers if answer.wrong and not _slight(answer)}
    slight = {answer.code for answer in answers if answer.wrong and _slight(answer)}
    if "ratio" not in wrong:
        wrong |= slight
    trials_repeat = any(
        answer.code == "repeated" and answer.wrong and KEPT_STATE not in answer.causes for answer in answers
    )
    reworded = [
        answer if not answer.wrong else _explained(answer, wrong, trials_repeat, too_little) for answer in answers
    ]
    return tuple(sorted(reworded, key=_place))


def withdraw_right_answers(answers: Sequence[Diagnosis], lines: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Withdraw answers that find nothing wrong, and estimates, where a finding says that noise is not fresh."""
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
    """Reword answers where a replay measured noise and sensitivity as stated: only the sampling of records is left.

    The replay sees few batches, so that a record which some of them hold twice stays among the causes.
    """
    return tuple(_with_sampling_causes(answer) if ANOTHER_RATE in answer.causes else answer for answer in answers)


def _with_sampling_causes(answer: Diagnosis) -> Diagnosis:
    """The answer with only causes that lie in the sampling."""
    causes = tuple(cause for cause in SAMPLING_CAUSES if cause in answer.causes)
    measured = f"{answer.says.removesuffix(sentence('', answer.causes))}{AS_STATED}"
    return dataclasses.replace(answer, says=sentence(measured, causes), causes=causes)


def _slight(answer: Diagnosis) -> bool:
    """Whether the record changes the noise by only a few percent, as sums that are cut after the noise do too."""
    return answer.code == "scale_by_record" and SLIGHT < (answer.estimate or 0.0) < 1 / SLIGHT


def _explained(answer: Diagnosis, wrong: set[str], trials_repeat: bool, too_little: bool) -> Diagnosis:
    # few draws of noise leave some coordinate with less by chance, but with none at all only by fault
    """Reword a wrong answer as a consequence if another wrong one explains it."""
    order = EQUAL_FIRST if trials_repeat else FUNDAMENTAL
    if answer.code == "bare" and trials_repeat and (answer.estimate or 0.0) < NO_NOISE:
        return answer
    before = order[: order.index(answer.code)] if answer.code in order else order
    if answer.code == "scale_by_trial":
        # this question only looks at trials that have noise
        before = tuple(code for code in before if code != "silent")
    if answer.code == "ratio" and too_little:
        before = tuple(code for code in before if code != "scale_by_record")
    if answer.code not in wrong:
        return consequence(answer, "ratio")
    causes = [*before, *(cause for cause, caused in EXPLAINS.items() if answer.code in caused)]
    first = next((cause for cause in causes if cause in wrong), "")
    return consequence(answer, first) if first else answer


def _place(answer: Diagnosis) -> int:
    """Sort key of an answer."""
    return 2 if not answer.wrong else 1 if answer.follows else 0
