"""Division by the realised batch size (ASGM): a loss in two dimensions that is monotone in neither."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from scipy.special import gammaln
from scipy.stats import chi2

from guarantees.line_law import LineLaw, hidden_loss
from guarantees.line_table import NormalMixture
from guarantees.loss_law import Array, LossLaw, Tails

NODES = 2_000_000
"""About as many quadrature nodes are spent on one law."""
ATOMS = 1 << 16
STEP_ALONG = 0.4
"""Step along u in units of the narrowest deviation: the trapezoidal rule errs by exp(-2 pi^2 / .16)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridLaw:
    """A loss from a quadrature grid: masses of 'without' and of 'sampled' at increasing g = ln of their ratio.

    With the record the law is ``(1 - rate) without + rate sampled``, so the loss is ``ln(1 - rate + rate e^g)``.
    ``error`` is the mass left out (bounded) plus the largest difference of the tails between the even and the
    odd rows of the grid (an estimate of the quadrature error, not a bound).
    """

    gaps: Array
    without: Array
    sampled: Array
    rate: float
    error: float

    @functools.cached_property
    def _cumulative(self) -> Array:
        pair = np.stack([self.without, self.sampled])
        below = np.cumsum(pair, axis=1)
        above = np.cumsum(pair[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([np.pad(above, ((0, 0), (0, 1))), np.pad(below, ((0, 0), (1, 0)))])

    @property
    def losses(self) -> Array:
        """The loss at each atom."""
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + self.gaps)

    def tails(self, threshold: Array) -> Tails:
        """Sums over the atoms above, and at or below, each threshold."""
        at = np.searchsorted(self.gaps, hidden_loss(np.asarray(threshold, float), self.rate), side="right")
        above0, above1, below0, below1 = self._cumulative[:, at]
        return Tails(
            without_above=above0,
            without_below=below0,
            with_above=(1 - self.rate) * above0 + self.rate * above1,
            with_below=(1 - self.rate) * below0 + self.rate * below1,
        )

    def threshold(self, alpha: Array) -> Array:
        """The atom at which a randomised test of this level randomises."""
        at = np.searchsorted(-self._cumulative[0], -np.asarray(alpha, float), side="left")
        return self.losses[np.clip(at - 1, 0, len(self.gaps) - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchMixture:
    """Outputs given the batch: mean along e, divisor j (the noise is 1/j) and probability."""

    log_weights: Array
    means: Array
    divisors: Array

    def line(self) -> NormalMixture:
        """The law of the coordinate along e alone."""
        order = np.argsort(self.means, kind="stable")
        return NormalMixture(
            log_weights=self.log_weights[order], means=self.means[order], deviations=1 / self.divisors[order]
        )


def _log_chi_square_density(y: Array, degrees: float) -> Array:
    """ln density of ``ln w - ln degrees`` at y, without the cancellation of ln Gamma for many degrees."""
    z = degrees / 2
    if z > 30:
        constant = 0.5 * math.log(z / (2 * math.pi)) - 1 / (12 * z) + 1 / (360 * z**3)
    else:
        constant = z * math.log(z) - z - float(gammaln(z))
    with np.errstate(over="ignore"):
        return z * (y - np.expm1(y)) + constant


def _row_positions(divisors: Array, degrees: float, spacing: float) -> tuple[Array, float]:
    """Where ``ln w`` has mass: merged windows around each divisor's chi-square, at equal steps."""
    low = math.log(max(chi2.ppf(1e-17, degrees) / degrees, 1e-300))
    high = math.log(chi2.isf(1e-17, degrees) / degrees)
    step = spacing * math.sqrt(2 / max(2.0, degrees))
    centre = -2 * np.log(np.unique(divisors)[::-1])
    first = np.floor((centre + low) / step).astype(np.int64)
    last = np.ceil((centre + high) / step).astype(np.int64)
    reach = np.maximum.accumulate(last)
    start = np.concatenate([[True], first[1:] > reach[:-1]])
    end = np.concatenate([start[1:], [True]])
    ranges = zip(first[start], reach[end], strict=True)
    return step * np.concatenate([np.arange(a, b + 1) for a, b in ranges]), step


def _block(x: Array, phase: Array, sides: tuple[BatchMixture, BatchMixture], degrees: float) -> Array:
    """Log densities times the step along u, on neighbouring rows of ln w: shape (2, rows, nodes)."""
    weights = [
        side.log_weights + _log_chi_square_density(x[:, None] + 2 * np.log(side.divisors), degrees) for side in sides
    ]
    highest = [part.max(axis=0) for part in weights]
    floor = max(-40.0, *(part.max() for part in highest)) - 45.0
    kept = [part > floor for part in highest]
    if not any(keep.any() for keep in kept):
        return np.empty((2, len(x), 0))
    centre = np.concatenate([side.means[keep] for side, keep in zip(sides, kept, strict=True)])
    divisor = np.concatenate([side.divisors[keep] for side, keep in zip(sides, kept, strict=True)])
    low, high = (centre - 9.5 / divisor).min(), (centre + 9.5 / divisor).max()
    step = STEP_ALONG / divisor.max()
    u = low + step * (np.arange(math.ceil((high - low) / step) + 1) + phase[:, None])
    result = np.full((2, *u.shape), -np.inf)
    for i, (side, part) in enumerate(zip(sides, weights, strict=True)):
        near = highest[i] > highest[i].max() - 60.0
        for weight, j, m in zip(part.T[near], side.divisors[near], side.means[near], strict=True):
            term = (weight + math.log(j * step))[:, None] - 0.5 * (j * (u - m)) ** 2
            np.logaddexp(result[i], term, out=result[i])
    return result - 0.5 * math.log(2 * math.pi)


def _grid(sides: tuple[BatchMixture, BatchMixture], degrees: float, spacing: float) -> tuple[Array, Array]:
    """Log masses of both sides at every node, shape (2, nodes), and which nodes lie on even rows.

    Each row's nodes are moved along u by a golden-ratio phase: the rule stays exact to rounding along u, and a
    level line of the loss meets the rows at evenly spread phases, so its steps average out.
    """
    rows, step = _row_positions(np.concatenate([side.divisors for side in sides]), degrees, spacing)
    phases = np.arange(len(rows)) * ((math.sqrt(5) - 1) / 2) % 1
    masses, even = [], []
    for start in range(0, len(rows), 64):
        part = slice(start, start + 64)
        block = _block(rows[part], phases[part], sides, degrees)
        parity = np.arange(start, start + block.shape[1]) % 2 == 0
        masses.append(block.reshape(2, -1) + math.log(step))
        even.append(np.repeat(parity, block.shape[2]))
    return np.concatenate(masses, axis=1), np.concatenate(even)


def _gather(gaps: Array, masses: Array) -> tuple[Array, Array]:
    """At most ATOMS groups of neighbouring gaps, each with its exact masses and their log-ratio."""
    order = np.argsort(gaps)
    masses = masses[:, order]
    weight = np.cumsum(masses.sum(axis=0))
    by_mass = np.floor(weight / weight[-1] * ATOMS / 2)
    by_value = np.floor(np.clip(gaps[order], -40, 40) * (ATOMS / 160))
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(by_mass) > 0) | (np.diff(by_value) > 0)]))
    grouped = np.add.reduceat(masses, starts, axis=1)
    return np.add.reduceat(gaps[order] * masses.sum(axis=0), starts) / grouped.sum(axis=0), grouped


