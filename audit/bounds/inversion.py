"""Lower bounds on epsilon, delta and mu from both error counts together: the joint test, inverted."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from audit.bounds import joint
from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu, Question
from audit.bounds.clopper_pearson import ErrorCounts, clopper_pearson_interval, require_risk
from audit.bounds.joint import GAMMA_SHARE, Region
from guarantees.checks import Delta, Share, checked
from guarantees.numerics.array import Array
from guarantees.numerics.root import root

DIRECTIONS = np.linspace(0, np.pi / 2, 17)
"""Ways to split a normal deviate between the two error rates: cos on alpha, sin on beta."""
MARGIN = 1e-3
"""Share by which the largest probability found along a curve is raised: the search is numerical."""
FEW = 100
"""Number of counts below which probabilities are searched in half deviations, and above in whole ones."""
FINENESS = 200
"""Numbers of false alarms are grouped by a standard deviation divided by this."""
MOST_POINTS = 48
MOST_ROUNDS = 30
LARGEST_ORDERING_RISK = 0.25
"""Larger risks order counts as this one does: at 1/2, no errors at all would already mean infinite epsilon."""
CLOSE = 1e-3
"""Share by which the bound's p-value is below the risk, roughly."""


@checked
def joint_epsilon_bound(counts: ErrorCounts, *, delta: Delta, risk: Share) -> float:
    """Largest epsilon at ``delta`` that both error counts together rule out, at the given risk.

    Counts are ordered by ``approximate_bound``; epsilon is excluded when counts ordered at least as high have
    probability at most the risk under every pair of error rates that it allows. [buehler1957; bergerboos1994;
    docs/validity.md, section 12]

    Holds for ONE number from one test, both fixed before these trials; two of them hold together only at the sum of
    their risks. Zero means "nothing shown", not "private".
    """
    return joint_bound(counts, EpsilonAt(delta=delta), risk=risk)


@checked
def joint_delta_bound(counts: ErrorCounts, *, epsilon: float, risk: Share) -> float:
    """Largest delta at ``epsilon`` that both error counts together rule out. Valid as joint_epsilon_bound is."""
    return joint_bound(counts, DeltaAt(epsilon=epsilon), risk=risk)


@checked
def joint_mu_bound(counts: ErrorCounts, *, risk: Share) -> float:
    """Largest mu such that mu-GDP is ruled out by both counts together. Valid as joint_epsilon_bound is."""
    return joint_bound(counts, Mu(), risk=risk)


def approximate_bound(
    false_alarms: ArrayLike, misses: ArrayLike, *, trials: tuple[int, int], question: Question, risk: float
) -> Array:
    """Approximate bound from score limits on both rates: it orders the counts and is near the exact bound.

    ``min over phi of theta(x, y)``, x and y the score limits at z cos(phi) and z sin(phi), z the normal quantile of the
    risk (of 1/4 if that is smaller). Not a bound: its error is that of the normal approximation. Counts need not be
    whole numbers.
    """
    z = _deviate(risk)
    # neither is made as large as both together: callers pair one count with many others
    a, m = np.asarray(false_alarms, float), np.asarray(misses, float)
    alpha = score_limit(a[..., None], trials[0], z * np.cos(DIRECTIONS))
    beta = score_limit(m[..., None], trials[1], z * np.sin(DIRECTIONS))
    return question.through(alpha, beta).min(-1)


def _deviate(risk: float) -> float:
    """The normal deviate whose score limits order the counts; any fixed order is valid."""
    return -float(ndtri(min(risk, LARGEST_ORDERING_RISK)))


