"""Judge by Clopper-Pearson rectangles: every cut at its own share of the risk, half on each error rate."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.band import simultaneous_band, wider_band
from audit.bounds.clopper_pearson import Limits
from audit.bounds.points import rectangles
from audit.goal import Goal
from audit.policies.policy import Cut, Finding, Test, error_counts
from audit.risk import RiskBudget, on_points
from audit.trials.source import Tally
from audit.verdict.judgement import Against, against_band, against_points, judge_statements
from guarantees.claim import Claim

FOR_THE_BAND = 0.05
"""Share of the risk for the band over all thresholds, as much as with the joint test."""


def even_share(risk: float, cuts: int) -> float:
    """Risk of each of several rectangles, beside the band."""
    return risk * (1 - FOR_THE_BAND) / cuts


def even_budget(risk: float) -> RiskBudget:
    """Budget of rectangles and the band, however many rectangles there are."""
    return on_points(risk, [even_share(risk, 1)])


def with_even(cuts: tuple[Cut, ...], budget: RiskBudget) -> tuple[Cut, ...]:
    """The cuts with even shares of the risk, beside the band."""
    return tuple(dataclasses.replace(cut, risk=even_share(budget.risk, len(cuts))) for cut in cuts)


def judge_by_rectangles(tally: Tally, test: Test, goal: Goal) -> Finding:
    """Judge by the rectangles and the band: is one of their points below the claim?

    The band has what the cuts leave of the budget; if they leave nothing, it consists of their points.
    """
    budget = test.budget
    counts = error_counts(tally, test)
    risks, on_alpha = (
        np.array(column) for column in zip(*((cut.risk, cut.on_alpha) for cut in test.cuts), strict=True)
    )
    spent = float(risks.sum())

    def points_at(risk: float) -> tuple[Limits, ...]:
        return rectangles(counts, risks * (risk / spent), on_alpha=on_alpha)

    points = points_at(spent)
    statements = [against_points(points_at, goal.claim, risk=spent)]
    band, band_risk = points, spent
    if budget.band > 0:
        band, band_risk = first_band(tally, test, risk=budget.band), budget.band
        statements.append(against_first_band(band, tally, test, goal.claim, risk=budget.band))
    judgement = judge_statements(
        tuple(statements),
        goal.claim,
        risk=budget.risk,
        deciding=float(risks.max()),
        delta=goal.delta,
        trials_per_side=tally.trials_per_side,
        jointly=False,
    )
    return Finding(judgement=judgement, counts=counts, points=points, band=band, band_risk=band_risk)


def first_band(tally: Tally, test: Test, *, risk: float) -> tuple[Limits, ...]:
    """Band over all thresholds of the first member."""
    return simultaneous_band(test.edges[0], tally.without[0], tally.with_record[0], risk=risk).points


def against_first_band(band: tuple[Limits, ...], tally: Tally, test: Test, claim: Claim, *, risk: float) -> Against:
    """The statement of the first member's band, at its share of the risk, against the claim."""

    def wider_at(risk: float) -> tuple[Limits, ...]:
        return wider_band(test.edges[0], tally.without[0], tally.with_record[0], risk=risk).points

    return against_band(band, wider_at, claim, risk=risk)
