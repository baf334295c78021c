"""Bounds for people who already have scores, from anywhere."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from audit.bounds.attack_summary import AttackSummary, attack_summary
from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu, Question
from audit.bounds.chosen_threshold import Threshold, best_threshold, scores_to_choose, strongest_threshold
from audit.bounds.clopper_pearson import ErrorCounts, Limits, require_risk
from audit.bounds.local_levels import ThresholdBand, band_from_scores, wider_rate_band
from audit.bounds.output_scores import are_outputs, copies, learned_scores, rows_of_outputs
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
from dpsgd_audit.spelling import counted
from guarantees.checks import Delta, Share, checked, require
from guarantees.claim import Claim
from guarantees.numerics.array import Array

CONDITIONS = (
    "the trials are independent: each score comes from its own run of the mechanism with fresh randomness",
    "the distinguisher that made the scores was fixed, and trained on other trials, before these were drawn",
)
OF_OUTPUTS = (
    "the trials are independent: each output comes from its own run of the mechanism with fresh randomness",
    "a row holds what a trial released and nothing else, such as the number of the trial",
    "delta and the seed, which drew the outputs that learn, were not tried out on these outputs",
)
FIXED_CONDITION = "the threshold was chosen before looking at these scores"
SEED_CONDITION = "delta, and the seed that set scores aside to choose thresholds, were not tried out on these scores"
NUMBERS: tuple[Statement, ...] = ("epsilon", "delta", "mu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreTest:
    """One test and what it counted on the scores that did not choose it."""

    purpose: Statement
    threshold: float
    rejects: str
    counts: ErrorCounts


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreBounds:
    """Proven lower bounds from given scores, and what the user must vouch for. All hold together at the risk."""

    budget: RiskBudget
    """How the risk is spent: fixed before looking."""
    numbers: tuple[ProvenNumber, ...]
    tests: tuple[ScoreTest, ...]
    seed: int | None
    """What set scores aside to choose thresholds; None where they were given."""
    conditions: tuple[str, ...]
    judgement: Judgement | None
    """The verdict with its reason and p-value, where a claim was given."""
    sides: tuple[Array, Array] = dataclasses.field(repr=False)
    """All scores, in increasing order."""
    learned_from: tuple[int, int] | None = None
    """Of how many outputs of each side a score was learned, which are not judged; None where scores were given."""

    @property
    def risk(self) -> float:
        """The probability that any of the statements is wrong."""
        return self.budget.risk

    @property
    def shares(self) -> Mapping[Statement, float]:
        """How the statements share the risk."""
        return self.budget.shares

    @functools.cached_property
    def band(self) -> ThresholdBand | None:
        """Limits on both error rates at every threshold at once, at its own share; None if it has none."""
        share = self.budget.band
        return band_from_scores(*self.sides, risk=share) if share > 0 else None

    @functools.cached_property
    def summary(self) -> AttackSummary | None:
        """Area under the curve, true-positive rates and accuracy, off the band."""
        return None if self.band is None else attack_summary(*self.sides, self.band)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim, in the words of a record; None where no claim was given."""
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
        """By its own test, by what the other numbers imply of it, and off the band."""
        own = stated(self.numbers, question)
        if self.band is None:
            return own
        return max(own, float(question.through(self.band.alpha_upper, self.band.beta_upper).max(initial=0.0)))


