"""The thresholds and the grid of an earlier audit, so that two audits have a test in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from audit.bounds.shares import shares
from audit.goal import Goal
from audit.policies.policy import ANY_TARGET, TARGETS, Cut, Finding, FitScores, Method, Policy, Target, Test
from audit.policies.rectangles import judge_by_rectangles, with_even
from audit.policies.statements import judge_by_statements, with_rest
from audit.trials.source import Tally
from guarantees.checks import require
from guarantees.trade_off import TradeOff


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reused(Policy):
    """A test that an earlier audit fixed. Its trials were others, so it is fixed before these."""

    cuts: tuple[Cut, ...]
    edges: np.ndarray
    method: Method = "joint"
    kind: str = "reused"

    def __post_init__(self):
        require("cuts", len(self.cuts) > 0, "at least one", self.cuts)

    @property
    def _targets(self) -> tuple[Target, ...]:
        """What the cuts were fixed for; what was fixed for nothing in particular states the usual."""
        named = {cut.target for cut in self.cuts}
        return TARGETS if ANY_TARGET in named else tuple(t for t in (*TARGETS, "mu") if t in named)  # type: ignore[misc]

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """The cuts as they are, at even shares of this audit's risk, or with what other questions leave."""
        return Test(cuts=self.settle(self.cuts, self.edges, goal), edges=self.edges, fit_trials=0)

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, goal: Goal) -> tuple[Cut, ...]:
        """Even shares of this audit's risk, or of what other questions leave."""
        del edges
        if self.method == "rectangle":
            return with_even(cuts, goal.risk)
        return with_rest(cuts, shares(goal.risk, (*self._targets, "rest")))

    @classmethod
    def recorded(cls, words: Mapping[str, Any], edges: np.ndarray) -> Reused:
        """With the grid's own edges, of which a record's words hold a digest."""
        cuts = tuple(Cut(**cut) for cut in words["cuts"])
        return cls(**{**words, "cuts": cuts, "edges": edges})

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """As the earlier audit was judged."""
        if self.method == "rectangle":
            return judge_by_rectangles(tally, test, goal)
        return judge_by_statements(tally, test, goal, share=shares(goal.risk, (*self._targets, "rest")))
