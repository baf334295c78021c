"""Every threshold of the grid at once."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.band import middle_share, simultaneous_band
from audit.bounds.clopper_pearson import Limits
from audit.goal import Goal
from audit.policies.candidates import grid, known_or_piloted
from audit.policies.policy import BAND, Cut, Finding, FitScores, Policy, Test, error_counts
from audit.policies.rectangles import first_band
from audit.risk import RiskBudget
from audit.trials.source import Tally
from audit.verdict.judgement import judge
from guarantees.checks import checked
from guarantees.trade_off import TradeOff


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Simultaneous(Policy):
    """Every threshold of the grid at once: a band pays for the choice.

    Its bounds are not as tight as those at one threshold that was fixed beforehand.

    Examples:
      >>> import audit
      >>> audit.Simultaneous().kind
      'simultaneous'
    """

    kind: str = "simultaneous"

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """One cut per edge, judged all together: the risk of each is that of its member's whole band."""
        candidates, fit_trials = known_or_piloted(curve, fit_scores)
        edges = grid(candidates)
        budget = self.budget((), goal)
        return Test(cuts=self.settle((), edges, budget), edges=edges, fit_trials=fit_trials, budget=budget)

    def budget(self, cuts: tuple[Cut, ...], goal: Goal) -> RiskBudget:
        """All of it on the bands."""
        del cuts
        return RiskBudget(risk=goal.risk, band=goal.risk)

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """All edges, whichever of them a record kept."""
        del cuts
        share = budget.band / len(edges)
        return tuple(
            Cut(target=BAND, member=m, threshold=float(t), rejects="above", risk=share)
            for m, row in enumerate(edges)
            for t in row
        )

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """By the bands of all members; a band spreads its own share over all thresholds."""

        def points_at(risk: float) -> tuple[Limits, ...]:
            rows = zip(test.edges, tally.without, tally.with_record, strict=True)
            share = risk / len(test.edges)
            return tuple(point for row in rows for point in simultaneous_band(*row, risk=share).points)

        risk, share = test.budget.band, max(cut.risk for cut in test.cuts) / test.budget.band
        judgement = judge(
            points_at,
            goal.claim,
            risk=risk,
            largest_share=share * middle_share(tally.trials_per_side, risk=risk * share),
            delta=goal.delta,
            trials_per_side=tally.trials_per_side,
        )
        return Finding(
            judgement=judgement,
            counts=error_counts(tally, test),
            points=points_at(risk),
            # one of the bands that were judged
            band=first_band(tally, test, risk=risk / len(test.edges)),
            band_risk=risk / len(test.edges),
        )
