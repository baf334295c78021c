"""Exact p-value of 'the mechanism keeps the claimed curve' from both error counts together."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import bdtr, betaincinv, xlogy
from scipy.stats import binom

from audit.bounds import ErrorCounts
from audit.supporting_lines import SupportingLines, tabulate
from guarantees.claim import Claim, require
from guarantees.loss_law import Array
from guarantees.trade_off import TradeOff

NEGLECTED = 1e-13
"""Binomial mass left out of the sums at either end; it is added to the p-value."""
TABLE_POINTS = 1024
LOCAL_POINTS = 25
NULL_POINTS = 48


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """All counts that speak against the claim at least as strongly as T: ``misses <= limit(false alarms)``.

    Neighbouring numbers of false alarms are grouped where there are very many; a group takes its largest limit,
    which can only enlarge the region.
    """

    first: Array
    last: Array
    limit: Array


def joint_p_value(counts: ErrorCounts, claim: Claim | TradeOff, *, gamma: float = 1e-3) -> float:
    """P-value of the claim ``beta >= f(alpha)`` from the counts of one test.

    ``T = min_x n0 KL(a/n0 || x) + n1 KL(m/n1 || f(x))`` where the point (a/n0, m/n1) lies below the curve;
    ``p = gamma + sup P{T(A, M) >= T}`` over x in the Clopper-Pearson interval of a at risk gamma, A ~ Bin(n0, x),
    M ~ Bin(n1, f(x)). [bergerboos1994; docs/validity.md, section 3]

    Holds for one test fixed before these trials, and for one gamma fixed before them; p never falls below gamma, so
    choose gamma well below the risk (a fiftieth of it, say). A large p-value shows nothing.
    """
    require("gamma", 0 < gamma < 1, "in (0, 1)", gamma)
    n0 = counts.trials_without
    low, high = _interval(counts.false_alarms, n0, gamma)
    first = binom.ppf(NEGLECTED, n0, low) if low > 0 else 0
    last = binom.isf(NEGLECTED, n0, high) if high < 1 else n0
    lines = tabulate(claim, low=max(0.0, (first - 1) / n0), points=TABLE_POINTS)
    statistic = evidence(counts, lines)
    if statistic <= 0:
        return 1.0
    groups = _groups(int(first), int(last), n0, (low + high) / 2)
    # The slack covers rounding in T, so that the observed counts are in their own region.
    region = region_of(statistic * (1 - 1e-10), lines, counts, *groups)
    return min(1.0, gamma + 2 * NEGLECTED + _supremum(region, lines, counts, low, high))


def evidence(counts: ErrorCounts, lines: SupportingLines) -> float:
    """The statistic T of the counts; 0 on or above the curve."""
    alpha = np.array([counts.false_alarms / counts.trials_without])
    beta = counts.misses / counts.trials_with
    if beta >= lines.below(alpha)[0]:
        return 0.0
    # The nearest point of the curve lies between the curve's points straight above and straight to the right.
    low, high = alpha, np.ones(1)
    for _ in range(60):
        middle = (low + high) / 2
        above = lines.below(middle) > beta
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    bottom, top = alpha, low

    def cost(x: Array) -> Array:
        near = counts.trials_without * _divergence(alpha[:, None], x)
        return near + counts.trials_with * _divergence(beta, lines.below(x))

    return float(_least(cost, bottom, top)[0])


def region_of(statistic: float, lines: SupportingLines, counts: ErrorCounts, first: Array, last: Array) -> Region:
    """The counts with T at least ``statistic``, for groups ``first..last`` of numbers of false alarms.

    Counts (a, m) belong to it iff ``m/n1 <= y`` for every x >= a/n0, y being the solution below f(x) of
    ``n1 KL(y || f(x)) = statistic - n0 KL(a/n0 || x)``.
    """
    n0, n1 = counts.trials_without, counts.trials_with
    alpha = np.asarray(first, float) / n0
    reach = _upper_divergence(alpha, np.full(alpha.shape, statistic / n0))

    def boundary(x: Array) -> Array:
        budget = np.maximum(statistic - n0 * _divergence(alpha[:, None], x), 0.0) / n1
        return _lower_divergence(lines.below(x), budget)

    rate = _least(boundary, alpha, reach)
    limit = np.where(rate < 0, -1, np.floor(n1 * rate * (1 + 1e-12) + 1e-9))
    return Region(first=first, last=last, limit=limit.astype(np.int64))


def probability(region: Region, alpha: Array, beta: Array, counts: ErrorCounts) -> Array:
    """Probability of the region under each pair of error rates."""
    alpha, beta = np.asarray(alpha, float)[:, None], np.asarray(beta, float)[:, None]
    if np.array_equal(region.first, region.last):
        mass = binom.pmf(region.first, counts.trials_without, alpha)
    else:
        mass = binom.cdf(region.last, counts.trials_without, alpha)
        mass = mass - binom.cdf(region.first - 1, counts.trials_without, alpha)
    met = np.where(region.limit < 0, 0.0, bdtr(np.maximum(region.limit, 0), counts.trials_with, beta))
    return np.sum(mass * met, axis=1)


def _supremum(region: Region, lines: SupportingLines, counts: ErrorCounts, low: float, high: float) -> float:
    """Largest probability of the region along the curve between two false-alarm rates."""
    angle = np.linspace(np.arcsin(np.sqrt(low)), np.arcsin(np.sqrt(high)), NULL_POINTS)
    x = np.sin(angle) ** 2
    y = lines.below(x)
    spread = np.sin(np.linspace(np.arcsin(np.sqrt(y[-1])), np.arcsin(np.sqrt(y[0])), NULL_POINTS)) ** 2
    # Points evenly spread in beta as well: a steep curve would be stepped over otherwise.
    dense = np.sin(np.linspace(angle[0], angle[-1], 4096)) ** 2
    x = np.unique(np.concatenate([x, np.interp(spread, lines.below(dense)[::-1], dense[::-1])]))
    found = probability(region, x, lines.below(x), counts)
    best = float(found.max())
    peaks = np.flatnonzero((found >= 0.9 * best) & (found >= np.r_[-1, found[:-1]]) & (found >= np.r_[found[1:], -1]))
    for peak in peaks:
        left, right = x[max(peak - 1, 0)], x[min(peak + 1, len(x) - 1)]
        for _ in range(3):
            inner = np.linspace(left, right, 13)
            values = probability(region, inner, lines.below(inner), counts)
            at = int(values.argmax())
            best = max(best, float(values[at]))
            left, right = inner[max(at - 1, 0)], inner[min(at + 1, 12)]
    return best


def _interval(errors: int, trials: int, gamma: float) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval at risk gamma. [clopper1934]"""
    low = 0.0 if errors == 0 else float(betaincinv(errors, trials - errors + 1, gamma / 2))
    high = 1.0 if errors == trials else float(betaincinv(errors + 1, trials - errors, 1 - gamma / 2))
    return low, high