def score_limit(errors: Array, trials: int, z: Array) -> Array:
    """Wilson's score limit: the rate u >= p with ``u - p = z sqrt(u (1 - u) / n)``. [wilson1927]"""
    p, spread = errors / trials, z * z / trials
    root = z * np.sqrt(np.maximum(p * (1 - p), 0.0) / trials + spread / (4 * trials))
    return np.minimum((p + spread / 2 + root) / (1 + spread), 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inversion:
    """The hypotheses 'theta or less' for given counts: their p-values grow with theta."""

    counts: ErrorCounts
    question: Question
    gamma: float
    low: float
    high: float
    """Upper end of the interval for alpha, which fails with probability gamma at most."""
    region: Region
    """Counts ordered at least as high as the observed ones: one set for all theta."""

    def p_value(self, theta: float) -> float:
        """P-value of 'the number is at most theta'."""
        return self.worst(theta)[0]

    def worst(self, theta: float) -> tuple[float, float]:
        """The p-value, and the false-alarm rate at which it is attained."""
        probability, alpha = self._highest(theta, self._rates(theta))
        return self._total(probability), alpha

    def p_value_among(self, theta: float, alpha: Array, beta: Array) -> float:
        """The p-value if only these false-alarm rates, and these miss rates, were possible."""
        also = self.question.curve(theta, np.append(beta, self.question.middle(theta)))
        rates = np.concatenate([alpha, np.clip(also, self.low, self.high)])
        return self._total(float(self._probability(theta, rates).max()))

    def _total(self, probability: float) -> float:
        return min(1.0, self.gamma + 2 * joint.NEGLECTED + (1 + MARGIN) * probability)

    def _probability(self, theta: float, alpha: Array) -> Array:
        """Probability of the region along the curve of theta."""
        return joint.probability(self.region, alpha, self.question.curve(theta, alpha), self.counts)

    def _rates(self, theta: float) -> Array:
        """False-alarm rates spread over the interval, evenly for alpha and evenly for beta."""
        ends = np.array([self.low, self.high])
        spread = _spread(ends, self.counts.trials_without)
        beta = _spread(np.sort(self.question.curve(theta, ends)), self.counts.trials_with)
        also = self.question.curve(theta, np.append(beta, self.question.middle(theta)))
        return np.unique(np.concatenate([spread, np.clip(also, self.low, self.high)]))

    def _highest(self, theta: float, alpha: Array) -> tuple[float, float]:
        return joint.highest(lambda x: self._probability(theta, x), alpha, peaks=2, rounds=2, points=7)


def _spread(ends: Array, trials: int) -> Array:
    """Rates from end to end, evenly spread on the variance-stabilising scale."""
    angle = np.arcsin(np.sqrt(ends))
    count = trials * min(ends.mean(), 1 - ends.mean())
    apart = (0.5 if count < FEW else 1.0) / (2 * math.sqrt(trials))
    points = int(np.clip(np.ceil((angle[1] - angle[0]) / apart), 4, MOST_POINTS)) + 1
    inside = np.sin(np.linspace(angle[0], angle[1], points)) ** 2
    # Rounding must not move an end inwards.
    return np.concatenate([ends[:1], inside[1:-1], ends[1:]])


def inversion(counts: ErrorCounts, question: Question, *, risk: float) -> Inversion | None:
    """The hypotheses about one number, ordered for a bound at ``risk``; None if the counts show nothing."""
    require_risk(risk)
    trials = counts.trials_without, counts.trials_with
    seen = float(approximate_bound(counts.false_alarms, counts.misses, trials=trials, question=question, risk=risk))
    if seen <= 0:
        return None
    gamma = GAMMA_SHARE * risk
    low, high = clopper_pearson_interval(counts.false_alarms, counts.trials_without, gamma)
    first, last = joint.groups(low, high, counts.trials_without, fineness=FINENESS)
    limit = _limits(first, counts, question, seen=seen, z=_deviate(risk))
    region = Region(first=first, last=last, limit=limit)
    return Inversion(counts=counts, question=question, gamma=gamma, low=low, high=high, region=region)


def _limits(false_alarms: Array, counts: ErrorCounts, question: Question, *, seen: float, z: float) -> Array:
    """Most misses with which each number of false alarms is ordered as high as ``seen``.

    ``theta(x, y) >= seen`` iff y is at most the curve of ``seen`` at x, and a score limit is at most y iff the count
    is at most ``n y - z sqrt(n y (1 - y))``.
    """
    alpha = score_limit(np.asarray(false_alarms, float)[:, None], counts.trials_without, z * np.cos(DIRECTIONS))
    beta, n = np.clip(question.curve(seen, alpha), 0.0, 1.0), counts.trials_with
    most = np.min(n * beta - z * np.sin(DIRECTIONS) * np.sqrt(n * beta * (1 - beta)), axis=-1)
    possible = np.all(question.through(alpha, 0.0) >= seen * (1 - 1e-12), axis=-1)
    limit = np.where(possible, np.floor(most * (1 + 1e-12) + 1e-6), -1).astype(np.int64)
    # Whatever rounding does, the counts seen are ordered as high as themselves.
    return np.where(np.asarray(false_alarms) <= counts.false_alarms, np.maximum(limit, counts.misses), limit)


@functools.lru_cache(maxsize=4096)
def joint_bound(counts: ErrorCounts, question: Question, *, risk: float, passed_on: float = 0.0) -> float:
    """Largest theta whose hypothesis has a p-value of at most ``risk + passed_on``; 0 if there is none.

    The p-values are those made for ``risk`` alone: with more passed on to it a bound only grows, so that one which is
    too high without is too high with it. [docs/validity.md, section 12] The root is found among a few false-alarm
    rates; the worst rate there joins them until none is worse.
    """
    test = inversion(counts, question, risk=risk)
    if test is None:
        return 0.0
    trials = counts.trials_without, counts.trials_with
    theta = float(approximate_bound(counts.false_alarms, counts.misses, trials=trials, question=question, risk=risk))
    risk += passed_on
    alpha, beta = np.zeros(0), np.zeros(0)
    for _ in range(MOST_ROUNDS):
        p, rate = test.worst(theta)
        if risk * (1 - 2 * CLOSE) <= p <= risk or theta == 0:
            return theta if p <= risk else 0.0
        alpha, beta = np.append(alpha, rate), np.append(beta, question.curve(theta, rate))
        theta = _root(test, alpha, beta, theta, risk=risk * (1 - CLOSE))
    return theta if test.p_value(theta) <= risk else 0.0


def _root(test: Inversion, alpha: Array, beta: Array, start: float, *, risk: float) -> float:
    """The theta near ``start`` at which the p-value among these rates equals the risk; 0 if it is always higher."""

    def excess(theta: float) -> float:
        return math.log(test.p_value_among(theta, alpha, beta) / risk)

    width, most = 0.01 * max(start, 1e-3), test.question.largest
    low = high = start
    if excess(start) > 0:
        while low > 0 and excess(low) > 0:
            low, high, width = max(0.0, low - width), low, 4 * width
        if low == 0 and excess(0.0) > 0:
            return 0.0
    else:
        while high < most and excess(high) <= 0:
            low, high, width = high, min(most, high + width), 4 * width
        if high == most and excess(most) <= 0:
            return most
    return root(excess, low, high, absolute=1e-9, relative=1e-7)
