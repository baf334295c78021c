"""Judging statement by statement: the verdict and every number by both counts of its own test, at its own share."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.points import rectangles
from audit.goal import Goal
from audit.policies.policy import ANY_TARGET, Cut, Finding, Target, Test, error_counts
from audit.policies.rectangles import against_first_band, first_band
from audit.risk import RiskBudget, Statement
from audit.trials.source import Tally
from audit.verdict.judgement import Against, against_jointly, against_points, judge_statements
from audit.verdict.proven_numbers import against, prove, questions

NUMBERS: tuple[Statement, ...] = ("epsilon", "delta", "mu")


def with_even_points(cuts: tuple[Cut, ...], budget: RiskBudget) -> tuple[Cut, ...]:
    """Every cut with an even part of what the budget has for points."""
    return tuple(dataclasses.replace(cut, risk=budget.points / len(cuts)) for cut in cuts)


def tests_of(target: Target | Statement, test: Test, counts: tuple[ErrorCounts, ...]) -> tuple[ErrorCounts, ...]:
    """The counts of the cuts that were fixed for a target, or for any."""
    return tuple(c for cut, c in zip(test.cuts, counts, strict=True) if cut.target in (target, ANY_TARGET))


def judge_by_statements(tally: Tally, test: Test, goal: Goal) -> Finding:
    """The verdict and the numbers by inversions of the joint test; rectangles and a band for every other question.

    All of it holds together at the budget's risk. [docs/validity.md, section 12]
    """
    budget, share = test.budget, test.budget.shares
    counts = error_counts(tally, test)
    risks = np.array([cut.risk for cut in test.cuts])
    on_alpha = np.array([cut.on_alpha for cut in test.cuts])
    asked = questions(goal.delta)
    stated: list[Statement] = [name for name in NUMBERS if name in share]

    def points_at(risk: float) -> tuple[Limits, ...]:
        return rectangles(counts, risks * (risk / risks.sum()), on_alpha=on_alpha)

    said: list[Against] = []
    if "verdict" in share:
        own = tests_of("verdict", test, counts)
        said.append(against_jointly(own, goal.claim, risk=budget.verdict, for_excess=budget.for_excess))
    gained = budget.passed_on(refuted=any(one.refutes for one in said))
    numbers = []
    for name in stated:
        tests, gain = tests_of(name, test, counts), gained.get(name, 0.0)
        said.append(against(goal.claim, tests, asked[name], risk=share[name], passed_on=gain))
        numbers.append(prove(tests, asked[name], risk=share[name], passed_on=gain))
    band = first_band(tally, test, risk=budget.band)
    said.append(against_points(points_at, goal.claim, risk=float(risks.sum())))
    said.append(against_first_band(band, tally, test, goal.claim, risk=budget.band))
    # A number's own test reads one allowance of the claim; without the joint test only rectangles read the whole curve.
    jointly = "verdict" in share
    judgement = judge_statements(
        tuple(said),
        goal.claim,
        risk=budget.risk,
        deciding=share["verdict"] / len(tests_of("verdict", test, counts)) if jointly else float(risks.max()),
        delta=goal.delta,
        trials_per_side=tally.trials_per_side,
        jointly=jointly,
    )
    return Finding(
        judgement=judgement,
        counts=counts,
        points=points_at(float(risks.sum())),
        band=band,
        band_risk=budget.band,
        numbers=tuple(numbers),
    )
