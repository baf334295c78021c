"""Bounds and a verdict from scores that somebody else drew."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np

from audit.bounds.attack_summary import AttackSummary, attack_summary
from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu, Question
from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.local_levels import RateBand, ThresholdBand, band_from_grid, band_thresholds, wider_rate_band
from audit.risk import RiskBudget, Statement, shared
from audit.verdict.judgement import (
    Against,
    Judgement,
    against_band,
    against_jointly,
    judge_statements,
    of_scores_in_one_place,
)
from audit.verdict.proven_numbers import ProvenNumber, against, prove, questions, stated
from audit.verdict.verdict import Verdict
from audit.verdict.violated import at_best
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.numerics.array import Array

NUMBERS: tuple[Statement, ...] = ("epsilon", "delta", "mu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreTest:
    """One test and its counts on the scores that did not choose it."""

    purpose: Statement
    threshold: float
    rejects: str
    counts: ErrorCounts


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCells:
    """How many scores lie in (edge i-1, edge i], on each side: all that the band needs of them."""

    edges: Array
    without: Array
    with_record: Array

    @classmethod
    def of(cls, sides: tuple[Array, Array], tests: tuple[ScoreTest, ...]) -> ScoreCells:
        """Cells at the thresholds of the band, those of the tests, and where scores with the record begin.

        Then scores that are not all the same lie in several cells.
        """
        tested = np.array([test.threshold for test in tests])
        edges = np.unique(np.concatenate([band_thresholds(*sides), tested, sides[1][:1]]))
        below = [np.searchsorted(side, edges, side="right") for side in sides]
        counts = [np.diff(cells, prepend=0, append=len(side)) for cells, side in zip(below, sides, strict=True)]
        return cls(edges=edges, without=counts[0], with_record=counts[1])

    def band(self, risk: float, rates: Callable[..., RateBand] | None = None) -> ThresholdBand:
        """Limits on both error rates at every threshold at once."""
        return band_from_grid(self.edges, self.without, self.with_record, risk=risk, rates=rates)

    @property
    def in_one_place(self) -> bool:
        """Whether all scores are equal."""
        return np.count_nonzero(self.without + self.with_record) == 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreBounds:
    """Proven lower bounds from given scores, and what the user must vouch for. All hold together at the risk."""

    budget: RiskBudget
    """How the risk is spent, fixed before the scores are read."""
    numbers: tuple[ProvenNumber, ...]
    tests: tuple[ScoreTest, ...]
    cells: ScoreCells = dataclasses.field(repr=False)
    seed: int | None = None
    """Seed that set scores aside to choose thresholds; None if thresholds were given."""
    conditions: tuple[str, ...] = ()
    judgement: Judgement | None = None
    """The verdict with its reason and p-value, if a claim was given."""
    claim: Claim | None
    """The claim that was judged."""
    report_delta: float
    """Delta at which epsilon is proven by a test of its own."""
    target: Statement | None
    """The statement that has the whole risk; None where several share it."""
    sides: tuple[Array, Array] = dataclasses.field(default=(np.empty(0), np.empty(0)), repr=False)
    """All scores, in increasing order; empty in bounds that were recomputed from a record."""
    learned_from: tuple[int, int] | None = None
    """Outputs of each side that a score was learned from, which are not judged; None if scores were given."""
    name: str = "given scores"
    """Name in records and reports."""

    @property
    def risk(self) -> float:
        """The probability that any of the statements is wrong."""
        return self.budget.risk

    @property
    def shares(self) -> Mapping[Statement, float]:
        """The statements' shares of the risk."""
        return self.budget.shares

    @functools.cached_property
    def band(self) -> ThresholdBand | None:
        """Limits on both error rates at every threshold at once, at the band's share of the risk; None without one."""
        share = self.budget.band
        return self.cells.band(share) if share > 0 else None

    @functools.cached_property
    def summary(self) -> AttackSummary | None:
        """Area under the curve, true-positive rates and accuracy, off the band."""
        return None if self.band is None else attack_summary(*self.sides, self.band)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim, in the words of a record; None if no claim was given."""
        return None if self.judgement is None else self.judgement.verdict

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon: by the band, up to its delta by its own test, or implied by delta's."""
        return self._proven(EpsilonAt(delta=delta))

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta: by the band, at epsilon 0 by its own test, or implied by epsilon's."""
        return self._proven(DeltaAt(epsilon=epsilon))

    @property
    def mu(self) -> float:
        """Proven lower bound on mu: by its own test, by the band, or implied by epsilon's or delta's."""
        return self._proven(Mu())

    def _proven(self, question: Question) -> float:
        """Bound on a number by its own test, by what the other numbers imply, and from the band."""
        number = stated(self.numbers, question)
        if self.band is None:
            return number
        return max(number, float(question.through(self.band.alpha_upper, self.band.beta_upper).max(initial=0.0)))