@checked
def from_scores(
    without: ArrayLike,
    with_record: ArrayLike,
    *,
    risk: Share,
    thresholds: tuple[float, ...] = (),
    claim: Claim | None = None,
    delta: Delta = 1e-5,
    target: Statement | None = None,
    seed: int = 0,
) -> ScoreBounds:
    """Valid lower bounds from scores or outputs that you already have, one per trial on each dataset.

    Where a trial has several numbers it is an output: a third of the outputs, drawn by ``seed``, learns a score, and
    the others are scored and judged.

    Not guaranteed: anything if the scores were used to choose the attack, the thresholds or ``delta``, or if the trials
    are not independent. ``conditions`` of the result lists what you must vouch for. [docs/validity.md, section 15]

    Args:
      without: scores of outputs drawn without the record, which may be infinite; or the outputs themselves, one row a
        trial.
      with_record: the same with it. A larger score means 'the record was there'.
      risk: probability that any of the returned bounds exceeds the truth.
      thresholds: fixed before you looked at the scores, and judged on all of them. Without them a tenth of the scores,
        drawn by ``seed``, chooses one for each number and the rest is judged.
      claim: a promise to judge, if there is one.
      delta: where epsilon is proven.
      target: spend the whole risk on one number instead of sharing it.
      seed: sets aside the scores that choose thresholds.

    Returns:
      Bounds that answer ``epsilon(delta)``, ``delta(epsilon)``, ``mu`` and, with a claim, ``verdict``.

    Raises:
      ValueError: scores are NaN, too few, or an argument is out of range.

    Examples:
      >>> import audit, numpy as np
      >>> draw = np.random.default_rng(0).normal
      >>> found = audit.from_scores(draw(size=2000), draw(loc=2.0, size=2000), risk=0.05)
      >>> 1.5 < found.mu <= 2.0  # the truth is mu = 2
      True
    """
    require_risk(risk)
    given, learned_from = _scores(without, with_record, thresholds, seed)
    stated = _stated(claim, target)
    budget = shared(risk, stated, on_band=1.0)
    share = budget.shares
    chosen = _fixed(given, thresholds, stated) if thresholds else chosen_tests(given, share, claim, delta, seed)
    asked = questions(delta)
    verdict = None if claim is None else _against(claim, chosen, budget)
    gained = budget.passed_on(refuted=verdict is not None and verdict.refutes)
    numbers = tuple(
        prove(_counts_for(chosen, name), asked[name], risk=share[name], passed_on=gained.get(name, 0.0))
        for name in NUMBERS
        if name in share
    )
    zero, one = _finite(given)
    vouched = OF_OUTPUTS if learned_from else (*CONDITIONS, FIXED_CONDITION if thresholds else SEED_CONDITION)
    copied = copied_trials(without, with_record)
    found = ScoreBounds(
        budget=budget,
        numbers=numbers,
        tests=chosen,
        seed=None if thresholds else seed,
        conditions=vouched if copied is None else (f"{vouched[0]}, although {copied}", *vouched[1:]),
        judgement=None,
        sides=(np.sort(zero), np.sort(one)),
        learned_from=learned_from,
    )
    if claim is None or verdict is None:
        return found
    return dataclasses.replace(found, judgement=_judged(claim, found, verdict, delta))


def copied_trials(without: ArrayLike, with_record: ArrayLike) -> str | None:
    """In words, how many trials repeat others to the last digit, as runs with continuous noise do not."""
    sides = (("without the record", without), ("with it", with_record))
    found = [(copies(values), len(np.asarray(values)), name) for name, values in sides]
    told = [f"{many:,} of the {trials:,} trials {name}" for many, trials, name in found if many]
    return f"{' and '.join(told)} are copies of others" if told else None


def _scores(
    without: ArrayLike, with_record: ArrayLike, thresholds: tuple[float, ...], seed: int
) -> tuple[tuple[Array, Array], tuple[int, int] | None]:
    """Scores as they are given, or those of outputs and how many of each side learned them."""
    if not (are_outputs(without) or are_outputs(with_record)):
        return (one_column("without", without), one_column("with_record", with_record)), None
    sides = rows_of_outputs("without", without), rows_of_outputs("with_record", with_record)
    widths = [side.shape[1] for side in sides]
    if widths[0] != widths[1]:
        raise ValueError(
            f"a trial has {widths[0]} numbers without the record and {widths[1]} with it: pass two files of outputs, "
            "or two of scores, from the same code."
        )
    require("thresholds", not thresholds, "left out where the score is learned from outputs", thresholds)
    found = learned_scores(*sides, seed=seed)
    return (found.without, found.with_record), found.learned_from


def _stated(claim: Claim | None, target: Statement | None) -> tuple[Statement, ...]:
    if target is None:
        return (*NUMBERS, "rest") if claim is None else ("verdict", *NUMBERS, "rest")
    known: tuple[Statement, ...] = ("verdict", *NUMBERS)
    require("target", target in known, f"one of {known}", target)
    require("target", (target == "verdict") == (claim is not None), "'verdict' with a claim, and only then", target)
    return (target,)


def _fixed(
    given: tuple[Array, Array], thresholds: tuple[float, ...], stated: tuple[Statement, ...]
) -> tuple[ScoreTest, ...]:
    return tuple(
        ScoreTest(
            purpose=name,
            threshold=float(t),
            rejects="above",
            counts=_counts(given, Threshold(threshold=t, rejects="above")),
        )
        for name in stated
        if name != "rest"
        for t in thresholds
    )


def chosen_tests(
    given: tuple[Array, Array], share: Mapping[Statement, float], claim: Claim | None, delta: float, seed: int
) -> tuple[ScoreTest, ...]:
    """A test for every number, chosen on scores set aside and counted on the others."""
    rng = np.random.default_rng(seed)

    def drawn(side: Array) -> Array:
        return side[rng.choice(len(side), scores_to_choose(len(side)), replace=False)]

    aside = drawn(given[0]), drawn(given[1])
    # Only what was set aside may say where a threshold lies.
    placed = _finite(aside)
    trials = len(given[0]) - len(aside[0]), len(given[1]) - len(aside[1])
    asked = questions(delta)
    found = []
    for name, risk in share.items():
        if name == "rest":
            continue
        if name == "verdict":
            assert claim is not None
            test = strongest_threshold(*placed, claim, trials=trials)
        else:
            test = best_threshold(*placed, asked[name], trials=trials, risk=risk)
        counts = _less(_counts(given, test), _counts(aside, test))
        found.append(ScoreTest(purpose=name, threshold=test.threshold, rejects=test.rejects, counts=counts))
    return tuple(found)


