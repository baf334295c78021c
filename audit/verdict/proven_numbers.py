"""The numbers that an audit proves, each at its own share of the risk."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import numpy as np

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu, Question
from audit.bounds.clopper_pearson import ErrorCounts, clopper_pearson_upper
from audit.bounds.implied import implied
from audit.bounds.inversion import inversion, joint_bound
from audit.risk import Statement
from audit.verdict.judgement import Against
from audit.verdict.violated import ViolatedAt, by_number
from guarantees.claim import Claim
from guarantees.laws.margins import delta_error, most_epsilon

NUMBER = "the proven {} exceeds what the claim promises."


def questions(delta: float) -> dict[Statement, Question]:
    """The numbers that an audit states: epsilon at ``delta``, delta at epsilon 0, and mu if asked."""
    return {"epsilon": EpsilonAt(delta=delta), "delta": DeltaAt(epsilon=0.0), "mu": Mu()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProvenNumber:
    """A lower bound on one number: epsilon at a delta, delta at an epsilon, or mu."""

    name: str
    given: float | None
    """Delta, if the number is an epsilon; epsilon, if it is a delta."""
    at_least: float
    risk: float
    """Share of the audit's risk, fixed before the trials, plus what a verdict that refuted the claim passed on."""
    rectangle: float
    """What Clopper-Pearson limits on both error rates would prove at the same share."""


def stated(numbers: Iterable[ProvenNumber], question: Question) -> float:
    """The best bound on a number that proven numbers give, directly or by what they imply.

    They hold together, so the largest of what follows from them costs no risk. [docs/validity.md, section 12]
    """
    return max((_said(number, question) for number in numbers), default=0.0)


def _said(number: ProvenNumber, question: Question) -> float:
    if number.at_least <= 0:
        # an epsilon of 0 at some delta says nothing, not that delta at 0 is so large
        return 0.0
    direct = number.at_least if number.name == question.name and number.given == _given(question) else 0.0
    if number.given is None:
        # that no smaller mu holds says nothing of any one epsilon
        return direct
    pair = (number.at_least, number.given) if number.name == "epsilon" else (number.given, number.at_least)
    return max(direct, implied(question, epsilon=pair[0], delta=pair[1]))


def prove(tests: tuple[ErrorCounts, ...], question: Question, *, risk: float, passed_on: float = 0.0) -> ProvenNumber:
    """The best bound that tests fixed beforehand prove; they divide the share evenly. [docs/validity.md, section 12]

    ``passed_on`` is what a verdict that refuted its claim adds to the share.
    """
    each, more = risk / len(tests), passed_on / len(tests)
    return ProvenNumber(
        name=question.name,
        given=_given(question),
        at_least=max(joint_bound(counts, question, risk=each, passed_on=more) for counts in tests),
        risk=risk + passed_on,
        rectangle=max(_rectangle(counts, question, risk=each + more) for counts in tests),
    )


def without_errors(
    counts: ErrorCounts, question: Question, number: ProvenNumber, *, share: float, tests: int = 1
) -> float:
    """The bound on a number that these trials would prove if the test never erred: the most that they can.

    ``share`` is the number's own of the budget; what it has beyond was passed on to it, as ``prove`` takes it.
    """
    clean = dataclasses.replace(counts, false_alarms=0, misses=0)
    return joint_bound(clean, question, risk=share / tests, passed_on=max(0.0, number.risk - share) / tests)


def against(
    claim: Claim, tests: tuple[ErrorCounts, ...], question: Question, *, risk: float, passed_on: float = 0.0
) -> Against:
    """What the tests of one number say against the claim: the p-value is at most ``risk`` iff the bound exceeds it.

    The order of the counts is that of the bound at ``risk``, so that verdict and bound never contradict each other.
    What was passed on to the bound is in what it tells of the violation, not in the p-value.
    """
    reason, promised = NUMBER.format(question.name), promise(claim, question)
    where = functools.partial(_exceeded, tests, question, promised, risk=risk, passed_on=passed_on)
    if not np.isfinite(promised) or promised >= question.largest:
        return Against(reason=reason, p_value=1.0, risk=risk, at=where, proves="number")
    each = risk / len(tests)
    found = [inversion(counts, question, risk=each) for counts in tests]
    smallest = min(1.0 if test is None else test.p_value(promised) for test in found)
    return Against(reason=reason, p_value=min(1.0, smallest * len(tests)), risk=risk, at=where, proves="number")


def _exceeded(
    tests: tuple[ErrorCounts, ...], question: Question, promised: float, *, risk: float, passed_on: float
) -> ViolatedAt:
    """The proven number beside what the claim promises for it."""
    proven = prove(tests, question, risk=risk, passed_on=passed_on)
    assert proven.name in ("epsilon", "delta")
    assert proven.given is not None
    return by_number(proven.name, proven.given, at_least=proven.at_least, claimed=promised)


def promise(claim: Claim, question: Question) -> float:
    """The largest value of a number that a claim allows, numerical error included; infinite if it promises nothing."""
    if isinstance(question, EpsilonAt):
        return most_epsilon(claim, question.delta, claim.error)
    if isinstance(question, DeltaAt):
        return float(claim.delta(question.epsilon) + delta_error(question.epsilon, claim.error))
    return float("inf")


def _given(question: Question) -> float | None:
    if isinstance(question, EpsilonAt):
        return question.delta
    return question.epsilon if isinstance(question, DeltaAt) else None


def _rectangle(counts: ErrorCounts, question: Question, *, risk: float) -> float:
    alpha = clopper_pearson_upper(counts.false_alarms, counts.trials_without, risk=risk / 2)
    beta = clopper_pearson_upper(counts.misses, counts.trials_with, risk=risk / 2)
    return float(question.through(alpha, beta))