def statements(claim: Claim | None, target: Statement | None) -> tuple[Statement, ...]:
    """Statements of the audit: all numbers, the verdict on a claim and the rest, or only the target."""
    if target is None:
        return (*NUMBERS, "rest") if claim is None else ("verdict", *NUMBERS, "rest")
    known: tuple[Statement, ...] = ("verdict", *NUMBERS)
    require("target", target in known, f"one of {known}", target)
    require(
        "target",
        (target == "verdict") == (claim is not None),
        "'verdict' where a claim is judged, and another statement where none is",
        target,
    )
    return (target,)


def concluded(
    tests: tuple[ScoreTest, ...],
    cells: ScoreCells,
    *,
    risk: float,
    claim: Claim | None,
    delta: float,
    target: Statement | None,
) -> ScoreBounds:
    """Bounds and verdict from counts alone, without the scores and what the user vouched for."""
    budget, asked = shared(risk, statements(claim, target), on_band=1.0), questions(delta)
    counts = {name: tuple(test.counts for test in tests if test.purpose == name) for name in budget.shares}
    verdict = None
    if claim is not None:
        verdict = against_jointly(counts["verdict"], claim, risk=budget.verdict, for_excess=budget.for_excess)
    gained = budget.passed_on(refuted=verdict is not None and verdict.refutes)
    spent: dict[Statement, dict[str, float]] = {
        name: {"risk": budget.shares[name], "passed_on": gained.get(name, 0.0)}
        for name in NUMBERS
        if name in budget.shares
    }
    found = ScoreBounds(
        budget=budget,
        numbers=tuple(prove(counts[name], asked[name], **each) for name, each in spent.items()),
        tests=tests,
        cells=cells,
        claim=claim,
        report_delta=delta,
        target=target,
    )
    if claim is None or verdict is None:
        return found
    against_numbers = (against(claim, counts[name], asked[name], **each) for name, each in spent.items())
    return dataclasses.replace(found, judgement=_judged(claim, found, [verdict, *against_numbers]))


def _judged(claim: Claim, found: ScoreBounds, against_tests: list[Against]) -> Judgement:
    """The judgement by every statement that has a share of the risk: the tests and the band."""

    def wider_at(risk: float) -> tuple[Limits, ...]:
        return found.cells.band(risk, wider_rate_band).points

    band, own = found.band, [test.counts for test in found.tests if test.purpose == "verdict"]
    by_band = [] if band is None else [against_band(band.points, wider_at, claim, risk=found.budget.band)]
    judgement = judge_statements(
        (*against_tests, *by_band),
        claim,
        risk=sum(found.shares.values()),
        deciding=found.shares["verdict"] / len(own),
        delta=found.report_delta,
        trials_per_side=min(min(counts.trials_without, counts.trials_with) for counts in own),
    )
    if found.cells.in_one_place or (band is None and all(_splits_nothing(test.counts) for test in found.tests)):
        return of_scores_in_one_place(judgement)
    return dataclasses.replace(judgement, violated_at=at_best(judgement.violated_at, found))


def _splits_nothing(counts: ErrorCounts) -> bool:
    """Whether a test gives the same answer for every score that it was counted on."""
    alarms = counts.false_alarms + counts.trials_with - counts.misses
    return alarms in (0, counts.trials_without + counts.trials_with)
