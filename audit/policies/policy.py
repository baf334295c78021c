"""Policies: they fix a test before the trials, count these and judge the counts.

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
"""What an audit states by default."""
ALL_TARGETS: tuple[Target, ...] = (*TARGETS, "mu")
ANY_TARGET = "fixed"
"""Target of a cut that serves all targets."""
Rejects = Literal["above", "below"]
Method = Literal["rectangle", "joint"]
METHODS: tuple[Method, ...] = ("rectangle", "joint")
"""How counts are judged: Clopper-Pearson limits on both error rates, or the joint test of both counts and its
inversion."""
FitScores = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""Draws this many trials in all, fewer if time is short, and returns their scores without and with the record, each
of shape (trials, members)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """A threshold (a score above it, or at most it, means 'with the record'), its purpose and its risk."""

    target: Target | str
    member: int
    threshold: float
    rejects: Rejects
    risk: float
    on_alpha: float = 0.5
    """Share of its risk that its rectangle spends on the false-alarm rate."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Test:
    """What will be judged, all of it fixed before the trials."""

    __test__ = False
    """For pytest, which would collect a class of this name."""

    cuts: tuple[Cut, ...]
    edges: np.ndarray
    """Float32 edges of the grid of scores, shape (members, edges); every cut is one of its member's edges."""
    fit_trials: int
    budget: RiskBudget
    """How the risk is spent, as `judge` reads it."""

    def __post_init__(self):
        spent, share = sum(cut.risk for cut in self.cuts), self.budget.points
        require("cuts", spent <= share * (1 + ROUNDING), f"within the budget's points share {share:g}", f"{spent:g}")

    @property
    def digest(self) -> str:
        """Digest of edges and cuts: counts of another test are never continued."""
        shape = f"{self.edges.shape} {self.cuts}".encode()
        return hashlib.sha256(shape + np.ascontiguousarray(self.edges, np.float32).tobytes()).hexdigest()[:24]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What the counts show: the judgement, and the points that are proven together at the risk of the goal."""

    judgement: Judgement
    counts: tuple[ErrorCounts, ...]
    """Errors of every cut of the test."""
    points: tuple[Limits, ...]
    """Limits of every cut of the test."""
    band: tuple[Limits, ...]
    """Points along the first member's whole curve that hold together, as a statement of their own."""
    band_risk: float
    numbers: tuple[ProvenNumber, ...] = ()
    """Numbers proven one by one, each at its own share of the risk."""


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
    """Whether the data decide when counting ends: then counts are not a fixed sample."""
    fit_trials: int = 0
    """Outputs that a plan expects for choosing the test; none for policies that choose by theory."""

    @abc.abstractmethod
    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """Fix the test, from theory or from trials that are then discarded."""

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
        """Count the trials; ``start`` continues from a tally that ``report`` was given, with its state."""
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
        """Spend the goal's risk: `fix` calls this once, and `verify` calls it again to compare.

        The default spends what its cuts have, and leaves the rest to the band.
        """
        return on_points(goal.risk, [cut.risk for cut in cuts])

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """The cuts with their shares of the budget: `fix` ends with this, and `verify` calls it again.

        The default leaves each cut the risk that it has.
        """
        del edges, budget
        return cuts

    def state_of(self, tally: Tally, test: Test) -> Mapping[str, Any]:
        """State of a tally beside its counts, with all that follows from the counts computed from them.

        A fixed sample is judged by its counts alone, and has none.
        """
        del test
        return tally.state if self.stops_early else {}

    @classmethod
    def recorded(cls, words: Mapping[str, Any], edges: np.ndarray) -> Self:
        """The policy of a record from its fields, as plain data; ``edges`` are those of its grids."""
        del edges
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in words.items()})

    def aimed_at(self, target: Target) -> Policy:
        """The policy with its whole risk on one number, if it chooses thresholds for numbers."""
        raise ValueError(
            f"target= asks for a threshold to be chosen, but the policy {self.kind!r} has its own; drop one."
        )


def error_counts(tally: Tally, test: Test) -> tuple[ErrorCounts, ...]:
    """Errors of every cut, from the counts in the grid; its threshold is one of the edges."""
    return tuple(_errors(tally, test.edges[cut.member], cut) for cut in test.cuts)


def _errors(tally: Tally, edges: np.ndarray, cut: Cut) -> ErrorCounts:
    """Errors of one cut."""
    at = int(np.searchsorted(edges, np.float32(cut.threshold)))
    if at >= len(edges) or edges[at] != np.float32(cut.threshold):
        raise ValueError(f"threshold {cut.threshold} is not an edge of the grid of member {cut.member}.")
    trials = tally.trials_per_side
    above_without = int(tally.without[cut.member, at + 1 :].sum())
    above_with = int(tally.with_record[cut.member, at + 1 :].sum())
    if cut.rejects == "above":
        false_alarms, misses = above_without, trials - above_with
    else:
        false_alarms, misses = trials - above_without, above_with
    return ErrorCounts(false_alarms=false_alarms, trials_without=trials, misses=misses, trials_with=trials)
