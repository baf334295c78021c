"""Choosing the most promising threshold, on scores that are then set aside."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri

from audit.bounds.bounded_numbers import Mu, Question
from audit.bounds.inversion import approximate_bound
from audit.bounds.joint import divergence
from audit.bounds.supporting_lines import corners, tabulate
from guarantees.claim import Claim
from guarantees.numerics.array import Array

Side = Literal["above", "below"]
CANDIDATES = 160
"""Thresholds to try from each side's own scores, and as many from the models of both sides."""
STRENGTH = 12.0
"""Weight of a model that the scores contradict, in scores beyond a threshold."""
TRUSTED = 10.0
"""Weight of a model that the scores do not contradict, in multiples of all scores."""
CONTRADICTION = 0.95
"""Distance of a fitted distribution from the scores, times the root of their number, that contradicts it."""
QUANTILES = 400
FEWEST_FOR_A_CUBIC = 8
CURVE_POINTS = 128
REACH = 6.0
"""Standard deviations up to which thresholds are taken from the models."""
LEAST = 0.05
"""Level of the lower limit on a rate that the few scores beyond a threshold make plausible."""
MOST_BITS = 300
"""Most binary digits before a score's point, or zeros after it: squares and sums of others may overflow."""
DEVIATES = ndtri((np.arange(7) + 0.5) / 7)
"""Normal deviates of seven equally likely counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Threshold:
    """One test: a score above (or at most) the threshold means 'with the record'."""

    threshold: float
    rejects: Side


def scores_to_choose(scores: int) -> int:
    """How many of a side's scores choose the threshold: a tenth, at most 200,000."""
    return max(2, min(scores // 10, 200_000))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ScoreModel:
    """Estimated error rates of tests 'above t', from the scores and a smooth model of each side. Nothing is proven.

    A rate is ``m (k + s) / (n m + s)``: k of n scores lie beyond the threshold, m is the rate of the model. It has a
    large s where the scores do not contradict it; otherwise it speaks only where few scores lie. If the tails are
    heavier than the model's, a lower limit from k alone takes over.

    If the scores contradict the model, ``accounts`` has a second opinion: that of the scores alone. The model alone
    would overlook a gap in which no score lies; the scores alone would take every lucky gap for one.
    """

    without: Array
    with_record: Array
    """Scores in increasing order."""

    def rates(self, threshold: Array) -> tuple[Array, Array]:
        """Estimated false-alarm and miss rates."""
        alpha, beta = self.accounts(threshold)
        return alpha[0], beta[0]

    def accounts(self, threshold: Array) -> tuple[Array, Array]:
        """Estimated rates twice, shape (2, thresholds): with the model, and without it if the scores contradict it."""
        return _beyond(self.without, threshold), 1 - _beyond(self.with_record, threshold)

    def thresholds(self) -> Array:
        """Thresholds worth trying: quantiles of both sides, and evenly spread ones up to where the models end."""
        return _thresholds(self.without, self.with_record)


def best_threshold(
    without: Array, with_record: Array, question: Question, *, trials: tuple[int, int], risk: float
) -> Threshold:
    """The test with the best expected bound for this many further trials of each side, in either direction."""
    return _in_reach(
        without,
        with_record,
        lambda alpha, beta: expected_bound(alpha, beta, question, trials=trials, risk=risk),
    )


def strongest_threshold(without: Array, with_record: Array, claim: Claim, *, trials: tuple[int, int]) -> Threshold:
    """The test whose error rates lie furthest below the claim's curve, by the evidence per trial."""
    table = corners(tabulate(claim, points=CURVE_POINTS))
    if not len(table.x):
        return best_threshold(without, with_record, Mu(), trials=trials, risk=0.05)
    lines = tabulate(claim, points=CURVE_POINTS)

    def evidence(alpha: Array, beta: Array) -> Array:
        # One error more on either side, what one can still hope to show with so many trials.
        a, b = (trials[0] * alpha + 1) / (trials[0] + 2), (trials[1] * beta + 1) / (trials[1] + 2)
        distance = divergence(a[..., None], table.x) * trials[0] + divergence(b[..., None], table.y) * trials[1]
        return np.where(b < lines.below(a), distance.min(-1), lines.below(a) - b)

    return _in_reach(without, with_record, evidence)


def _in_reach(without: Array, with_record: Array, value: Callable[[Array, Array], Array]) -> Threshold:
    """The best threshold; scores whose squares may overflow are divided by a power of two first."""
    largest = max(float(np.abs(without).max()), float(np.abs(with_record).max()))
    bits = math.frexp(largest)[1]
    scale = 2.0 ** (bits - min(max(bits, -MOST_BITS), MOST_BITS))
    model = ScoreModel(without=np.sort(without / scale), with_record=np.sort(with_record / scale))
    found = _best(model, value)
    return dataclasses.replace(found, threshold=found.threshold * scale)


def _best(model: ScoreModel, value: Callable[[Array, Array], Array]) -> Threshold:
    """The threshold and the side with the largest value: searched widely first, then around the best."""

    def of(at: Array) -> tuple[Array, Array]:
        alpha, beta = model.accounts(at)
        alpha, beta = np.stack([alpha, 1 - alpha]), np.stack([beta, 1 - beta])
        # Where nothing can be shown every test is as good: take the one with the largest advantage.
        found = (value(alpha, beta) + 1e-9 * (1 - alpha - beta)).mean(axis=1)
        return found.max(axis=0), found.argmax(axis=0)

    at = model.thresholds()
    best = int(of(at)[0].argmax())
    near = np.linspace(at[max(best - 1, 0)], at[min(best + 1, len(at) - 1)], CANDIDATES // 4 + 1)
    at = np.append(near, at[best])
    found, side = of(at)
    best = int(found.argmax())
    return Threshold(threshold=float(at[best]), rejects="below" if side[best] else "above")


def expected_bound(alpha: Array, beta: Array, question: Question, *, trials: tuple[int, int], risk: float) -> Array:
    """Mean of ``approximate_bound`` over seven typical counts of either error.

    One count varies at a time, the other being its median: a bound is nearly a sum of what the two say.
    """
    false_alarms, misses = _typical_counts(alpha, trials[0]), _typical_counts(beta, trials[1])
    middle = len(DEVIATES) // 2
    pairs = (false_alarms, misses[middle]), (false_alarms[middle], misses)
    first, second = (approximate_bound(*pair, trials=trials, question=question, risk=risk) for pair in pairs)
    return first.mean(0) + second.mean(0) - first[middle]


def _typical_counts(rate: Array, trials: int) -> Array:
    """Quantiles of a binomial law by its deviation and skewness; no whole numbers, whose steps would look like gains.

    [cornish1938]
    """
    deviate = DEVIATES.reshape(-1, *[1] * np.ndim(rate))
    spread = np.sqrt(trials * rate * (1 - rate))
    return np.clip(trials * rate + deviate * spread + (deviate**2 - 1) * (1 - 2 * rate) / 6, 0.0, trials)


def _thresholds(without: Array, with_record: Array) -> Array:
    levels = np.concatenate([tail := np.geomspace(1e-4, 0.5, CANDIDATES // 2), 1 - tail])
    parts = []
    for side in (without, with_record):
        spread = max(float(side.std()), np.finfo(float).tiny)
        parts += [np.quantile(side, levels), side.mean() + spread * np.linspace(-REACH, REACH, CANDIDATES)]
    return np.unique(np.concatenate(parts))


def _beyond(ordered: Array, threshold: Array) -> Array:
    """Estimated probability of a score above each threshold, with the model and without it."""
    n = len(ordered)
    at_most = np.searchsorted(ordered, threshold, side="right")
    deviate, trusted = _model(ordered, threshold)
    strength = TRUSTED * n if trusted else STRENGTH
    above = _shrunk(n - at_most, n, ndtr(-deviate), strength)
    below = _shrunk(at_most, n, ndtr(deviate), strength)
    modelled = np.where(at_most > n / 2, above, 1 - below)
    return np.stack([modelled, modelled if trusted else (n - at_most + 0.5) / (n + 1)])


def _model(ordered: Array, threshold: Array) -> tuple[Array, bool]:
    """Normal deviates of the thresholds by the first model that fits the scores, and whether there is one.

    First a Gaussian, then deviates that are a cubic of the score; in the end the Gaussian all the same.
    """
    n, spread = len(ordered), max(float(ordered.std()), 1e-12 * (1 + abs(float(ordered.mean()))))
    scaled, at = (ordered - ordered.mean()) / spread, (threshold - ordered.mean()) / spread
    rank = (np.arange(n) + 0.5) / n

    def contradicted(deviate: Array) -> bool:
        return float(np.abs(ndtr(deviate) - rank).max()) > CONTRADICTION / math.sqrt(n)

    if not contradicted(scaled):
        return at, True
    kept = np.unique(np.linspace(0, n - 1, min(n, QUANTILES)).astype(int))
    if len(np.unique(scaled[kept])) < FEWEST_FOR_A_CUBIC:
        return at, False
    with warnings.catch_warnings():
        # one that fits badly is not believed below
        warnings.simplefilter("ignore", np.exceptions.RankWarning)
        cubic = np.polynomial.Polynomial.fit(scaled[kept], ndtri(rank[kept]), 3)
    far = cubic(np.linspace(-REACH, REACH, 200))
    if np.all(np.diff(far) > 0) and not contradicted(cubic(scaled)):
        # further out, where thresholds of the other side may lie, a cubic may turn back: a line goes on
        inside = np.clip(at, -REACH, REACH)
        return cubic(inside) + (at - inside), True
    return at, False


def _shrunk(seen: Array, n: int, model: Array, strength: float) -> Array:
    rate = model * (seen + strength) / (n * model + strength)
    plausible = np.where(seen > 0, gammaincinv(np.maximum(seen, 1), LEAST), 0.0) / n
    return np.clip(np.maximum(rate, plausible), 1e-12, 1.0)
