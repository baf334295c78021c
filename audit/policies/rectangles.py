"""Judging by Clopper-Pearson rectangles: every cut at its own share of the risk, half on each error rate."""

from __future__ import annotations

import numpy as np

from audit.bounds.band import simultaneous_band
from audit.bounds.clopper_pearson import Limits
from audit.bounds.points import rectangles
from audit.goal import Goal
from audit.policies.policy import Finding, Test, error_counts
from audit.trials.source import Tally
from audit.verdict.judgement import judge


def judge_by_rectangles(tally: Tally, test: Test, goal: Goal) -> Finding:
    """The verdict of the rectangles: is one of their corners below the claim?"""
    counts = error_counts(tally, test)
    risks, on_alpha = (
        np.array(column) for column in zip(*((cut.risk, cut.on_alpha) for cut in test.cuts), strict=True)
    )

    def points_at(risk: float) -> tuple[Limits, ...]:
        return rectangles(counts, risks * (risk / goal.risk), on_alpha=on_alpha)

    judgement = judge(
        points_at,
        goal.claim,
        risk=goal.risk,
        largest_share=float(risks.max()) / goal.risk,
        delta=goal.delta,
        trials_per_side=tally.trials_per_side,
    )
    band = first_band(tally, test, risk=goal.risk)
    return Finding(judgement=judgement, counts=counts, points=points_at(goal.risk), band=band, band_risk=goal.risk)


def first_band(tally: Tally, test: Test, *, risk: float) -> tuple[Limits, ...]:
    """The band over all thresholds of the first member, for plots: it spends a risk of its own."""
    return simultaneous_band(test.edges[0], tally.without[0], tally.with_record[0], risk=risk).points
