"""Thresholds that are expected to show most: chosen from theory, or on a split of the trials."""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np

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
from audit.policies.methods import ByMethod
from audit.policies.policy import ALL_TARGETS, TARGETS, Cut, FitScores, Method, Target, Test
from audit.policies.rectangles import even_share
from audit.risk import RiskBudget
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Chosen(ByMethod):
    """A policy with one threshold for each target."""

    targets: tuple[Target, ...] = TARGETS
    method: Method = "joint"

    def __post_init__(self):
        targets = self.targets
        known = bool(targets) and set(targets) <= set(ALL_TARGETS) and len(set(targets)) == len(targets)
        require("targets", known, f"distinct ones of {ALL_TARGETS}", targets)

    @property
    def stated(self) -> tuple[Target, ...]:
        """The targets that thresholds are chosen for."""
        return self.targets

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """Give each cut its share; there must be one for each target, or the others would get more of the risk."""
        targets = tuple(cut.target for cut in cuts)
        require("the targets of the cuts", targets == self.targets, f"{self.targets}", targets)
        return super().settle(cuts, edges, budget)

    def aimed_at(self, target: Target) -> Self:
        """The policy with the whole risk on one target."""
        return dataclasses.replace(self, targets=(target,))

    def best(self, candidates: Candidates, goal: Goal, *, fit_trials: int) -> Test:
        """The test with the best candidate for every target at its share of the risk; even shares for rectangles."""
        targets, joint, budget = self.targets, self.method == "joint", self.budget((), goal)
        share = budget.shares if joint else dict.fromkeys(targets, even_share(goal.risk, len(targets)))
        objectives = JOINT_OBJECTIVES if joint else RECTANGLE_OBJECTIVES
        cuts = tuple(
            choose(candidates, target, dataclasses.replace(goal, risk=share[target]), objectives) for target in targets
        )
        edges = grid(candidates, cuts)
        return Test(cuts=self.settle(cuts, edges, budget), edges=edges, fit_trials=fit_trials, budget=budget)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FromTheory(_Chosen):
    """Thresholds that the exact curve says are best for this claim, delta, trials and risk: needs no data.

    Needs a distinguisher that knows its curve, such as ``distinguishers.likelihood_ratio``. A wrong model costs power,
    never validity.

    Args:
      targets: what the thresholds are for: the verdict, epsilon at delta, delta at 0. They share the risk.
      method: ``"joint"`` reads both error counts together, ``"rectangle"`` bounds each by Clopper-Pearson.

    Raises:
      ValueError: a target or the method is unknown.

    Examples:
      >>> import audit
      >>> audit.FromTheory(targets=("verdict",)).targets
      ('verdict',)
    """

    kind: str = "from_theory"

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """Choose the best threshold for every target on the distinguisher's exact curve."""
        if curve is None:
            raise ValueError(
                "a threshold from theory needs a distinguisher whose exact curve is known (likelihood_ratio on "
                "aligned gradients); use Split() or Fixed(thresholds=...) instead."
            )
        return self.best(from_curve(curve), goal, fit_trials=0)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(_Chosen):
    """Thresholds (and directions, and members of a battery) chosen on fit trials that are then thrown away.

    Any choice gives valid bounds. Few fit trials may choose badly, and the bounds are then lower than they could be.

    Args:
      fit_trials: how many outputs choose the test, half on each dataset; drawn in addition to the audit's trials.
      targets: what the thresholds are for: the verdict, epsilon at delta, delta at 0. They share the risk.
      method: ``"joint"`` reads both error counts together, ``"rectangle"`` bounds each by Clopper-Pearson.

    Raises:
      ValueError: ``fit_trials`` is odd or below 20, or a target or the method is unknown.

    Examples:
      >>> import audit
      >>> audit.Split(fit_trials=500).fit_trials
      500
    """

    fit_trials: int = 2000
    kind: str = "split"

    def __post_init__(self):
        super().__post_init__()
        require(
            "fit_trials",
            self.fit_trials >= 20 and self.fit_trials % 2 == 0,
            "even and >= 20",
            self.fit_trials,
        )

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """Choose the best threshold for every target on the fit trials; a known curve is not used."""
        fit = fit_scores(self.fit_trials)
        return self.best(from_fit(*fit), goal, fit_trials=2 * len(fit[0]))
