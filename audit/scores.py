"""Bounds for people who already have scores, from anywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from audit.bounds.chosen_threshold import Threshold, best_threshold, scores_to_choose, strongest_threshold
from audit.bounds.clopper_pearson import ErrorCounts, require_risk
from audit.bounds.output_scores import are_outputs, copies, counting_column, learned_scores, rows_of_outputs
from audit.risk import Statement, shared
from audit.verdict.proven_numbers import questions
from audit.verdict.score_bounds import ScoreBounds, ScoreCells, ScoreTest, concluded, statements
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
DIFFER: Mapping[str, str] = MappingProxyType(
    {
        "any": "the two datasets differ in one record only",
        "add_remove": "the two datasets differ in one record only, which is added or removed",
        "zero_out": "the two datasets differ in one record only, whose gradient is set to zero",
        "substitution": "the two datasets differ in one record only, which is exchanged for another",
    }
)
"""What a claim supposes, by its relation."""


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
    name: str | None = None,
) -> ScoreBounds:
    """Valid lower bounds from scores or outputs that you already have, one per trial on each dataset.

    Where a trial has several numbers it is an output: a third of the outputs, drawn by ``seed``, learns a score, and
    the others are scored and judged.

    Not guaranteed: anything if the scores were used to choose the attack, the thresholds or ``delta``, or if the trials
    are not independent. ``conditions`` of the result lists what you must vouch for. [docs/validity.md, section 13]

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
      name: what records and reports call it, by default "given scores" or "given outputs".

    Numbers are read as float64. Integers above 2**53 are rounded and those above 1e308 infinite, which keeps the bounds
    valid: it is one and the same function of every score, which ties some and exchanges none.

    Returns:
      Bounds that answer ``epsilon(delta)``, ``delta(epsilon)``, ``mu`` and, with a claim, ``verdict``. With a claim,
      ``audit.save_records`` and ``audit.write_report`` take them among records.

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
    require("thresholds", bool(np.isfinite(thresholds).all()), "finite numbers", thresholds)
    require("seed", seed >= 0, "at least 0", seed)
    given, learned_from = _scores(without, with_record, thresholds, seed)
    stated = statements(claim, target)
    share = shared(risk, stated, on_band=1.0).shares
    chosen = _fixed(given, thresholds, stated) if thresholds else chosen_tests(given, share, claim, delta, seed)
    zero, one = (np.sort(side) for side in _finite(given, beyond=thresholds))
    vouched = OF_OUTPUTS if learned_from else (*CONDITIONS, FIXED_CONDITION if thresholds else SEED_CONDITION)
    if (copied := copied_trials(without, with_record)) is not None:
        vouched = (f"{vouched[0]}, although {copied}", *vouched[1:])
    if claim is not None:
        vouched = (*vouched, DIFFER[claim.relation])
    found = concluded(chosen, ScoreCells.of((zero, one), chosen), risk=risk, claim=claim, delta=delta, target=target)
    return dataclasses.replace(
        found,
        seed=None if thresholds else seed,
        conditions=vouched,
        sides=(zero, one),
        learned_from=learned_from,
        name=name or ("given scores" if learned_from is None else "given outputs"),
    )


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
            f"a trial has {counted(widths[0], 'number')} without the record and {widths[1]} with it: pass two files "
            "of outputs, or two of scores, from the same code."
        )
    require("thresholds", not thresholds, "left out where the score is learned from outputs", thresholds)
    if (place := counting_column(*sides)) is not None:
        raise ValueError(
            f"number {place + 1} of each output numbers the trials: whole numbers, each of them once. That is no part "
            "of a release, and it may tell the two sides apart; leave this column out."
        )
    found = learned_scores(*sides, seed=seed)
    return (found.without, found.with_record), found.learned_from


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
    require(f"the number of scores in {name}", len(scores) >= least, f"at least {least}", len(scores))
    scores = scores.astype(float)
    if np.isnan(scores).any():
        where = int(np.argmax(np.isnan(scores)))
        raise ValueError(f"{name}[{where}] is {scores[where]}; a score is a number. Repair the trial, do not drop it.")
    return scores


def _finite(sides: tuple[Array, Array], *, beyond: tuple[float, ...] = ()) -> tuple[Array, Array]:
    """The same order, with infinite scores a step beyond the others and ``beyond``, which a model of them needs."""
    both = np.concatenate(sides)
    if np.isfinite(both).all():
        return sides
    known = np.concatenate([both[np.isfinite(both)], beyond])
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    step = min(max(high - low, 1.0), float(np.finfo(float).max) / 4)
    zero, one = (np.nan_to_num(side, posinf=high + step, neginf=low - step) for side in sides)
    return zero, one
