"""Thresholds that the user names."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.policies.candidates import grid, known_or_piloted
from audit.policies.policy import Cut, Finding, FitScores, Policy, Test
from audit.policies.rectangles import judge_by_rectangles
from audit.trials.source import Tally
from audit.verdict.goal import Goal
from guarantees.checks import require
from guarantees.trade_off import TradeOff


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed(Policy):
    """Thresholds named by the user before any trial; they share the risk evenly."""

    thresholds: tuple[float, ...]
    kind: str = "fixed"

    def __post_init__(self):
        require("thresholds", len(self.thresholds) > 0, "at least one number", self.thresholds)
        require("thresholds", bool(np.isfinite(self.thresholds).all()), "finite", self.thresholds)

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """The thresholds, for every member; theory or a pilot only lays out the grid around them."""
        candidates, fit_trials = known_or_piloted(curve, fit_scores)
        share = goal.risk / (candidates.members * len(self.thresholds))
        cuts = tuple(
            Cut(target="fixed", member=m, threshold=float(np.float32(t)), rejects="above", risk=share)
            for m in range(candidates.members)
            for t in self.thresholds
        )
        return Test(cuts=cuts, edges=grid(candidates, cuts), fit_trials=fit_trials)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """By the rectangles of all thresholds."""
        return judge_by_rectangles(tally, test, goal)
