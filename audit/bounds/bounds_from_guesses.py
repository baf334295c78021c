"""Bounds from one training with many coins: how many guesses can be right at most, whatever the training correlates."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr, ndtri

from audit.bounds.binomial import binomial_cdf, binomial_tail
from audit.bounds.implied import LARGEST_MU, TOLERANCE
from audit.bounds.supporting_lines import tabulate
from guarantees.numerics.search import halved
from guarantees.trade_off import TradeOff

ROUNDING = 1e-15
"""Absolute error of rates near 1, subtracted from what a supporting line demands."""
REACH = 10.0
"""Deviations beyond which binomial masses are too small to be summed."""
Inverse = Callable[[float], float]
"""Function that gives the smallest false-alarm rate at which a trade-off curve allows a detection rate."""


def worst_tail(correct: int, guesses: int, *, epsilon: float, exposed: float) -> float:
    """Largest probability that an (epsilon, delta)-DP training lets ``correct`` or more of the guesses be right.

    ``P(C >= v) <= F + (1 - F) (B / v) F / b``, F and b being the tail and the mass at v of Bin(k, e^eps/(1 + e^eps))
    and ``B`` (``exposed``) delta times the coins, or half of it where all guesses are for the same side. It grows with
    epsilon. Sharp where the training is free in how many coins it guesses 'in' and how many 'out', valid where these
    numbers are fixed; below one half it is less than theorem 5.2 of [steinke2023] allows.
    [docs/one-run-validity.md, 'A fixed number of guesses']
    """
    if correct <= 0:
        return 1.0
    chance = expit(epsilon)
    tail = float(binomial_tail(correct - 1, guesses, chance))
    below = 1 - tail if tail < 0.5 else float(binomial_cdf(correct - 1, guesses, chance))
    if exposed == 0 or below == 0:
        return tail
    # F / b and not F alone: far in the tail F is 0 to machine precision, and what delta exposes is not.
    log_leak = math.log(below) + log_tail_ratio(correct, guesses, epsilon=epsilon) + math.log(exposed / correct)
    return min(1.0, tail + math.exp(min(log_leak, 0.0)))


def capped_tail(correct: int, guesses: int, *, epsilon: float, exposed: float, split: float) -> float:
    """Smallest risk r with ``F <= split r`` and ``(B / v) F / b <= (1 - split) r``, for numbers of guesses chosen late.

    The number of guesses may depend on scores and on coins that are not guessed.
    [docs/one-run-validity.md, 'Inside out']
    """
    if correct <= 0:
        return 1.0
    tail = float(binomial_tail(correct - 1, guesses, expit(epsilon))) / split
    if exposed == 0:
        return min(1.0, tail)
    log_stake = log_tail_ratio(correct, guesses, epsilon=epsilon) + math.log(exposed / correct / (1 - split))
    return min(1.0, max(tail, math.exp(min(log_stake, 0.0))))


def log_tail_ratio(correct: int, guesses: int, *, epsilon: float) -> float:
    """``log(P(X >= v) / P(X = v))`` for X ~ Bin(k, e^eps/(1 + e^eps)), summed up from ratios of neighbouring masses.

    ``b_{j+1}/b_j = e^eps (k - j)/(j + 1)`` falls with j and grows with epsilon, so every term of the sum grows with
    epsilon. Terms beyond ``REACH`` deviations of the wrong guesses are left out: together less than 1e-20 of the sum.
    """
    wrong = guesses * float(expit(-epsilon))
    terms = math.ceil(max(0.0, guesses - wrong - correct) + REACH * math.sqrt(wrong) + REACH**2)
    steps = np.arange(min(guesses - correct, terms))
    logs = np.cumsum(epsilon + np.log((guesses - correct - steps) / (correct + 1 + steps)))
    most = max(0.0, float(logs.max(initial=0.0)))
    return most + math.log(math.exp(-most) + float(np.exp(logs - most).sum()))


def epsilon_from_guesses(correct: int, guesses: int, *, exposed: float, risk: float) -> float:
    """Largest epsilon at which this many right guesses have probability at most ``risk``; 0 if none."""

    def refuted(epsilon: float) -> bool:
        return worst_tail(correct, guesses, epsilon=epsilon, exposed=exposed) <= risk

    return _largest(refuted, highest_epsilon(guesses, risk=risk))


def capped_epsilon(correct: int, guesses: int, *, exposed: float, risk: float, split: float) -> float:
    """Largest epsilon at which this many right guesses have a capped tail of at most ``risk``; 0 if none."""

    def refuted(epsilon: float) -> bool:
        return capped_tail(correct, guesses, epsilon=epsilon, exposed=exposed, split=split) <= risk

    return _largest(refuted, highest_epsilon(guesses, risk=risk))


def highest_epsilon(guesses: int, *, risk: float) -> float:
    """Largest epsilon that guesses can refute: all k are right with probability at least chance^k."""
    most = math.expm1(-math.log(risk) / guesses)
    return -math.log(most) if most < 1 else 0.0


def curve_refuted(correct: int, guesses: int, *, coins: float, inverse: Inverse, risk: float) -> bool:
    """Whether no training that keeps a curve gets this many guesses right with probability above ``risk``.

    ``sum_{j>=c} j p_j / n <= 1 - f(sum_{j>=c-1} (k - j) p_j / n)`` for every c, p being the law of the number of right
    guesses and n (``coins``) the number of coins, or half of it where all guesses are for one side. The smallest law
    with ``P(C >= v) = risk`` is built from above; if its mass exceeds 1 the curve is refuted. Sharp where all guesses
    are right, valid always. [mahloujifar2024; docs/one-run-validity.md, 'A fixed number of guesses']
    """
    right, wrong = risk * correct, risk * (guesses - correct)
    for count in range(correct - 1, -1, -1):
        if right > coins * (1 + TOLERANCE) or right + wrong > guesses * (1 + TOLERANCE):
            return True
        needed = coins * inverse(min(1.0, right / coins))
        if needed <= wrong:
            return False
        right += count / (guesses - count) * (needed - wrong)
        wrong = needed
    return right + wrong > guesses * (1 + TOLERANCE)


def curve_p_value(correct: int, guesses: int, *, coins: float, inverse: Inverse) -> float:
    """Smallest risk at which the guesses refute the curve, rounded up by at most 1%; 1 if there is none below 1."""
    if correct == 0 or not curve_refuted(correct, guesses, coins=coins, inverse=inverse, risk=1 - 1e-9):
        return 1.0

    def hit(log_risk: float) -> bool:
        return curve_refuted(correct, guesses, coins=coins, inverse=inverse, risk=math.exp(log_risk))

    return min(1.0, math.exp(halved(hit, math.log(1e-300), 0.0, within=0.01)[1]))


def mu_refuted(correct: int, guesses: int, *, coins: float, risk: float, above: float = 0.0) -> float:
    """Largest mu such that the guesses refute mu-GDP, if it exceeds ``above``; else ``above``.

    It says that the training is not mu-GDP, and nothing about (epsilon, delta).
    """

    def refuted(mu: float) -> bool:
        return curve_refuted(correct, guesses, coins=coins, inverse=gaussian_inverse(mu), risk=risk)

    return max(above, _largest(refuted, LARGEST_MU, above)) if correct else above


def gaussian_inverse(mu: float) -> Inverse:
    """The function ``1 - f`` inverted for mu-GDP."""
    return lambda rate: float(ndtr(ndtri(rate) - mu))


def inverse_of(curve: TradeOff) -> Inverse:
    """The function ``1 - f`` inverted for any curve, from its supporting lines; never above the truth."""
    lines = tabulate(curve)
    falling = lines.slope > 0
    x, y, slope = lines.x[falling], lines.y[falling], lines.slope[falling]
    order = np.argsort(-y, kind="stable")
    x, y, slope = x[order].tolist(), y[order].tolist(), slope[order].tolist()
    detected = [1 - value for value in y]

    def inverse(rate: float) -> float:
        near = bisect.bisect_left(detected, rate)
        # Every line bounds the curve, so taking only the nearest ones costs tightness at most.
        each = range(max(near - 2, 0), min(near + 2, len(x)))
        return max((x[i] + (y[i] - (1 - rate) - ROUNDING) / slope[i] for i in each), default=0.0)

    return inverse


def _largest(refuted: Callable[[float], bool], high: float, low: float = 0.0) -> float:
    """The end of the refuted numbers between ``low`` and ``high``, by halving, as refutations are nested."""
    if not refuted(low):
        return low
    return max(0.0, halved(lambda value: not refuted(value), low, high, within=TOLERANCE)[0] - TOLERANCE)
