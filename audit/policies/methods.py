"""The two ways in which a few thresholds are judged, and how each spends the risk."""

from __future__ import annotations

import numpy as np

from audit.goal import Goal
from audit.policies.policy import TARGETS, Cut, Finding, Method, Policy, Target, Test
from audit.policies.rectangles import even_budget, judge_by_rectangles, with_even
from audit.policies.statements import judge_by_statements, with_even_points
from audit.risk import RiskBudget, shared
from audit.trials.source import Tally


class ByMethod(Policy):
    """A policy of a few thresholds: the joint test states every number by itself, or rectangles bound each test."""

    method: Method

    @property
    def stated(self) -> tuple[Target, ...]:
        """What the thresholds are for."""
        return TARGETS

    def budget(self, cuts: tuple[Cut, ...], goal: Goal) -> RiskBudget:
        """A share for what is stated, or even ones for the rectangles."""
        del cuts
        return even_budget(goal.risk) if self.method == "rectangle" else shared(goal.risk, (*self.stated, "rest"))

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """Even shares of the risk, or of what other questions leave."""
        del edges
        return with_even(cuts, budget) if self.method == "rectangle" else with_even_points(cuts, budget)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """Statement by statement, each at the thresholds fixed for it, or by the rectangles of all."""
        by_method = judge_by_rectangles if self.method == "rectangle" else judge_by_statements
        return by_method(tally, test, goal)
