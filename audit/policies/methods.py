"""The two methods of judging a few thresholds, and how each spends the risk."""

from __future__ import annotations

import numpy as np

from audit.goal import Goal
from audit.policies.policy import TARGETS, Cut, Finding, Method, Policy, Target, Test
from audit.policies.rectangles import even_budget, judge_by_rectangles, with_even
from audit.policies.statements import judge_by_statements, with_even_points
from audit.risk import RiskBudget, shared
from audit.trials.source import Tally


class ByMethod(Policy):
    """A policy with a few thresholds: the joint test states every number separately, or rectangles bound each test."""

    method: Method

    @property
    def stated(self) -> tuple[Target, ...]:
        """The targets of the thresholds."""
        return TARGETS

    def budget(self, cuts: tuple[Cut, ...], goal: Goal) -> RiskBudget:
        """Shares for what is stated, or even shares for rectangles."""
        del cuts
        return even_budget(goal.risk) if self.method == "rectangle" else shared(goal.risk, (*self.stated, "rest"))

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """Give each cut an even share of the risk, or of what other questions leave."""
        del edges
        return with_even(cuts, budget) if self.method == "rectangle" else with_even_points(cuts, budget)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """Judge each statement at the thresholds fixed for it, or all by rectangles."""
        by_method = judge_by_rectangles if self.method == "rectangle" else judge_by_statements
        return by_method(tally, test, goal)
