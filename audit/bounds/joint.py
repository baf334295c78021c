"""Exact p-value of 'the mechanism keeps the claimed curve' from both error counts together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.special import xlogy

from audit.bounds.binomial import binomial_cdf_table, binomial_quantile, binomial_upper_quantile
from audit.bounds.clopper_pearson import ErrorCounts, clopper_pearson_interval
from audit.bounds.supporting_lines import Corners, SupportingLines, corners, tabulate
from guarantees.checks import checked, require
from guarantees.claim import Claim
from guarantees.numerics.array import Array
from guarantees.numerics.search import halved
from guarantees.trade_off import TradeOff

GAMMA_SHARE = 0.02
"""Share of a risk that is spent on an interval for alpha."""
NEGLECTED = 1e-11
"""Binomial mass left out of the sums at either end; it is added to the p-value."""
GOLDEN_STEPS = 44
CROSSING_ROUNDS = 24
FEW = 48
"""Points up to which sections find the nearest places sooner than golden ones, which ask for one place at a time."""
PARTS, SECTIONS = 64, 9
SLACK = 3e-6
NULL_POINTS = 24
NEWTON_STEPS = 6
PEAKS = 3
FAN = 65


Edge = tuple[Array, Array]
"""False-alarm rates, increasing, and miss rates of a line on which T is one number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """All counts that speak against the claim at least as strongly as T: ``misses <= limit(false alarms)``.

    Neighbouring numbers of false alarms are grouped where there are very many; a group takes its largest limit,
    which can only enlarge the region.
    """

    first: Array
    last: Array
    limit: Array


@checked
def joint_p_value(counts: ErrorCounts, claim: Claim | TradeOff, *, gamma: float = 1e-3) -> float:
    """P-value of the claim ``beta >= f(alpha)`` from the counts of one test.

    ``T = min_x n0 KL(a/n0 || x) + n1 KL(m/n1 || f(x))`` where the point (a/n0, m/n1) lies below the curve;
    ``p = gamma + sup P{T(A, M) >= T}`` over x in the Clopper-Pearson interval of a at risk gamma, A ~ Bin(n0, x),
    M ~ Bin(n1, f(x)). [bergerboos1994; docs/validity.md, section 3]

    Holds for one test fixed before these trials, and for one gamma fixed before them; p never falls below gamma, so
    choose gamma well below the risk (a fiftieth of it, say). A large p-value shows nothing.
    """
    return joint_p_value_of_lines(counts, tabulate(claim), gamma=gamma)


def joint_p_value_of_lines(counts: ErrorCounts, lines: SupportingLines, *, gamma: float) -> float:
    """P-value of a claim given by its supporting lines, from the counts of one test."""
    require("gamma", 0 < gamma < 1, "in (0, 1)", gamma)
    statistic = evidence(counts, lines)
    if statistic <= 0:
        return 1.0
    # The slack covers the searches' tolerance, so that the observed counts are in their own region.
    return p_value_of(statistic * (1 - SLACK), lines, counts, gamma=gamma)


def p_value_of(statistic: float, lines: SupportingLines, counts: ErrorCounts, *, gamma: float) -> float:
    """The p-value for a given value of the statistic, with the interval from the observed false alarms."""
    low, high = clopper_pearson_interval(counts.false_alarms, counts.trials_without, gamma)
    region = region_of(statistic, lines, counts, *groups(low, high, counts.trials_without))
    return min(1.0, gamma + 2 * NEGLECTED + supremum(region, lines, counts, low, high))


def evidence(counts: ErrorCounts, lines: SupportingLines) -> float:
    """The statistic T of the counts; 0 on or above the curve."""
    rates = counts.false_alarms / counts.trials_without, counts.misses / counts.trials_with
    return evidence_at(rates, lines, trials=(counts.trials_without, counts.trials_with))


def evidence_at(rates: tuple[float, float], lines: SupportingLines, *, trials: tuple[int, int]) -> float:
    """The statistic T at any error rates."""
    return float(evidence_at_all(np.array([rates[0]]), np.array([rates[1]]), lines, trials=trials)[0])


def evidence_at_all(alpha: Array, beta: Array, lines: SupportingLines, *, trials: tuple[int, int]) -> Array:
    """The statistic T at many error rates at once."""
    found = np.zeros(alpha.shape)
    below = beta < lines.below(alpha)
    alpha, beta = alpha[below], beta[below]
    # The nearest point of the curve lies neither below the point nor further right than straight up is far, and
    # KL(p || x) >= (x - p)^2 / (2 x) for x > p.
    straight = trials[1] * divergence(beta, lines.below(alpha)) / trials[0]
    reach = np.minimum(alpha + straight + np.sqrt(straight * (straight + 2 * alpha)), 1.0)

    def cost(x: Array) -> Array:
        return trials[0] * divergence(alpha, x) + trials[1] * divergence(beta, lines.below(x))

    if len(alpha) <= FEW:
        found[below] = _least_of_few(cost, alpha, reach)
    else:
        top = halved(lambda x: ~(lines.below(x) > beta), alpha, reach, rounds=CROSSING_ROUNDS)[1]
        found[below] = _least(cost, alpha, top)
    return found


