"""The two ways in which a few thresholds are judged, and how each spends the risk."""

from __future__ import annotations

from audit.goal import Goal
from audit.policies.policy import Cut, Finding, Method, Target, Test
from audit.policies.rectangles import even_budget, judge_by_rectangles, with_even
from audit.policies.statements import judge_by_statements, with_even_points
from audit.risk import RiskBudget, shared
from audit.trials.source import Tally


def budget_of(method: Method, risk: float, *, targets: tuple[Target, ...], cuts: int) -> RiskBudget:
    """A share for each target, or even ones for the rectangles of all cuts."""
    return even_budget(risk, cuts) if method == "rectangle" else shared(risk, (*targets, "rest"))


def settled(method: Method, cuts: tuple[Cut, ...], budget: RiskBudget) -> tuple[Cut, ...]:
    """Even shares of the risk, or of what other questions leave."""
    return with_even(cuts, budget) if method == "rectangle" else with_even_points(cuts, budget)


def judged(method: Method, tally: Tally, test: Test, goal: Goal) -> Finding:
    """Statement by statement, each at its own thresholds, or by the rectangles of all."""
    return judge_by_rectangles(tally, test, goal) if method == "rectangle" else judge_by_statements(tally, test, goal)