def _tails_at(gaps: Array, masses: Array, probe: Array) -> Array:
    at = np.digitize(gaps, probe)
    return np.cumsum([np.bincount(at, mass, len(probe) + 1) for mass in masses], axis=1)


def grid_law(without: BatchMixture, sampled: BatchMixture, *, degrees: float, rate: float, lost: float) -> GridLaw:
    """Trapezoidal rule in (u, ln w) with about NODES nodes, grouped by the loss."""
    sides = (without, sampled)
    coarse = _grid(sides, degrees, 0.5)[0].shape[1]
    logs, even = _grid(sides, degrees, float(np.clip(0.5 * coarse / NODES, 0.002, 0.5)))
    with np.errstate(invalid="ignore"):
        gaps, masses = logs[1] - logs[0], np.exp(logs)
    seen = masses.sum(axis=0) > 0
    gaps, masses, even = gaps[seen], masses[:, seen], even[seen]
    probe = np.linspace(-4, 10, 29)
    change = 2 * (_tails_at(gaps[even], masses[:, even], probe) - _tails_at(gaps[~even], masses[:, ~even], probe))
    missing = float(np.abs(1 - masses.sum(axis=1)).max())
    values, grouped = _gather(gaps, masses)
    error = 1e-12 + lost + float(np.abs(change).max()) + missing
    return GridLaw(gaps=values, without=grouped[0], sampled=grouped[1], rate=rate, error=error)


def realised_batch_law(
    sizes: Array,
    log_weights: Array,
    lost: float,
    *,
    rate: float,
    shared: float,
    extra: float,
    dimension: int,
) -> LossLaw:
    """ASGM with aligned gradients of length ``shared`` and ``extra`` in units of the noise, rate < 1.

    ``ln p = logsumexp_k [ln W_k + n ln j_k - j_k^2 (w + (u - m_k)^2)/2]``, j = max(batch size, 1): in one
    dimension a mixture on the line, exactly; otherwise by quadrature over (u, w).
    """
    divisors, more = np.maximum(sizes, 1.0), sizes + 1.0
    without = BatchMixture(log_weights=log_weights, means=shared * sizes / divisors, divisors=divisors)
    sampled = BatchMixture(log_weights=log_weights, means=(shared * sizes + extra) / more, divisors=more)
    if dimension == 1:
        roughness = max(1.0, abs(shared), abs(extra), abs(extra - shared))
        return LineLaw(
            without=without.line(),
            sampled=sampled.line(),
            rate=rate,
            roughness=roughness,
            error=1e-13 + lost,
        )
    return grid_law(without, sampled, degrees=dimension - 1, rate=rate, lost=lost)
