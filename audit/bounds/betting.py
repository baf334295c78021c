"""Tests of a trade-off curve, and limits of rates, that may be looked at after every trial and stopped at any time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, xlog1py, xlogy

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.supporting_lines import Corners, corners, curve_of, tabulate
from guarantees.checks import Count, checked, require
from guarantees.claim import Claim
from guarantees.numerics.array import Array
from guarantees.numerics.search import halved
from guarantees.trade_off import TradeOff

REFIT_GROWTH = 1.2
CURVE_POINTS = 512
STAKE_CAP = 0.999
"""Largest share of the admissible stake: a bet never loses everything."""
BISECTIONS = 60


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Wealth:
    """State of an anytime test. Arrays end in one entry per test; leading axes, if any, are separate runs.

    Wealth is a function of the trials seen, not of how they were grouped into batches: bets change only at trial
    numbers fixed beforehand, and between them it depends on counts alone.
    """

    trials: int
    """Pairs of trials so far, each with one trial without and one with the record."""
    false_alarms: Array
    misses: Array
    refit_trials: int
    """Trials at which the present bets were placed, with the counts and log wealth of that moment."""
    refit_false_alarms: Array
    refit_misses: Array
    refit_log_wealth: Array
    next_refit: int
    peak: Array
    """Natural logarithm of the largest e-value at any look so far."""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists; ``from_json`` restores the state exactly."""
        fields = dataclasses.fields(self)
        return {field.name: np.asarray(getattr(self, field.name)).tolist() for field in fields}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Wealth:
        """Inverse of ``to_json``."""
        names = {field.name for field in dataclasses.fields(cls)}
        require("stored", set(stored) == names, f"an object with the keys {sorted(names)}", sorted(stored))
        return cls(
            trials=int(stored["trials"]),
            false_alarms=np.asarray(stored["false_alarms"], np.int64),
            misses=np.asarray(stored["misses"], np.int64),
            refit_trials=int(stored["refit_trials"]),
            refit_false_alarms=np.asarray(stored["refit_false_alarms"], np.int64),
            refit_misses=np.asarray(stored["refit_misses"], np.int64),
            refit_log_wealth=np.asarray(stored["refit_log_wealth"], float),
            next_refit=int(stored["next_refit"]),
            peak=np.asarray(stored["peak"], float),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AnytimeTest:
    """A test by betting against 'every one of these tests obeys the claimed curve'.

    Each trial takes one score per side. A test errs by a false alarm (y0) without the record and by a miss (y1) with
    it. At a point (x, y) of the claim with supporting slope c
      E = (1 - lam c (y0 - x)) (1 - lam (y1 - y)),   0 <= lam <= min(1/(c(1-x)), 1/(1-y)),
    has mean at most 1 under the claim, and so has the mean over tests of the products of E over trials.
    [ville1939; waudbysmith2024; docs/validity.md, section 4]

    Holds when the tests were fixed before these trials, from theory or from discarded pilot trials, and the trials
    are independent. ``both_ways`` also runs every test reversed (alarm below the threshold) at the price of a factor
    2 in wealth. Never rejecting shows nothing.
    """

    corners: Corners
    tests: int
    both_ways: bool = False

    def start(self, runs: tuple[int, ...] = ()) -> Wealth:
        """The state before any trial: wealth 1 everywhere."""
        shape = (*runs, self.tests * (2 if self.both_ways else 1))
        zeros = np.zeros(shape, np.int64)
        return Wealth(
            trials=0,
            false_alarms=zeros,
            misses=zeros,
            refit_trials=0,
            refit_false_alarms=zeros,
            refit_misses=zeros,
            refit_log_wealth=np.zeros(shape),
            next_refit=1,
            peak=np.zeros(runs),
        )

    def update(self, wealth: Wealth, false_alarm: ArrayLike, miss: ArrayLike) -> Wealth:
        """Play paired trials in order, looking after each: arrays (..., trials, tests) of 0/1 or booleans."""
        alarms, misses = self._columns(false_alarm), self._columns(miss)
        require("miss", misses.shape == alarms.shape, f"of the shape {alarms.shape}", misses.shape)
        require(
            "false_alarm",
            alarms.shape[-1] == wealth.false_alarms.shape[-1],
            f"of {self.tests} tests in its last axis",
            alarms.shape,
        )
        at, total = 0, alarms.shape[-2]
        while at < total:
            length = min(total - at, wealth.next_refit - wealth.trials)
            part = slice(at, at + length)
            wealth = self._play(wealth, np.cumsum(alarms[..., part, :], -2), np.cumsum(misses[..., part, :], -2))
            at += length
        return wealth

    def update_counts(self, wealth: Wealth, *, trials: int, false_alarms: ArrayLike, misses: ArrayLike) -> Wealth:
        """Play a batch known only by its counts per test, looking at its end.

        The batch may not pass ``wealth.next_refit``: bets change there.
        """
        room = wealth.next_refit - wealth.trials
        require("trials", 1 <= trials <= room, f"in 1..{room}, up to the next refit", trials)
        counts = []
        for name, value in (("false_alarms", false_alarms), ("misses", misses)):
            count = np.asarray(value)
            require(name, np.issubdtype(count.dtype, np.integer), "integer counts", value)
            require(name, bool(np.all((count >= 0) & (count <= trials))), f"in 0..{trials}", value)
            counts.append(np.concatenate([count, trials - count], -1) if self.both_ways else count)
        return self._play(wealth, counts[0][..., None, :], counts[1][..., None, :], trials)

    @staticmethod
    def p_value(wealth: Wealth) -> Array:
        """``1 / largest e-value so far``, valid at any stopping time. [ville1939]"""
        return np.exp(-np.maximum(wealth.peak, 0.0))

    @staticmethod
    def rejected(wealth: Wealth, risk: float) -> Array:
        """Whether the claim is refuted at this risk; once true it stays true."""
        require("risk", 0 < risk < 1, "in (0, 1)", risk)
        return wealth.peak >= -math.log(risk)

    def _columns(self, indicator: ArrayLike) -> Array:
        values = np.asarray(indicator)
        require("indicators", values.ndim >= 2, "arrays (..., trials, tests)", values.shape)
        require("indicators", bool(np.all((values == 0) | (values == 1))), "0 or 1", "other values")
        values = values.astype(np.int32)
        return np.concatenate([values, 1 - values], -1) if self.both_ways else values

    def _gains(self, wealth: Wealth) -> Array:
        """Log factors (..., tests, 4) of a false alarm, its absence, a miss, its absence."""
        return place_bets(self.corners, wealth.refit_false_alarms, wealth.refit_misses, wealth.refit_trials)

    @staticmethod
    def _log_wealth(wealth: Wealth, gains: Array, trials: ArrayLike, alarms: Array, misses: Array) -> Array:
        """Log wealth of every test after ``trials``, ``alarms`` and ``misses`` counted from the start."""
        new_alarms, new_misses = alarms - wealth.refit_false_alarms, misses - wealth.refit_misses
        new_trials = np.asarray(trials) - wealth.refit_trials
        quiet = gains[..., 1] + gains[..., 3]
        return (
            wealth.refit_log_wealth
            + new_trials * quiet
            + new_alarms * (gains[..., 0] - gains[..., 1])
            + new_misses * (gains[..., 2] - gains[..., 3])
        )

    def _play(self, wealth: Wealth, alarms: Array, misses: Array, trials: int | None = None) -> Wealth:
        """Advance by cumulative counts (..., looks, tests) within one stretch of unchanged bets."""
        steps = np.arange(1, alarms.shape[-2] + 1) if trials is None else np.array([trials])
        gains = self._gains(wealth)
        expanded = dataclasses.replace(
            wealth,
            refit_false_alarms=wealth.refit_false_alarms[..., None, :],
            refit_misses=wealth.refit_misses[..., None, :],
            refit_log_wealth=wealth.refit_log_wealth[..., None, :],
        )
        seen_alarms = wealth.false_alarms[..., None, :] + alarms
        seen_misses = wealth.misses[..., None, :] + misses
        seen = wealth.trials + steps
        path = self._log_wealth(expanded, gains[..., None, :, :], seen[:, None], seen_alarms, seen_misses)
        moved = dataclasses.replace(
            wealth,
            trials=int(seen[-1]),
            false_alarms=seen_alarms[..., -1, :],
            misses=seen_misses[..., -1, :],
            peak=np.maximum(wealth.peak, _mean_wealth(path).max(-1)),
        )
        if moved.trials < moved.next_refit:
            return moved
        return dataclasses.replace(
            moved,
            refit_trials=moved.trials,
            refit_false_alarms=moved.false_alarms,
            refit_misses=moved.misses,
            refit_log_wealth=path[..., -1, :],
            next_refit=refit_after(moved.trials),
        )


def refit_after(trials: int) -> int:
    """The trial number at which bets change next."""
    return max(trials + 1, math.ceil(REFIT_GROWTH * trials))


def looks(planned: int) -> list[int]:
    """The trial numbers at which bets change, up to the planned number of trials, which is the last."""
    found = [1]
    while found[-1] < planned:
        found.append(min(planned, refit_after(found[-1])))
    return found


@checked
def anytime_test(claim: Claim | TradeOff, *, tests: Count, both_ways: bool = False) -> AnytimeTest:
    """The anytime test of a claim with ``tests`` thresholds fixed beforehand. [docs/validity.md, section 4]"""
    return AnytimeTest(corners=corners(tabulate(claim, points=CURVE_POINTS)), tests=tests, both_ways=both_ways)


def spread_thresholds(curve: Claim | TradeOff, count: int = 10) -> Array:
    """Log-likelihood-ratio thresholds spread over a curve's false-alarm and miss rates.

    The curve is that of the model whose likelihood ratio is the score; half of the thresholds have evenly spaced
    false-alarm rates, half evenly spaced miss rates.
    """
    require("count", count >= 2 and count % 2 == 0, "even and >= 2", count)
    trade_off = curve_of(curve)
    rates = (np.arange(count // 2) + 0.5) / (count // 2)
    return np.sort(np.concatenate([trade_off.llr_threshold(rates), -trade_off.reverse.llr_threshold(rates)]))


def pilot_thresholds(without: ArrayLike, with_record: ArrayLike, count: int = 10) -> Array:
    """Thresholds from pilot scores, which must then be discarded: evenly spaced quantiles of both sides pooled."""
    scores = np.concatenate([np.ravel(without), np.ravel(with_record)])
    require("pilot scores", scores.size > 0 and bool(np.all(np.isfinite(scores))), "finite", scores.size)
    return np.quantile(scores, (np.arange(count) + 0.5) / count)


def place_bets(claim: Corners, false_alarms: Array, misses: Array, trials: int) -> Array:
    """Log factors of the bets that past counts suggest: (..., 4) for a false alarm, none, a miss, none.

    With p = (false alarms + 1/2)/(n + 1) and q likewise: no bet where (p, q) lies on or above the claim; else bet at
    the point (x, y) of the claim that minimises KL(p||x) + KL(q||y), with the stake (x - p)/(c x (1-x)), at which
    wealth grows fastest.
    """
    p = (np.asarray(false_alarms, float) + 0.5) / (trials + 1)
    q = (np.asarray(misses, float) + 0.5) / (trials + 1)
    if not len(claim.x):
        return np.zeros((*p.shape, 4))
    at = _nearest(claim, p, q)
    x, y = claim.x[at], claim.y[at]
    pull_x, pull_y = (x - p) / (x * (1 - x)), (y - q) / (y * (1 - y))
    inside = (pull_x > 0) & (pull_y > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.clip(np.where(inside, pull_x / pull_y, 1.0), claim.flat[at], claim.steep[at])
        stake = np.where(inside, pull_x / slope, 0.0)
    stake = np.minimum(stake, STAKE_CAP * np.minimum(1 / (slope * (1 - x)), 1 / (1 - y)))
    return np.stack(
        [
            np.log1p(-stake * slope * (1 - x)),
            np.log1p(stake * slope * x),
            np.log1p(-stake * (1 - y)),
            np.log1p(stake * y),
        ],
        -1,
    )


def _nearest(claim: Corners, p: Array, q: Array) -> Array:
    """Index of the corner that minimises KL(p || x) + KL(q || y), by bisection.

    Along a convex curve above (p, q) the divergence has one valley; where (p, q) is not below the curve no corner lies
    above and to the right of it, so whichever is found there is no bet.
    """
    change = np.diff(np.log(np.stack([claim.x, 1 - claim.x, claim.y, 1 - claim.y])), axis=1)
    low, high = np.zeros(p.shape, np.int64), np.full(p.shape, len(claim.x) - 1)
    for _ in range(len(claim.x).bit_length()):
        middle = np.minimum((low + high) // 2, len(claim.x) - 2)
        step = change[:, middle]
        nearer = p * step[0] + (1 - p) * step[1] + q * step[2] + (1 - q) * step[3] > 0
        searching = low < high
        low = np.where(searching & nearer, middle + 1, low)
        high = np.where(searching & ~nearer, middle, high)
    return low


def _mean_wealth(log_wealth: Array) -> Array:
    """Log of the mean over tests of exp(log wealth)."""
    top = log_wealth.max(-1)
    return top + np.log(np.exp(log_wealth - top[..., None]).mean(-1))


def anytime_upper(errors: ArrayLike, trials: ArrayLike, *, risk: ArrayLike) -> np.ndarray:
    """Upper limit on an error rate, exceeded by the truth at any trial number with probability at most ``risk``.

    ``M_n(p) = B(k + 1/2, n - k + 1/2) / B(1/2, 1/2) / (p^k (1-p)^(n-k))`` has mean 1 under p for every n and is a
    martingale, so it ever reaches ``1/risk`` with probability at most ``risk``; the limit is the largest p at which
    it has not. [ville1939; robbins1970]

    Wider than Clopper-Pearson by a term of order ``ln n``: the price of looking at any time.
    """
    k, n, share = np.broadcast_arrays(np.asarray(errors, float), np.asarray(trials, float), np.asarray(risk, float))
    require("risk", bool(np.all((share > 0) & (share < 1))), "in (0, 1)", risk)
    require("errors", bool(np.all((k >= 0) & (k <= n) & (n > 0))), "in 0..trials", errors)
    mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)

    def excluded(p: np.ndarray) -> np.ndarray:
        return mixture - xlogy(k, p) - xlog1py(n - k, -p) >= -np.log(share)

    # rounded outwards: at the upper end the rate is excluded, unless every trial erred
    return np.where(k == n, 1.0, halved(excluded, k / n, np.ones_like(k), rounds=BISECTIONS)[1])


def anytime_limits(counts: tuple[ErrorCounts, ...], risks: np.ndarray) -> tuple[Limits, ...]:
    """Limits for several tests, each at its own share of the risk, half on alpha and half on beta."""
    alpha = anytime_upper([c.false_alarms for c in counts], [c.trials_without for c in counts], risk=risks / 2)
    beta = anytime_upper([c.misses for c in counts], [c.trials_with for c in counts], risk=risks / 2)
    return tuple(Limits(alpha=float(a), beta=float(b)) for a, b in zip(alpha, beta, strict=True))
