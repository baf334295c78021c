"""Division by the realised batch size (ASGM): a loss in two dimensions that is monotone in neither."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from guarantees.laws.law import Certificate, DiscreteLaw, LossLaw, SimpleLaw, Tails, estimate
from guarantees.normalised.batch_grid import BatchMixture, balanced_nodes, gather
from guarantees.normalised.line_law import LineLaw, hidden_loss
from guarantees.normalised.many_rounds import sum_of_atoms
from guarantees.numerics.array import Array


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GridLaw(SimpleLaw):
    """A loss from a quadrature grid: masses of 'without' and of 'sampled' in bins of g = ln of their ratio.

    With the record the law is ``(1 - rate) without + rate sampled``, so the loss is ``ln(1 - rate + rate e^g)``.
    Within a bin the mass is taken as uniform. ``error`` is the mass left out (bounded) plus the largest change
    of a tail when every second row of the grid is dropped: an estimate of the quadrature error, not a bound.
    """

    edges: Array
    smooth: Array
    """Masses of 'without' and 'sampled' in each bin, shape (2, bins), with nodes spread out: for the tails."""
    whole: Array
    """The same with each node whole: for atoms whose masses keep their ratio."""
    rate: float
    error: float
    profile_error: float
    """The same estimate for the delta of the atoms, which depends on the grid only to second order."""

    @property
    def certificate(self) -> Certificate:
        """Neither side is proved: the grid's error is an estimate."""
        return estimate("the quadrature over the batch's two coordinates", self.error)

    @functools.cached_property
    def _cumulative(self) -> Array:
        below = np.pad(np.cumsum(self.smooth, axis=1), ((0, 0), (1, 0)))
        above = np.pad(np.cumsum(self.smooth[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
        return np.concatenate([above, below])

    def tails(self, threshold: Array) -> Tails:
        """Masses of the bins above, and at or below, each threshold."""
        t = np.asarray(threshold, float)
        level = hidden_loss(t, self.rate)
        above0, above1, below0, below1 = (np.interp(level, self.edges, part) for part in self._cumulative)
        return Tails(
            without_above=above0,
            without_below=below0,
            with_above=(1 - self.rate) * above0 + self.rate * above1,
            with_below=(1 - self.rate) * below0 + self.rate * below1,
        )

    def threshold(self, alpha: Array) -> Array:
        """The loss at which the mass above it is ``alpha``."""
        gap = np.interp(-np.asarray(alpha, float), -self._cumulative[0], self.edges)
        return np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + gap)

    def atoms(self) -> DiscreteLaw:
        """The same masses as atoms, each at the logarithm of its two masses' ratio."""
        without, sampled = self.whole
        with_record = (1 - self.rate) * without + self.rate * sampled
        seen = without > 0
        losses, at = np.unique(np.log(with_record[seen]) - np.log(without[seen]), return_inverse=True)
        never = float(with_record[~seen].sum())
        return DiscreteLaw(
            losses=np.append(losses, np.inf),
            without=np.append(np.bincount(at, without[seen]), 0.0),
            with_record=np.append(np.bincount(at, with_record[seen]), never),
        )

    def compose(self, times: int) -> LossLaw:
        """The atoms composed on a lattice; neither side is proved, because the atoms are an estimate."""
        law = sum_of_atoms(self.atoms(), times)
        error = law.error + times * self.profile_error
        return dataclasses.replace(law, error=error, certificate=estimate("the grid of one round, composed", error))


def _profile_change(edges: Array, first: Array, second: Array) -> float:
    """Largest difference of delta between two sets of masses, in either direction."""
    difference = np.cumsum(first - second, axis=1)
    weight = np.exp(-np.maximum(edges[1:], 0.0)), np.exp(np.minimum(edges[1:], 0.0))
    return float(np.abs(difference[1] * weight[0] - difference[0] * weight[1]).max())


def grid_law(without: BatchMixture, sampled: BatchMixture, *, degrees: float, rate: float, lost: float) -> GridLaw:
    """Trapezoidal rule in (u, ln w) with about NODES nodes, binned by the loss."""
    sides = (without, sampled)
    nodes = balanced_nodes(sides, degrees)
    edges, smooth = gather(nodes)
    whole = gather(nodes, smooth=False)[1]
    change, profile_change = 0.0, 0.0
    for rows in ("even", "odd"):
        half = gather(nodes, rows=rows)[1]
        change = max(change, float(np.abs(np.cumsum(half - smooth, axis=1)).max()))
        half = gather(nodes, rows=rows, smooth=False)[1]
        profile_change = max(profile_change, _profile_change(edges, whole, half))
    base = 1e-12 + lost + float(np.abs(1 - nodes.masses.sum(axis=1)).max())
    return GridLaw(
        edges=edges,
        smooth=smooth,
        whole=whole,
        rate=rate,
        error=base + change,
        profile_error=base + profile_change,
    )


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
