"""Supporting lines of a claimed trade-off curve: no mechanism that keeps the claim falls below them."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy.special import ndtr, ndtri

from guarantees.claim import Claim
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff

TAIL = 9.0
"""Normal deviate at which the default table ends: rates of about 1e-19."""
LARGEST_LOSS = 600.0
"""Largest loss that is followed: the exponential of larger ones would overflow."""
NARROWEST = 1e-12
"""Relative distance of thresholds below which a jump between them counts as an atom."""
REFINEMENTS = 16
MOST_LINES = 16
SMALLEST_RATE = 1e-15
NOISY = 20.0
SAME = 1e-12
"""Relative distance below which two corners count as one."""
COSTLY = 1e-3
"""Lines that the claim's numerical error lowers by more than this are left out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportingLines:
    """Lines ``y - slope (a - x) <= f(a)``, by increasing x, already lowered by the claim's numerical error.

    Their upper envelope lies below the claim and touches it up to that error, so whatever refutes the envelope
    refutes the claim. [docs/validity.md, section 1]
    """

    x: Array
    y: Array
    slope: Array

    def below(self, alpha: Array) -> Array:
        """Height of the envelope at ``alpha``: the higher of the two nearest lines, at least 0."""
        alpha = np.asarray(alpha, float)
        right = np.clip(np.searchsorted(self.x, alpha), 0, len(self.x) - 1)
        left = np.maximum(right - 1, 0)
        value = np.maximum(self._line(left, alpha), self._line(right, alpha))
        return np.clip(value, 0.0, 1.0 - alpha)

    def _line(self, index: Array, alpha: Array) -> Array:
        return self.y[index] - self.slope[index] * (alpha - self.x[index])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corners:
    """Corners of the envelope; through each passes a supporting line of every slope between ``flat`` and ``steep``."""

    x: Array
    y: Array
    flat: Array
    steep: Array


def curve_of(claim: Claim | TradeOff) -> TradeOff:
    """The curve of a claim, or the given curve itself."""
    return claim.curve if isinstance(claim, Claim) else claim


@dataclasses.dataclass(frozen=True, eq=False)
class _Known:
    """A curve as a cache key: compared by identity, as laws need not be hashable."""

    curve: TradeOff

    def __hash__(self) -> int:
        return id(self.curve)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and other.curve is self.curve


def tabulate(claim: Claim | TradeOff, *, points: int = 1024) -> SupportingLines:
    """Lines touching the whole claim, dense where either error rate varies. They depend on the claim alone.

    Thresholds are inserted until neighbouring rates are close; each line is then lowered by ``(1 + slope) error``. Made
    once for a curve: an audit asks for them again and again.
    """
    curve = curve_of(claim)
    return _tabulated(_Known(curve), points, curve.error)


@functools.lru_cache(maxsize=8)
def _tabulated(known: _Known, points: int, error: float) -> SupportingLines:
    """Cached lines; the error is part of the key, as a curve whose error has grown needs other lines."""
    curve = one_pair(known.curve)
    threshold = _first_thresholds(curve)
    alpha, beta = (np.asarray(rate, float) for rate in curve.errors(threshold))
    # Below this, rates are mostly numerical error, and steps between them would never end.
    floor = min(0.1, max(NOISY * curve.error, SMALLEST_RATE))
    for _ in range(REFINEMENTS):
        new = _between(threshold, _steps(alpha, beta, points, floor))
        if not new.size or len(threshold) > MOST_LINES * points:
            break
        found = curve.errors(new)
        order = np.argsort(np.concatenate([threshold, new]), kind="stable")
        threshold = np.concatenate([threshold, new])[order]
        alpha, beta = np.concatenate([alpha, found[0]])[order], np.concatenate([beta, found[1]])[order]
    threshold, alpha, beta = _along_atoms(threshold, alpha, beta, points, floor)
    slope = np.exp(threshold)
    # A line so steep that the numerical error swallows it is worse than extending the steepest good one.
    usable = (slope > 0) & ((1 + slope) * curve.error <= max(COSTLY, 4 * curve.error))
    if not usable.any():
        # A claim that promises nothing: f = 0 everywhere.
        return SupportingLines(x=np.zeros(1), y=np.zeros(1), slope=np.zeros(1))
    lowered = beta - (1 + slope) * curve.error
    order = np.lexsort((-threshold, alpha))
    order = order[usable[order]]
    return SupportingLines(x=alpha[order], y=lowered[order], slope=slope[order])


def one_pair(curve: TradeOff) -> TradeOff:
    """The curve in a form for many thresholds: a promise made of single lines becomes a piecewise linear curve."""
    corners = curve.law.vertices
    if curve.law.is_pair or corners is None:
        return curve if curve.law.tabled is curve.law else TradeOff(curve.law.tabled)
    without, with_record = -np.diff(corners.without_above), np.diff(corners.with_below)
    held = (without > 0) | (with_record > 0)
    without, with_record = without[held], with_record[held]
    with np.errstate(divide="ignore"):
        losses = np.log(with_record) - np.log(without)
    return TradeOff(DiscreteLaw(atoms=losses, without=without, with_record=with_record, error=curve.error))