def region_of(statistic: float, lines: SupportingLines, counts: ErrorCounts, first: Array, last: Array) -> Region:
    """The counts with T at least ``statistic``, for groups ``first..last`` of numbers of false alarms.

    Where T is less, the set of rates (p, q) is convex, since KL is and the claim is. Its lower edge is traced through
    the corners of the claim, and chords between traced points stay inside it: the region found is never too small.
    """
    return region_below(edge_of(statistic, lines, counts), counts, first, last)


def edge_of(statistic: float, lines: SupportingLines, counts: ErrorCounts) -> Edge | None:
    """The curve of rates on which T equals ``statistic``; None if not even zero errors on both sides reach it."""
    claim = corners(lines)
    most = -counts.trials_without * np.log1p(-claim.x) - counts.trials_with * np.log1p(-claim.y)
    return None if not most.size or most.min() < statistic else _level_set(statistic, claim, counts)


def region_below(edge: Edge | None, counts: ErrorCounts, first: Array, last: Array) -> Region:
    """The region of a statistic whose edge is known."""
    if edge is None:
        return Region(first=first, last=last, limit=np.full(np.shape(first), -1, np.int64))
    p, q = edge
    rate = np.asarray(first, float) / counts.trials_without
    limit = np.floor(counts.trials_with * np.interp(rate, p, q) * (1 + 1e-12) + 1e-6)
    beyond = rate > p[-1]
    return Region(first=first, last=last, limit=np.where(beyond, -1, limit).astype(np.int64))


def _level_set(statistic: float, claim: Corners, counts: ErrorCounts) -> Edge:
    """Points (p, q), by increasing p, with T(p, q) = statistic, and where their curve meets the axes.

    The points nearest to (x, y) on a curve of slope c lie on the ray ``p = x - s (n1/n0) c x(1-x)``,
    ``q = y - s y(1-y)``, along which T grows; Newton's method finds s.
    """
    n0, n1 = counts.trials_without, counts.trials_with
    x, y, slope = _fan(claim)
    step_p = (n1 / n0) * slope * x * (1 - x)
    step_q = y * (1 - y)
    to_left, to_bottom = x / step_p, y / step_q
    end = np.minimum(to_left, to_bottom)

    def along(s: Array) -> tuple[Array, Array, Array]:
        p, q = np.maximum(x - s * step_p, 0.0), np.maximum(y - s * step_q, 0.0)
        return p, q, n0 * divergence(p, x) + n1 * divergence(q, y)

    p_end, q_end, most = along(end)
    s = np.minimum(end, np.sqrt(2 * statistic / (n0 * step_p**2 / (x * (1 - x)) + n1 * step_q)))
    for _ in range(NEWTON_STEPS):
        p, q, level = along(np.minimum(s, end * (1 - 1e-12)))
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = -n0 * step_p * np.log(p * (1 - x) / (x * (1 - p))) - n1 * step_q * np.log(
                q * (1 - y) / (y * (1 - q))
            )
            # counts on the curve have a statistic that is all rounding, and a ray too short for floats to show
            step = np.where(growth > 0, (level - statistic) / growth, 0.0)
        s = np.clip(s - step, s / 8, end)
    p, q, _ = along(s)
    inside = most > statistic
    left, bottom = ~inside & (to_left <= to_bottom), ~inside & (to_left > to_bottom)
    at_left = [q_end[left].min()] if left.any() else []
    at_bottom = [p_end[bottom].min()] if bottom.any() else []
    p = np.concatenate([np.zeros(len(at_left)), p[inside], at_bottom])
    q = np.concatenate([at_left, q[inside], np.zeros(len(at_bottom))])
    order = np.argsort(p, kind="stable")
    return p[order], q[order]


def probability(region: Region, alpha: Array, beta: Array, counts: ErrorCounts) -> Array:
    """Probability of the region under each pair of error rates."""
    edges = np.append(region.first - 1, region.last[-1])
    mass = np.diff(binomial_cdf_table(edges, counts.trials_without, alpha), axis=1)
    return np.sum(mass * binomial_cdf_table(region.limit, counts.trials_with, beta), axis=1)