def _counts_for(tests: tuple[ScoreTest, ...], purpose: str) -> tuple[ErrorCounts, ...]:
    return tuple(test.counts for test in tests if test.purpose == purpose)


def _against(claim: Claim, tests: tuple[ScoreTest, ...], budget: RiskBudget) -> Against:
    own = _counts_for(tests, "verdict")
    return against_jointly(own, claim, risk=budget.verdict, for_excess=budget.for_excess)


def _judged(claim: Claim, found: ScoreBounds, verdict: Against, delta: float) -> Judgement:
    """By every statement that has a share of the risk."""
    asked, tests, share = questions(delta), found.tests, found.shares
    own, gained = _counts_for(tests, "verdict"), found.budget.passed_on(refuted=verdict.refutes)
    statements = [verdict]
    for name in NUMBERS:
        if name in share:
            counts, gain = _counts_for(tests, name), gained.get(name, 0.0)
            statements.append(against(claim, counts, asked[name], risk=share[name], passed_on=gain))
    if found.band is not None:

        def wider_at(risk: float) -> tuple[Limits, ...]:
            return band_from_scores(*found.sides, risk=risk, rates=wider_rate_band).points

        statements.append(against_band(found.band.points, wider_at, claim, risk=found.budget.band))
    trials = min(min(counts.trials_without, counts.trials_with) for counts in own)
    judgement = judge_statements(
        tuple(statements),
        claim,
        risk=sum(share.values()),
        deciding=share["verdict"] / len(own),
        delta=delta,
        trials_per_side=trials,
    )
    zero, one = found.sides
    same = min(zero[0], one[0]) == max(zero[-1], one[-1])
    if same or (found.band is None and all(_splits_nothing(test.counts) for test in tests)):
        return of_scores_in_one_place(judgement)
    return dataclasses.replace(judgement, violated_at=at_best(judgement.violated_at, found))


def _splits_nothing(counts: ErrorCounts) -> bool:
    """Whether a test says the same of every score that it was counted on."""
    alarms = counts.false_alarms + counts.trials_with - counts.misses
    return alarms in (0, counts.trials_without + counts.trials_with)


def _counts(sides: tuple[Array, Array], test: Threshold) -> ErrorCounts:
    """Errors of a test on scores of both sides."""
    above = [int(np.count_nonzero(side > test.threshold)) for side in sides]
    zero, one = (len(side) for side in sides)
    if test.rejects == "above":
        false_alarms, misses = above[0], one - above[1]
    else:
        false_alarms, misses = zero - above[0], above[1]
    return ErrorCounts(false_alarms=false_alarms, trials_without=zero, misses=misses, trials_with=one)


def _less(all_scores: ErrorCounts, aside: ErrorCounts) -> ErrorCounts:
    return ErrorCounts(
        **{
            field.name: getattr(all_scores, field.name) - getattr(aside, field.name)
            for field in dataclasses.fields(ErrorCounts)
        }
    )


def one_column(name: str, values: ArrayLike, *, least: int = 4) -> Array:
    """Scores as a one-dimensional array, infinite ones among them, or an error that says what is wrong and where."""
    scores = np.asarray(values)
    if scores.ndim == 2 and 1 in scores.shape:
        scores = scores.ravel()
    require(name, scores.ndim == 1, "a one-dimensional array of scores", f"shape {scores.shape}")
    require(name, scores.dtype.kind in "biuf", "an array of real numbers", scores.dtype)
    require(name, len(scores) >= least, f"at least {least} scores", counted(len(scores), "score"))
    scores = scores.astype(float)
    if np.isnan(scores).any():
        where = int(np.argmax(np.isnan(scores)))
        raise ValueError(f"{name}[{where}] is {scores[where]}; a score is a number. Repair the trial, do not drop it.")
    return scores


def _finite(sides: tuple[Array, Array]) -> tuple[Array, Array]:
    """The same order, with infinite scores a step beyond the others, which a model of the scores needs."""
    both = np.concatenate(sides)
    known = both[np.isfinite(both)]
    if known.size == both.size:
        return sides
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    step = min(max(high - low, 1.0), float(np.finfo(float).max) / 4)
    zero, one = (np.nan_to_num(side, posinf=high + step, neginf=low - step) for side in sides)
    return zero, one
