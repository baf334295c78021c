"""Supporting lines of a claimed trade-off curve: straight lines that no mechanism keeping the claim falls below."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import ndtr

from guarantees.claim import Claim
from guarantees.loss_law import Array
from guarantees.trade_off import TradeOff

TAIL = 9.0
"""Normal deviate at which the default table ends: rates of about 1e-19."""
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
        """The envelope at ``alpha``: the higher of the two nearest lines, at least 0."""
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
    """The curve of a claim, or the curve itself."""
    return claim.curve if isinstance(claim, Claim) else claim


def supporting_lines(claim: Claim | TradeOff, alphas: Array) -> SupportingLines:
    """The lines that touch the claim at the given false-alarm rates, lowered by ``(1 + slope) error``."""
    curve = curve_of(claim)
    threshold = np.asarray(curve.llr_threshold(alphas), float)
    with np.errstate(over="ignore"):
        slope = np.exp(threshold)
    # A line so steep that the numerical error swallows it is worse than extending the steepest good one.
    usable = (slope > 0) & ((1 + slope) * curve.error <= max(COSTLY, 4 * curve.error)) & np.isfinite(slope)
    alphas, threshold, slope = alphas[usable], threshold[usable], slope[usable]
    alpha, beta = curve.errors(threshold)
    y = beta - slope * (alphas - alpha) - (1 + slope) * curve.error
    order = np.argsort(alphas, kind="stable")
    lines = SupportingLines(x=alphas[order], y=y[order], slope=slope[order])
    if not len(lines.x):
        # A claim that promises nothing: f = 0 everywhere.
        return SupportingLines(x=np.zeros(1), y=np.zeros(1), slope=np.zeros(1))
    return lines


def tabulate(claim: Claim | TradeOff, *, points: int = 1024) -> SupportingLines:
    """Lines touching the whole claim, dense where either error rate varies. They depend on the claim alone."""
    curve = curve_of(claim)
    alphas = _spread(0.0, 1.0, points)
    for _ in range(2):
        # Add rates at which beta, not alpha, is evenly spread; a steep curve needs them.
        beta = np.asarray(curve.beta(alphas), float)
        wanted = _spread(beta[-1], beta[0], points)
        alphas = np.union1d(alphas, np.interp(wanted, beta[::-1], alphas[::-1]))
    return supporting_lines(curve, alphas)


def _spread(low: float, high: float, points: int) -> Array:
    """Rates evenly spread on the variance-stabilising scale, and into both tails on the normal scale."""
    angles = np.linspace(np.arcsin(np.sqrt(low)), np.arcsin(np.sqrt(high)), points)
    tails = ndtr(np.linspace(-TAIL, TAIL, points))
    rates = np.union1d(np.sin(angles) ** 2, tails[(tails > low) & (tails < high)])
    return np.clip(rates, low, high)


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
    return Corners(x=x[keep], y=y[keep], flat=flat[keep], steep=steep[keep])
