"""Judging by Clopper-Pearson rectangles: every cut at its own share of the risk, half on each error rate."""

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
"""The part of the risk that is left to the band over all thresholds, as much as beside the joint test."""


def even_share(risk: float, cuts: int) -> float:
    """What each of so many rectangles has of the risk, beside the band."""
    return risk * (1 - FOR_THE_BAND) / cuts


def even_budget(risk: float) -> RiskBudget:
    """The budget of the rectangles, however many there are, and the band."""
    return on_points(risk, [even_share(risk, 1)])


def with_even(cuts: tuple[Cut, ...], budget: RiskBudget) -> tuple[Cut, ...]:
    """Every cut with an even share of the risk, beside the band."""
    return tuple(dataclasses.replace(cut, risk=even_share(budget.risk, len(cuts))) for cut in cuts)


def judge_by_rectangles(tally: Tally, test: Test, goal: Goal) -> Finding:
    """The verdict of the rectangles and of the band: does one of their points lie below the claim?

    The band has what the cuts leave of the budget. Where they leave nothing it is their points.
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
    said = [against_points(points_at, goal.claim, risk=spent)]
    band, band_risk = points, spent
    if budget.band > 0:
        band, band_risk = first_band(tally, test, risk=budget.band), budget.band
        said.append(against_first_band(band, tally, test, goal.claim, risk=budget.band))
    judgement = judge_statements(
        tuple(said),
        goal.claim,
        risk=budget.risk,
        deciding=float(risks.max()),
        delta=goal.delta,
        trials_per_side=tally.trials_per_side,
        jointly=False,
    )
    return Finding(judgement=judgement, counts=counts, points=points, band=band, band_risk=band_risk)


def first_band(tally: Tally, test: Test, *, risk: float) -> tuple[Limits, ...]:
    """The band over all thresholds of the first member."""
    return simultaneous_band(test.edges[0], tally.without[0], tally.with_record[0], risk=risk).points


def against_first_band(band: tuple[Limits, ...], tally: Tally, test: Test, claim: Claim, *, risk: float) -> Against:
    """What the first member's band at its share of the risk says against the claim."""

    def wider_at(risk: float) -> tuple[Limits, ...]:
        return wider_band(test.edges[0], tally.without[0], tally.with_record[0], risk=risk).points

    return against_band(band, wider_at, claim, risk=risk)