def supremum(region: Region, lines: SupportingLines, counts: ErrorCounts, low: float, high: float) -> float:
    """Largest probability of the region along the curve between two false-alarm rates."""
    angle = np.linspace(np.arcsin(np.sqrt(low)), np.arcsin(np.sqrt(high)), NULL_POINTS)
    x = np.sin(angle) ** 2
    y = lines.below(x)
    spread = np.sin(np.linspace(np.arcsin(np.sqrt(y[-1])), np.arcsin(np.sqrt(y[0])), NULL_POINTS)) ** 2
    # Points evenly spread in beta as well: a steep curve would be stepped over otherwise.
    dense = np.sin(np.linspace(angle[0], angle[-1], 4096)) ** 2
    x = np.unique(np.concatenate([x, np.interp(spread, lines.below(dense)[::-1], dense[::-1])]))
    return highest(lambda x: probability(region, x, lines.below(x), counts), x, peaks=PEAKS, rounds=3, points=13)[0]


def highest(
    function: Callable[[Array], Array], grid: Array, *, peaks: int, rounds: int, points: int
) -> tuple[float, float]:
    """Largest value of a function, on a grid that is refined around its highest peaks, and where it is."""
    found = function(grid)
    best = float(found.max()), float(grid[found.argmax()])
    tops = np.flatnonzero((found >= np.r_[-1, found[:-1]]) & (found >= np.r_[found[1:], -1]))
    for top in tops[np.argsort(-found[tops])][:peaks]:
        left, right = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        for _ in range(rounds):
            inner = np.linspace(left, right, points)
            values = function(inner)
            at = int(values.argmax())
            best = max(best, (float(values[at]), float(inner[at])))
            left, right = inner[max(at - 1, 0)], inner[min(at + 1, points - 1)]
    return best


def groups(low: float, high: float, trials: int, *, fineness: int = 50) -> tuple[Array, Array]:
    """Likely numbers of false alarms for rates low..high, in groups of a fiftieth of a deviation or less."""
    first = binomial_quantile(NEGLECTED, trials, low) if low > 0 else 0
    last = binomial_upper_quantile(NEGLECTED, trials, high) if high < 1 else trials
    rate = (low + high) / 2
    width = max(1, int(np.sqrt(trials * rate * (1 - rate)) / fineness))
    start = np.arange(first, last + 1, width)
    return start, np.minimum(start + width - 1, last)


def _least(value: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Smallest value of a function with one valley between ``low`` and ``high``, by golden sections.

    T has one valley along the curve: the set above a convex curve meets each convex sublevel set in an interval.
    """
    ratio = (np.sqrt(5.0) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = value(left), value(right)
    least = np.minimum(np.minimum(value(low), value(high)), np.minimum(at_left, at_right))
    for _ in range(GOLDEN_STEPS):
        down = at_left <= at_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        probe = np.where(down, high - ratio * (high - low), low + ratio * (high - low))
        found = value(probe)
        left, right = np.where(down, probe, right), np.where(down, left, probe)
        at_left, at_right = np.where(down, found, at_right), np.where(down, at_left, found)
        least = np.minimum(least, found)
    return least


def _least_of_few(value: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Smallest value by sections into many parts: calling for many places takes hardly longer than for one."""
    least, share = np.full(low.shape, np.inf), np.linspace(0.0, 1.0, PARTS + 1)[:, None]
    for _ in range(SECTIONS):
        at = low + (high - low) * share
        found = value(at)
        best = found.argmin(axis=0)[None]
        least = np.minimum(least, np.take_along_axis(found, best, 0)[0])
        low, high = (np.take_along_axis(at, np.clip(best + step, 0, PARTS), 0)[0] for step in (-1, 1))
    return least


def divergence(p: Array | float, x: Array) -> Array:
    """Kullback-Leibler divergence of Bernoulli(p) from Bernoulli(x), without cancellation where they are close."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above = x * _excess((p - x) / x)
        below = (1 - x) * _excess((x - p) / (1 - x))
    if ((x > 0) & (x < 1)).all():
        return above + below
    above = np.where(x > 0, above, np.where(np.asarray(p) > 0, np.inf, 0.0))
    return above + np.where(x < 1, below, np.where(np.asarray(p) < 1, np.inf, 0.0))


def _excess(u: Array) -> Array:
    """``(1 + u) ln(1 + u) - u`` for u >= -1."""
    near = np.abs(u) < 0.02
    whole = 1 + u
    far = xlogy(whole, whole) - u
    if not near.any():
        return far
    series = u * u * (1 / 2 - u * (1 / 6 - u * (1 / 12 - u * (1 / 20 - u / 30))))
    return np.where(near, series, far)


def _fan(claim: Corners) -> tuple[Array, Array, Array]:
    """Every corner with its two extreme slopes, and a true kink of the claim with many in between."""
    kink = claim.steep > 1.05 * claim.flat
    share = np.linspace(0, 1, FAN)[:, None]
    between = claim.steep[kink] ** share * claim.flat[kink] ** (1 - share)
    return (
        np.concatenate([claim.x, claim.x, np.tile(claim.x[kink], FAN)]),
        np.concatenate([claim.y, claim.y, np.tile(claim.y[kink], FAN)]),
        np.concatenate([claim.steep, claim.flat, between.ravel()]),
    )
