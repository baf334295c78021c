"""Thresholds that are expected to show most: chosen from theory, or on a split of the trials."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.shares import shares
from audit.goal import Goal
from audit.policies.candidates import (
    JOINT_OBJECTIVES,
    RECTANGLE_OBJECTIVES,
    Candidates,
    choose,
    from_curve,
    from_fit,
    grid,
)
from audit.policies.policy import ALL_TARGETS, METHODS, TARGETS, Cut, Finding, FitScores, Method, Policy, Target, Test
from audit.policies.rectangles import even_share, judge_by_rectangles, with_even
from audit.policies.statements import judge_by_statements, with_rest
from audit.trials.source import Tally
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FromTheory(Policy):
    """Thresholds that the exact curve says are best for this claim, delta, trials and risk: needs no data.

    Needs a distinguisher that knows its curve, such as ``distinguishers.likelihood_ratio``. A wrong model costs power,
    never validity.

    Args:
      targets: what the thresholds are for: the verdict, epsilon at delta, delta at 0. They share the risk.
      method: ``"joint"`` reads both error counts together, ``"rectangle"`` bounds each by Clopper-Pearson.

    Examples:
      >>> import audit
      >>> audit.FromTheory(targets=("verdict",)).targets
      ('verdict',)
    """

    targets: tuple[Target, ...] = TARGETS
    method: Method = "joint"
    kind: str = "from_theory"

    def __post_init__(self):
        _check_method(self.method, self.targets)

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """A threshold for every target, the best on the distinguisher's exact curve."""
        if curve is None:
            raise ValueError(
                "a threshold from theory needs a distinguisher whose exact curve is known (likelihood_ratio on "
                "aligned gradients); use Split() or Fixed(thresholds=...) instead."
            )
        candidates = from_curve(curve)
        cuts = _choose(candidates, self.targets, goal, self.method)
        edges = grid(candidates, cuts)
        return Test(cuts=self.settle(cuts, edges, goal), edges=edges, fit_trials=0)

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, goal: Goal) -> tuple[Cut, ...]:
        """Even shares of the risk, or of what other questions leave."""
        del edges
        return _settled(self.method, self.targets, cuts, goal)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """Statement by statement, each at the threshold that was chosen for it, or by the rectangles of all."""
        return _judge(self.method, self.targets, tally, test, goal)

    def aimed_at(self, target: Target) -> FromTheory:
        """The whole risk on one target."""
        return dataclasses.replace(self, targets=(target,))


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(Policy):
    """Thresholds (and directions, and members of a battery) chosen on fit trials that are then thrown away.

    Args:
      fit_trials: how many outputs choose the test, half on each dataset; drawn in addition to the audit's trials.
      targets: what the thresholds are for: the verdict, epsilon at delta, delta at 0. They share the risk.
      method: ``"joint"`` reads both error counts together, ``"rectangle"`` bounds each by Clopper-Pearson.

    Examples:
      >>> import audit
      >>> audit.Split(fit_trials=500).fit_trials
      500
    """

    fit_trials: int = 2000
    targets: tuple[Target, ...] = TARGETS
    method: Method = "joint"
    kind: str = "split"

    def __post_init__(self):
        _check_method(self.method, self.targets)
        require(
            "fit_trials",
            self.fit_trials >= 20 and self.fit_trials % 2 == 0,
            "even and >= 20",
            self.fit_trials,
        )

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """A threshold for every target, the best on the fit trials; a known curve is not used."""
        fit = fit_scores(self.fit_trials)
        candidates = from_fit(*fit)
        cuts = _choose(candidates, self.targets, goal, self.method)
        edges = grid(candidates, cuts)
        return Test(cuts=self.settle(cuts, edges, goal), edges=edges, fit_trials=2 * len(fit[0]))

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, goal: Goal) -> tuple[Cut, ...]:
        """Even shares of the risk, or of what other questions leave."""
        del edges
        return _settled(self.method, self.targets, cuts, goal)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """Statement by statement, each at the threshold that was chosen for it, or by the rectangles of all."""
        return _judge(self.method, self.targets, tally, test, goal)

    def aimed_at(self, target: Target) -> Split:
        """The whole risk on one target."""
        return dataclasses.replace(self, targets=(target,))


def _check_method(method: str, targets: tuple[str, ...]) -> None:
    require("method", method in METHODS, f"one of {METHODS}", method)
    known = bool(targets) and set(targets) <= set(ALL_TARGETS) and len(set(targets)) == len(targets)
    require("targets", known, f"distinct ones of {ALL_TARGETS}", targets)


def _choose(candidates: Candidates, targets: tuple[Target, ...], goal: Goal, method: Method) -> tuple[Cut, ...]:
    """The best candidate for every target at its share of the risk: even ones for rectangles."""
    if method == "rectangle":
        shared = dataclasses.replace(goal, risk=even_share(goal.risk, len(targets)))
        return tuple(choose(candidates, target, shared, RECTANGLE_OBJECTIVES) for target in targets)
    share = shares(goal.risk, (*targets, "rest"))
    return tuple(
        choose(candidates, target, dataclasses.replace(goal, risk=share[target]), JOINT_OBJECTIVES)
        for target in targets
    )


def _settled(method: Method, targets: tuple[Target, ...], cuts: tuple[Cut, ...], goal: Goal) -> tuple[Cut, ...]:
    if method == "rectangle":
        return with_even(cuts, goal.risk)
    return with_rest(cuts, shares(goal.risk, (*targets, "rest")))


def _judge(method: Method, targets: tuple[Target, ...], tally: Tally, test: Test, goal: Goal) -> Finding:
    if method == "rectangle":
        return judge_by_rectangles(tally, test, goal)
    return judge_by_statements(tally, test, goal, share=shares(goal.risk, (*targets, "rest")))