def _groups(first: int, last: int, trials: int, rate: float) -> tuple[Array, Array]:
    """Consecutive numbers first..last, in groups no wider than a two-hundredth of a standard deviation."""
    width = max(1, int(np.sqrt(trials * rate * (1 - rate)) / 200))
    start = np.arange(first, last + 1, width)
    return start, np.minimum(start + width - 1, last)


def _least(value, low: Array, high: Array) -> Array:
    """Least value between ``low`` and ``high``, one search per entry: a grid, refined three times at its least."""
    steps = np.linspace(0.0, 1.0, LOCAL_POINTS)
    least = np.full(low.shape, np.inf)
    for _ in range(4):
        x = low[:, None] + (high - low)[:, None] * steps
        found = value(x)
        at = np.argmin(found, axis=1)
        rows = np.arange(len(low))
        least = np.minimum(least, found[rows, at])
        low, high = x[rows, np.maximum(at - 1, 0)], x[rows, np.minimum(at + 1, LOCAL_POINTS - 1)]
    return least


def _divergence(p: Array | float, x: Array) -> Array:
    """Kullback-Leibler divergence of Bernoulli(p) from Bernoulli(x)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = xlogy(p, p / x) + xlogy(1 - np.asarray(p), (1 - np.asarray(p)) / (1 - x))
    return np.where(np.isnan(value), np.inf, np.maximum(value, 0.0))


def _lower_divergence(y: Array, budget: Array) -> Array:
    """The q <= y with ``KL(q || y) = budget``; -1 where even q = 0 is nearer than that."""
    with np.errstate(divide="ignore"):
        impossible = (-np.log1p(-y) < budget) | ((y <= 0) & (budget > 0))
    low, high = np.zeros(y.shape), y.copy()
    for _ in range(40):
        middle = (low + high) / 2
        far = _divergence(middle, y) >= budget
        low, high = np.where(far, middle, low), np.where(far, high, middle)
    return np.where(impossible, -1.0, np.where(budget <= 0, y, high))


def _upper_divergence(p: Array, budget: Array) -> Array:
    """The x >= p with ``KL(p || x) = budget``."""
    low, high = p.copy(), np.ones(p.shape)
    for _ in range(60):
        middle = (low + high) / 2
        near = _divergence(p, middle) <= budget
        low, high = np.where(near, middle, low), np.where(near, high, middle)
    return high