def _first_thresholds(curve: TradeOff) -> Array:
    """A few thresholds from end to end, and one just beyond either end to see an atom there."""
    found = np.asarray(curve.llr_threshold(ndtr(np.linspace(-TAIL, TAIL, 37))), float)
    found = np.unique(found[np.isfinite(found) & (np.abs(found) < LARGEST_LOSS)])
    if not found.size:
        return np.zeros(1)
    beyond = NARROWEST * (1 + np.abs(found[[0, -1]])) * np.array([-4.0, 4.0])
    return np.unique(np.concatenate([found, found[[0, -1]] + beyond]))


def _steps(alpha: Array, beta: Array, points: int, floor: float) -> Array:
    """How many steps apart neighbours are, on the variance-stabilising scale and, in the tails, the normal one."""
    apart = np.zeros(len(alpha) - 1)
    for rate in (np.clip(alpha, floor, 1 - floor), np.clip(beta, floor, 1 - floor)):
        angle = np.arcsin(np.sqrt(rate)) / (np.pi / 2)
        deviate = ndtri(rate) / (2 * TAIL)
        apart = np.maximum(apart, np.maximum(np.abs(np.diff(angle)), np.abs(np.diff(deviate))))
    return apart * points


def _between(threshold: Array, steps: Array) -> Array:
    """New thresholds, evenly spaced where neighbours are more than a step apart and not yet at an atom."""
    wide = np.diff(threshold) > NARROWEST * (1 + np.abs(threshold[1:]))
    missing = np.where(wide, np.clip(np.ceil(steps) - 1, 0, 15), 0).astype(int)
    left = np.repeat(np.arange(len(missing)), missing)
    place = np.arange(len(left)) - np.repeat(np.cumsum(missing) - missing, missing) + 1
    return threshold[left] + (threshold[left + 1] - threshold[left]) * place / (missing[left] + 1)


def _along_atoms(threshold: Array, alpha: Array, beta: Array, points: int, floor: float) -> tuple[Array, Array, Array]:
    """The thresholds with points along the curve's straight pieces: from an atom's upper to its lower end."""
    missing = np.clip(np.ceil(_steps(alpha, beta, points, floor)) - 1, 0, points).astype(int)
    left = np.repeat(np.arange(len(missing)), missing)
    place = np.arange(len(left)) - np.repeat(np.cumsum(missing) - missing, missing) + 1
    share = np.sin(np.pi / 2 * place / (missing[left] + 1)) ** 2
    right = left + 1
    x = alpha[right] + (alpha[left] - alpha[right]) * share
    y = beta[right] - np.exp(threshold[right]) * (x - alpha[right])
    return (
        np.concatenate([threshold, threshold[right]]),
        np.concatenate([alpha, x]),
        np.concatenate([beta, y]),
    )


def corners(lines: SupportingLines) -> Corners:
    """Where neighbouring lines cross; on a straight piece of the curve, points along it."""
    left, right = slice(None, -1), slice(1, None)
    fall = lines.slope[left] - lines.slope[right]
    middle = (lines.x[left] + lines.x[right]) / 2
    gap = lines.y[left] + lines.slope[left] * lines.x[left] - lines.y[right] - lines.slope[right] * lines.x[right]
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(fall > 1e-9 * lines.slope[left], gap / fall, middle)
    x = np.clip(np.nan_to_num(x, nan=0.0), lines.x[left], lines.x[right])
    first = lines.y[left] - lines.slope[left] * (x - lines.x[left])
    second = lines.y[right] - lines.slope[right] * (x - lines.x[right])
    # The lower of the two: then a line of any slope in between stays below one of them at every rate.
    y = np.minimum(first, second)
    flat = np.minimum(lines.slope[left], lines.slope[right])
    keep = (x > 0) & (x < 1) & (y > 0) & (y < 1) & (flat > 0)
    steep = np.maximum(lines.slope[left], lines.slope[right])
    return _merged(x[keep], y[keep], flat[keep], steep[keep])


def _merged(x: Array, y: Array, flat: Array, steep: Array) -> Corners:
    """One corner for each kink: where many lines meet, rounding would leave a cluster of corners in no order."""
    if not len(x):
        return Corners(x=x, y=y, flat=flat, steep=steep)
    apart = (np.abs(np.diff(x)) > SAME * x[1:]) | (np.abs(np.diff(y)) > SAME * y[1:])
    first = np.concatenate([[0], 1 + np.flatnonzero(apart)])
    flat, steep = np.minimum.reduceat(flat, first), np.maximum.reduceat(steep, first)
    alone = np.diff(np.append(first, len(x))) == 1
    lowest = np.minimum.reduceat(y, first)
    # A cluster's corner is lowered by as much as its members may differ, so every slope stays below the claim.
    y = np.where(alone, lowest, lowest - 8 * SAME * (lowest + steep * x[first]))
    good = y > 0
    return Corners(x=x[first][good], y=y[good], flat=flat[good], steep=steep[good])
