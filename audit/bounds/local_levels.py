"""A band for both error rates at every threshold at once, about equally tight at each threshold."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from audit.bounds.clopper_pearson import Limits, clopper_pearson_upper, require_risk
from guarantees.checks import require
from guarantees.laws.kept import kept
from guarantees.numerics.array import Array

SPACING = 0.5
"""Standard deviations of the count between neighbouring ranks of the band; in between it is monotone."""
DENSE = 400
"""Rank beyond which neighbours differ by a constant factor instead."""
LEAN = 0.2
"""Exponent of the local level, rank ** -LEAN: epsilon depends on small counts, which get somewhat more risk."""
SMALLEST_EXACT = 1e-7
"""Risk below which rounding hides the crossing probability: the ranks then share the risk evenly, a union bound."""
WITHIN = 2e-3
"""Share of the risk that may stay unspent."""
ROUNDING = 1e-5
"""Share of the risk left to the rounding of its computation."""
MOST_SECANTS = 20
TAIL = 9.5
"""Standard deviations of a Poisson count that the recursion keeps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateBand:
    """Upper limits on the probability of an event that grows with a threshold, from how often it was seen.

    ``limit[j]`` bounds every event seen fewer than ``rank[j]`` times in ``trials``.
    """

    trials: int
    risk: float
    local_level: float
    """Risk that the limit of rank 1 is wrong by itself; that of rank r is ``r ** -LEAN`` times as much."""
    rank: Array
    limit: Array

    def upper(self, seen: ArrayLike) -> Array:
        """Upper limits on the probabilities of nested events, simultaneously, from their counts."""
        counts = np.asarray(seen)
        require("seen", np.issubdtype(counts.dtype, np.integer), "integer counts", counts.dtype)
        require("seen", bool(np.all((counts >= 0) & (counts <= self.trials))), f"in 0..{self.trials}", seen)
        at = np.searchsorted(self.rank, counts, side="right")
        return np.append(self.limit, 1.0)[at]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdBand:
    """Upper limits on false-alarm and miss rates at thresholds, all valid at once."""

    threshold: Array
    alpha_upper: Array
    """Limits on P_without(score > threshold)."""
    beta_upper: Array
    """Limits on P_with(score <= threshold)."""
    risk: float

    @property
    def power_lower(self) -> Array:
        """Lower limits on P_with(score > threshold)."""
        return 1 - self.beta_upper

    @property
    def points(self) -> tuple[Limits, ...]:
        """The band as proven points of the trade-off plane, which hold together."""
        pairs = zip(self.alpha_upper, self.beta_upper, strict=True)
        return tuple(Limits(alpha=float(alpha), beta=float(beta)) for alpha, beta in pairs)


def band_from_scores(
    without: Array, with_record: Array, *, risk: float, rates: Callable[..., RateBand] | None = None
) -> ThresholdBand:
    """Limits on both error rates at every threshold at once, from the scores of both sides in increasing order.

    With a of n scores above t, ``alpha_U(t) = Beta.isf(eta_r; r, n-r+1)`` for the next set rank r > a, and likewise
    beta_U from the scores at or below t; the local levels eta_r are such that each side's limits all hold with
    probability 1 - risk/2, computed exactly. [owen1995; moscovich2017; docs/validity.md, section 5] Only the
    thresholds where a limit changes are kept: no other says more.

    No threshold need be fixed beforehand; the score must be. Ties, and discrete scores, make it conservative.
    ``rates`` makes each side's limits, by default ``rate_band``.
    """
    zero, one = len(without), len(with_record)
    threshold = band_thresholds(without, with_record)
    above = zero - np.searchsorted(without, threshold, side="right")
    return _band(threshold, above, np.searchsorted(with_record, threshold, side="right"), zero, one, risk, rates)


def band_thresholds(without: Array, with_record: Array) -> Array:
    """Where a limit of the band changes, from the scores of both sides in increasing order."""
    # Fewer than r scores lie above t from the r-th highest on; at most r - 1 at or below t, up to the r-th lowest.
    starts = without[len(without) - ranks(len(without))]
    ends = np.nextafter(with_record[ranks(len(with_record)) - 1], -np.inf)
    return np.unique(np.concatenate([starts, ends]))


def band_from_grid(
    edges: ArrayLike,
    cells_without: ArrayLike,
    cells_with: ArrayLike,
    *,
    risk: float,
    rates: Callable[..., RateBand] | None = None,
) -> ThresholdBand:
    """The band from integer counts of scores in cells: cell i holds scores in (edge i-1, edge i].

    There is one cell more than there are edges: the last holds what lies above all edges. ``rates`` makes each side's
    limits, by default ``rate_band``.
    """
    at = np.asarray(edges, float)
    sides = []
    for name, value in (("cells_without", cells_without), ("cells_with", cells_with)):
        cells = np.asarray(value)
        require(name, np.issubdtype(cells.dtype, np.integer), "integer counts", cells.dtype)
        require(name, cells.shape == (at.size + 1,), f"{at.size + 1} counts", cells.shape)
        require(name, bool(np.all(cells >= 0)) and cells.sum() > 0, ">= 0 and not all 0", value)
        sides.append(np.cumsum(cells.astype(np.int64)))
    above = sides[0][-1] - sides[0][:-1]
    return _band(at, above, sides[1][:-1], int(sides[0][-1]), int(sides[1][-1]), risk, rates)


def _band(
    threshold: Array,
    above: Array,
    below: Array,
    trials_without: int,
    trials_with: int,
    risk: float,
    rates: Callable[..., RateBand] | None = None,
) -> ThresholdBand:
    require_risk(risk)
    rates = rates or rate_band
    return ThresholdBand(
        threshold=threshold,
        alpha_upper=rates(trials_without, risk=risk / 2).upper(above),
        beta_upper=rates(trials_with, risk=risk / 2).upper(below),
        risk=risk,
    )


