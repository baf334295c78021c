"""Thresholds that are expected to show most: chosen from theory, or on a split of the trials."""

from __future__ import annotations

import dataclasses
from typing import Literal

from audit.policies.candidates import Candidates, choose, from_curve, from_fit, grid
from audit.policies.policy import TARGETS, Cut, Finding, FitScores, Policy, Target, Test
from audit.policies.rectangles import judge_by_rectangles
from audit.trials.source import Tally
from audit.verdict.goal import Goal
from audit.verdict.judgement import judge_jointly
from guarantees.checks import require
from guarantees.trade_off import TradeOff

Method = Literal["rectangle", "joint"]
METHODS: tuple[Method, ...] = ("rectangle", "joint")
"""What decides a verdict: Clopper-Pearson limits on both error rates, or the exact joint p-value of both counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromTheory(Policy):
    """Thresholds that the exact curve says are best for this claim, delta, trials and risk: needs no data."""

    targets: tuple[Target, ...] = TARGETS
    method: Method = "rectangle"
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
        cuts = _choose(candidates, self.targets, goal)
        return Test(cuts=cuts, edges=grid(candidates, cuts), fit_trials=0)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """By the rectangles, or jointly at the threshold that was chosen for the verdict."""
        return _judge(self.method, tally, test, goal)

    def aimed_at(self, target: Target) -> FromTheory:
        """The whole risk on one target."""
        return dataclasses.replace(self, targets=(target,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(Policy):
    """Thresholds (and directions, and members of a battery) chosen on fit trials that are then thrown away."""

    fit_trials: int = 2000
    targets: tuple[Target, ...] = TARGETS
    method: Method = "rectangle"
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
        candidates = from_fit(*fit_scores(self.fit_trials))
        cuts = _choose(candidates, self.targets, goal)
        return Test(cuts=cuts, edges=grid(candidates, cuts), fit_trials=self.fit_trials)

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """By the rectangles, or jointly at the threshold that was chosen for the verdict."""
        return _judge(self.method, tally, test, goal)

    def aimed_at(self, target: Target) -> Split:
        """The whole risk on one target."""
        return dataclasses.replace(self, targets=(target,))


def _check_method(method: str, targets: tuple[str, ...]) -> None:
    require("method", method in METHODS, f"one of {METHODS}", method)
    if method == "joint":
        require("targets", "verdict" in targets, "such that 'verdict' is among them with method='joint'", targets)


def _choose(candidates: Candidates, targets: tuple[Target, ...], goal: Goal) -> tuple[Cut, ...]:
    """The best candidate for every target; they share the risk evenly."""
    shared = dataclasses.replace(goal, risk=goal.risk / len(targets))
    return tuple(choose(candidates, target, shared) for target in targets)


def _judge(method: Method, tally: Tally, test: Test, goal: Goal) -> Finding:
    found = judge_by_rectangles(tally, test, goal)
    if method == "rectangle":
        return found
    counts = next(c for cut, c in zip(test.cuts, found.counts, strict=True) if cut.target == "verdict")
    judgement = judge_jointly(counts, goal.claim, risk=goal.risk, delta=goal.delta)
    return dataclasses.replace(found, judgement=judgement)
