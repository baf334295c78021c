"""Thresholds that the user states."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.goal import Goal
from audit.policies.candidates import grid, known_or_piloted
from audit.policies.methods import ByMethod
from audit.policies.policy import ANY_TARGET, Cut, FitScores, Method, Test
from audit.risk import RiskBudget
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed(ByMethod):
    """Thresholds that you name before any trial; they share every statement's risk evenly.

    Not valid for thresholds that were chosen on the trials that they judge.

    Args:
      thresholds: scores above one of them say 'with'.
      method: ``"joint"`` reads both error counts together, ``"rectangle"`` bounds each by Clopper-Pearson.

    Raises:
      ValueError: there is no threshold, one is not finite, or the method is unknown.

    Examples:
      >>> import audit
      >>> audit.Fixed(thresholds=(0.0,)).kind
      'fixed'
    """

    thresholds: tuple[float, ...]
    method: Method = "joint"
    kind: str = "fixed"

    def __post_init__(self):
        require("thresholds", len(self.thresholds) > 0, "at least one number", self.thresholds)
        require("thresholds", bool(np.isfinite(self.thresholds).all()), "finite", self.thresholds)

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """Fix the thresholds for every member; theory or a pilot only lays out the grid around them."""
        candidates, fit_trials = known_or_piloted(curve, fit_scores)
        edges, budget = grid(candidates, self._cuts(candidates.members)), self.budget((), goal)
        return Test(cuts=self.settle((), edges, budget), edges=edges, fit_trials=fit_trials, budget=budget)

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """Give every threshold of every member its share, whichever of them a record has."""
        del cuts
        return super().settle(self._cuts(len(edges)), edges, budget)

    def _cuts(self, members: int) -> tuple[Cut, ...]:
        """A cut for every threshold and member."""
        return tuple(
            Cut(target=ANY_TARGET, member=member, threshold=float(np.float32(threshold)), rejects="above", risk=0.0)
            for member in range(members)
            for threshold in self.thresholds
        )
