"""What a policy is: it fixes a test before the trials, counts them and judges the counts.

Why each policy is valid: docs/validity.md.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.goal import Goal
from audit.risk import ROUNDING, RiskBudget, on_points
from audit.trials import source
from audit.trials.source import Source, Tally
from audit.verdict.judgement import Judgement
from audit.verdict.proven_numbers import ProvenNumber
from guarantees.checks import require
from guarantees.trade_off import TradeOff

Target = Literal["verdict", "epsilon", "delta", "mu"]
TARGETS: tuple[Target, ...] = ("verdict", "epsilon", "delta")
"""What an audit states unless told otherwise."""
ALL_TARGETS: tuple[Target, ...] = (*TARGETS, "mu")
ANY_TARGET = "fixed"
"""A cut that was fixed for no target in particular serves them all."""
Rejects = Literal["above", "below"]
Method = Literal["rectangle", "joint"]
METHODS: tuple[Method, ...] = ("rectangle", "joint")
"""What decides: Clopper-Pearson limits on both error rates, or the joint test of both counts and its inversion."""
FitScores = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""Draws this many trials in all, fewer where time is short, and gives their scores without and with the record,
(trials, members) each."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """One threshold: 'a score above (or at most) it means: with the record', what for, and its share of the risk."""

    target: Target | str
    member: int
    threshold: float
    rejects: Rejects
    risk: float
    on_alpha: float = 0.5
    """The part of its risk that its rectangle spends on the false-alarm rate."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Test:
    """What will be judged, all of it fixed before the trials that judge it."""

    __test__ = False
    """For pytest, which would collect a class of this name."""

    cuts: tuple[Cut, ...]
    edges: np.ndarray
    """Float32 edges of the grid of scores, (members, edges); every cut is one of its member's."""
    fit_trials: int
    budget: RiskBudget
    """How the risk is spent: what `judge` reads its shares from."""

    def __post_init__(self):
        spent, share = sum(cut.risk for cut in self.cuts), self.budget.points
        require("cuts", spent <= share * (1 + ROUNDING), f"within the budget's points share {share:g}", f"{spent:g}")

    @property
    def digest(self) -> str:
        """Changes with any edge or cut: counts of another test are never continued."""
        shape = f"{self.edges.shape} {self.cuts}".encode()
        return hashlib.sha256(shape + np.ascontiguousarray(self.edges, np.float32).tobytes()).hexdigest()[:24]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What the counts say: the judgement, and the points that are proven together at the goal's risk."""

    judgement: Judgement
    counts: tuple[ErrorCounts, ...]
    """Of every cut of the test."""
    points: tuple[Limits, ...]
    """Of every cut of the test."""
    band: tuple[Limits, ...]
    """Points along the first member's whole curve that hold together: a statement of its own."""
    band_risk: float
    numbers: tuple[ProvenNumber, ...] = ()
    """What was proven number by number, each at its own share of the risk."""


class Policy(abc.ABC):
    """Which test is judged, on how many trials, and how. One file per policy, one line in the catalogue.

    ``audit.Fixed``, ``FromTheory``, ``Split`` and ``Anytime`` are policies. One of your own decides its test in
    ``fix``, before the trials that judge it, and compares the counts with the claim in ``judge``. A policy that takes
    the planned trials and counts them inherits ``count`` as it is. Whoever writes a policy must prove that its bounds
    hold at the goal's risk: nothing here checks that.

    Examples:
      >>> import audit
      >>> isinstance(audit.Split(), audit.Policy), audit.Split().kind
      (True, 'split')
    """

    kind: str
    """The policy's name in suites and records."""
    stops_early: ClassVar[bool] = False
    """Whether the data decide when counting ends: then counts are no fixed sample."""
    fit_trials: int = 0
    """Outputs that a plan counts for choosing the test; policies that choose by theory draw none."""

    @abc.abstractmethod
    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """Decide the test from theory, or from trials that are then thrown away."""

    def count(
        self,
        sides: tuple[Source, Source],
        test: Test,
        goal: Goal,
        *,
        start: Tally | None = None,
        deadline: float | None = None,
        report: Callable[[Tally], None] = lambda _: None,
    ) -> Tally:
        """Count the trials; ``start`` continues from what ``report`` was given, with the state that it carries."""
        return source.tally(
            *sides,
            edges=test.edges,
            trials_per_side=goal.trials_per_side,
            start=start,
            deadline=deadline,
            report=report,
        )

    @abc.abstractmethod
    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """Compare the counts with the claim."""

    def budget(self, cuts: tuple[Cut, ...], goal: Goal) -> RiskBudget:
        """How the goal's risk is spent: `fix` makes it once, and `verify` makes it again to compare.

        A policy that does not say spends what its cuts have, and leaves the rest to the band.
        """
        return on_points(goal.risk, [cut.risk for cut in cuts])

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """The cuts with the risk that each of them has of the budget: `fix` ends with it, and `verify` asks it again.

        A policy that does not say leaves each cut the risk that it has.
        """
        del edges, budget
        return cuts

    def state_of(self, tally: Tally, test: Test) -> Mapping[str, Any]:
        """What a tally carries beside its counts, with all of it that follows from the counts computed from them.

        A fixed sample is judged by its counts alone.
        """
        del test
        return tally.state if self.stops_early else {}

    @classmethod
    def recorded(cls, words: Mapping[str, Any], edges: np.ndarray) -> Self:
        """The policy that a record names by its fields, as plain data; ``edges`` are those of its grids."""
        del edges
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in words.items()})

    def aimed_at(self, target: Target) -> Policy:
        """The same policy with its whole risk on one number, where it chooses thresholds for numbers."""
        raise ValueError(
            f"target= asks for a threshold to be chosen, but the policy {self.kind!r} has its own; drop one."
        )


def error_counts(tally: Tally, test: Test) -> tuple[ErrorCounts, ...]:
    """Errors of every cut, read off the grid; its threshold is one of the grid's edges."""
    return tuple(_errors(tally, test.edges[cut.member], cut) for cut in test.cuts)


def _errors(tally: Tally, row: np.ndarray, cut: Cut) -> ErrorCounts:
    at = int(np.searchsorted(row, np.float32(cut.threshold)))
    if at >= len(row) or row[at] != np.float32(cut.threshold):
        raise ValueError(f"threshold {cut.threshold} is not an edge of the grid of member {cut.member}.")
    n = tally.trials_per_side
    above_without = int(tally.without[cut.member, at + 1 :].sum())
    above_with = int(tally.with_record[cut.member, at + 1 :].sum())
    if cut.rejects == "above":
        false_alarms, misses = above_without, n - above_with
    else:
        false_alarms, misses = n - above_without, above_with
    return ErrorCounts(false_alarms=false_alarms, trials_without=n, misses=misses, trials_with=n)
