"""Reuse the thresholds and the grid of an earlier audit, so that two audits share a test."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from audit.goal import Goal
from audit.policies.methods import ByMethod
from audit.policies.policy import ANY_TARGET, TARGETS, Cut, FitScores, Method, Target, Test
from audit.risk import RiskBudget
from guarantees.checks import require
from guarantees.trade_off import TradeOff


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reused(ByMethod):
    """A test that an earlier audit fixed on other trials, and so before these."""

    cuts: tuple[Cut, ...]
    edges: np.ndarray
    method: Method = "joint"
    kind: str = "reused"

    def __post_init__(self):
        require("cuts", len(self.cuts) > 0, "at least one", self.cuts)

    @property
    def stated(self) -> tuple[Target, ...]:
        """The targets that the cuts were fixed for, or the default ones if there is a cut for any target."""
        named = {cut.target for cut in self.cuts}
        return TARGETS if ANY_TARGET in named else tuple(t for t in (*TARGETS, "mu") if t in named)  # type: ignore[misc]

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """Fix the same cuts, at even shares of this audit's risk or of what other questions leave."""
        budget = self.budget((), goal)
        cuts = self.settle((), self.edges, budget)
        return Test(cuts=cuts, edges=self.edges, fit_trials=0, budget=budget)

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """Give all cuts their shares, whichever of them a record has."""
        del cuts
        return super().settle(self.cuts, edges, budget)

    @classmethod
    def recorded(cls, words: Mapping[str, Any], edges: np.ndarray) -> Reused:
        """With the grid's own edges, of which a record's words hold a digest."""
        cuts = tuple(Cut(**cut) for cut in words["cuts"])
        return cls(**{**words, "cuts": cuts, "edges": edges})