def ranks(trials: int) -> Array:
    """Ranks at which the band is set, mirrored: all small and all large ones, fewer in the middle."""
    low = [1]
    while low[-1] <= trials // 2:
        near = min(low[-1], DENSE)
        low.append(low[-1] + max(1, int(SPACING * low[-1] / np.sqrt(near))))
    half = np.array(low[:-1], np.int64) if len(low) > 1 else np.ones(1, np.int64)
    return np.unique(np.concatenate([half, trials + 1 - half]))


def _limits(trials: int, rank: Array, log_level: float) -> Array:
    return clopper_pearson_upper(rank - 1, trials, risk=np.exp(log_level) * rank.astype(float) ** -LEAN)


@functools.lru_cache(maxsize=32)
def rate_band(trials: int, *, risk: float) -> RateBand:
    """Simultaneous upper limits whose local levels together exhaust the risk, up to a thousandth of it."""
    require("trials", trials >= 1, ">= 1", trials)
    require_risk(risk)
    rank = ranks(trials)
    found = None
    if risk >= SMALLEST_EXACT and len(rank) > 1:
        # by itself rank 1 spends its level, and all together at most the sum
        lowest, highest = np.log(risk / len(rank)) - ROUNDING, np.log(risk)
        found = kept(
            "the level of a band",
            (trials, risk),
            lambda: _spend(trials, rank, risk),
            holds=lambda level: isinstance(level, float) and lowest <= level <= highest,
            package="audit",
        )
    return wider_rate_band(trials, risk=risk) if found is None else _rate_band(trials, rank, found, risk)


def wider_rate_band(trials: int, *, risk: float) -> RateBand:
    """Simultaneous upper limits by a union bound over the ranks: smaller local levels, found at once at any risk."""
    rank = ranks(trials)
    return _rate_band(trials, rank, float(np.log(risk / len(rank))) - 1e-6, risk)


def _rate_band(trials: int, rank: Array, log_level: float, risk: float) -> RateBand:
    return RateBand(
        trials=trials,
        risk=risk,
        local_level=float(np.exp(log_level)),
        rank=rank,
        limit=_limits(trials, rank, log_level),
    )


def _spend(trials: int, rank: Array, risk: float) -> float | None:
    """Log of the largest local level whose crossing probability is at most the risk, less a thousandth or so.

    Probability is nearly a power of the level, so a few secants between logarithms find it; None if rounding hides it.
    """

    def spent(log_level: float) -> float:
        return np.log(max(crossing_probability(trials, rank, _limits(trials, rank, log_level)), 1e-300) / risk)

    # Rank 1 alone spends its level, all together at most the sum: the right level lies between.
    most = float(np.log(risk))
    other, level = most - 0.55 * np.log(len(rank)), most - 0.45 * np.log(len(rank))
    at_other, at_level = spent(other), spent(level)
    for _ in range(MOST_SECANTS):
        if -WITHIN <= at_level <= -ROUNDING:
            return float(level)
        slope = max((at_level - at_other) / (level - other), 0.2)
        other, at_other = level, at_level
        level = min(most, level - (at_level + WITHIN / 2) / slope)
        at_level = spent(level)
    return None


def crossing_probability(trials: int, rank: Array, limit: Array) -> float:
    """Probability that some order statistic of n uniforms exceeds its limit: ``U_(rank) > limit``.

    Counts of a Poisson process of intensity n, restricted to ``N(limit_j) >= rank_j``, are carried from limit to limit
    by convolution and conditioned on N(1) = n: exact up to rounding. [moscovich2017]
    """
    require("limit", bool(np.all(np.diff(limit) >= 0)), "increasing with the rank", limit)
    start, mass, reached = 0, np.ones(1), 0.0
    for r, u in zip(rank, limit, strict=True):
        start, mass = _advance(start, mass, trials * (u - reached), trials)
        cut = max(0, int(r) - start)
        start, mass, reached = start + cut, mass[cut:], u
        if not mass.size:
            return 1.0
    # Those not yet seen arrive after the last limit.
    left = trials - start - np.arange(mass.size)
    kept = np.sum(mass * np.where(left >= 0, _poisson(np.maximum(left, 0), trials * (1 - reached)), 0.0))
    return float(1 - kept / _poisson(np.array(trials), trials))


def _poisson(counts: Array, mean: float) -> Array:
    """Poisson probabilities; scipy.stats computes the same with far more overhead."""
    return np.exp(xlogy(counts, mean) - gammaln(counts + 1.0) - mean)


def _advance(start: int, mass: Array, mean: float, trials: int) -> tuple[int, Array]:
    """Add a Poisson number of arrivals to a law on start, start+1, ..., dropping negligible ends."""
    spread = TAIL * np.sqrt(mean) + TAIL**2
    least, most = max(0, int(mean - spread)), int(mean + spread) + 1
    arrivals = _poisson(np.arange(least, most + 1), mean)
    length = mass.size + arrivals.size - 1
    if min(mass.size, arrivals.size) < 32:
        moved = np.convolve(mass, arrivals)
    else:
        size = 1 << (length - 1).bit_length()
        moved = np.maximum(np.fft.irfft(np.fft.rfft(mass, size) * np.fft.rfft(arrivals, size), size)[:length], 0.0)
    start += least
    moved = moved[: max(0, trials - start + 1)]
    kept = np.flatnonzero(moved > 1e-18)
    if not kept.size:
        return start, np.zeros(0)
    return start + int(kept[0]), moved[kept[0] : kept[-1] + 1]
