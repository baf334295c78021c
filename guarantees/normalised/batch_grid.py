"""Quadrature over the two statistics of an output that was divided by its realised batch size."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np
from scipy.special import gammaln
from scipy.stats import chi2

from guarantees.numerics.array import Array
from guarantees.numerics.line_table import NormalMixture

NODES = 1_000_000
"""At most about as many quadrature nodes are spent on one law."""
TERMS = 40_000_000
"""At most about as many mixture terms are evaluated for one law."""
BINS = 1 << 16
COARSEST = 0.4
"""Largest step in standard deviations: there the trapezoidal rule errs by exp(-2 pi^2 / .4^2) < 1e-53."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BatchMixture:
    """Outputs given the batch: mean along e, divisor j (the noise is 1/j) and log-probability."""

    log_weights: Array
    means: Array
    divisors: Array

    def line(self) -> NormalMixture:
        """The law of the coordinate along e alone."""
        order = np.argsort(self.means, kind="stable")
        return NormalMixture(
            log_weights=self.log_weights[order], means=self.means[order], deviations=1 / self.divisors[order]
        )


Sides = tuple[BatchMixture, BatchMixture]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Quadrature nodes for both sides: ``masses`` and ``changes`` have shape (2, nodes)."""

    masses: Array
    gaps: Array
    """ln of the ratio of the masses."""
    changes: Array
    """How much the gap varies over a cell, across the rows and along them."""
    even: Array
    """Whether the node lies on an even row."""
    terms: float
    """Mixture terms evaluated for each node."""

    @property
    def variation(self) -> Array:
        """Root mean square of the changes in both directions, seen from both sides."""
        weights = self.masses.sum(axis=0) / self.masses.sum()
        return np.sqrt((weights * np.minimum(self.changes, 10.0) ** 2).sum(axis=1))


def _log_chi_square_density(y: Array, degrees: float) -> Array:
    """ln density of ``ln w - ln degrees`` at y, without the cancellation of ln Gamma for many degrees."""
    z = degrees / 2
    if z > 30:
        constant = 0.5 * math.log(z / (2 * math.pi)) - 1 / (12 * z) + 1 / (360 * z**3)
    else:
        constant = z * math.log(z) - z - float(gammaln(z))
    with np.errstate(over="ignore"):
        return z * (y - np.expm1(y)) + constant


def _rows(sides: Sides, degrees: float, spacing: float) -> tuple[Array, float]:
    """Where ``ln w - ln degrees`` has mass: merged windows around each divisor, at equal steps."""
    low = math.log(max(chi2.ppf(1e-17, degrees) / degrees, 1e-300))
    high = math.log(chi2.isf(1e-17, degrees) / degrees)
    step = spacing * math.sqrt(2 / max(2.0, degrees))
    centre = -2 * np.log(np.unique(np.concatenate([side.divisors for side in sides]))[::-1])
    first = np.floor((centre + low) / step).astype(np.int64)
    last = np.ceil((centre + high) / step).astype(np.int64)
    reach = np.maximum.accumulate(last)
    start = np.concatenate([[True], first[1:] > reach[:-1]])
    end = np.concatenate([start[1:], [True]])
    ranges = zip(first[start], reach[end], strict=True)
    return step * np.concatenate([np.arange(a, b + 1) for a, b in ranges]), step


def _block(x: Array, phase: Array, sides: Sides, degrees: float, along: float) -> tuple[Array, int]:
    """On neighbouring rows: ln(density times the step along u) of both sides, and the changes of g.

    Shape (4, rows, nodes): two logarithms, the slope of their difference in ln w, its change over a step in u.
    The second value is how many mixture terms a node took.
    """
    place = [x[:, None] + 2 * np.log(side.divisors) for side in sides]
    weights = [s.log_weights + _log_chi_square_density(y, degrees) for s, y in zip(sides, place, strict=True)]
    highest = [part.max(axis=0) for part in weights]
    floor = max(-40.0, *(float(part.max()) for part in highest)) - 45.0
    kept = [part > floor for part in highest]
    if not any(keep.any() for keep in kept):
        return np.empty((4, len(x), 0)), 0
    centre = np.concatenate([side.means[keep] for side, keep in zip(sides, kept, strict=True)])
    divisor = np.concatenate([side.divisors[keep] for side, keep in zip(sides, kept, strict=True)])
    low, high = (centre - 9.5 / divisor).min(), (centre + 9.5 / divisor).max()
    step = along / divisor.max()
    u = low + step * (np.arange(math.ceil((high - low) / step) + 1) + phase[:, None])
    result, used = np.zeros((4, *u.shape)), 0
    for i, side in enumerate(sides):
        near = np.flatnonzero(highest[i] > highest[i].max() - 45.0)
        used += len(near)
        j, m = side.divisors[near], side.means[near]
        terms = (weights[i][:, near] + np.log(j * step)).T[:, :, None] - 0.5 * (
            j[:, None, None] * (u - m[:, None, None])
        ) ** 2
        peak = terms.max(axis=0)
        shares = np.exp(terms - peak)
        moments = np.stack([np.ones_like(j), j**2, j**2 * m]) @ shares.reshape(len(near), -1)
        total, square, pull = moments.reshape(3, *u.shape)
        sign = 2 * i - 1
        result[i] = np.log(total) + peak - 0.5 * math.log(2 * math.pi)
        result[2] -= sign * 0.5 * degrees * (np.exp(x)[:, None] * square / total - 1)
        result[3] += sign * step * (pull - u * square) / total
    return result, used


def quadrature_nodes(sides: Sides, degrees: float, *, across: float, along: float) -> Nodes:
    """The nodes with their masses, losses and the variation of the loss over a cell.

    Each row's nodes are moved along u by a golden-ratio phase: the rule stays exact to rounding along u, and a
    level line of the loss meets the rows at evenly spread phases, so its steps average out.
    """
    rows, step = _rows(sides, degrees, across)
    phases = np.arange(len(rows)) * ((math.sqrt(5) - 1) / 2) % 1
    parts, even, terms = [], [], 0
    for start in range(0, len(rows), 32):
        part = slice(start, start + 32)
        block, used = _block(rows[part], phases[part], sides, degrees, along)
        even.append(np.repeat(np.arange(start, start + block.shape[1]) % 2 == 0, block.shape[2]))
        parts.append(block.reshape(4, -1))
        terms += used * block[0].size
    logs = np.concatenate(parts, axis=1)
    masses = step * np.exp(logs[:2])
    seen = masses.sum(axis=0) > 1e-300
    return Nodes(
        masses=masses[:, seen],
        gaps=(logs[1] - logs[0])[seen],
        changes=np.abs(np.stack([step * logs[2], logs[3]])[:, seen]),
        even=np.concatenate(even)[seen],
        terms=terms / logs.shape[1],
    )


def _place(gap: Array, ends: tuple[float, float]) -> Array:
    """Position on a scale that is linear for small gaps and logarithmic for large ones, from 0 to BINS."""
    low, high = np.arcsinh(ends)
    return np.clip((np.arcsinh(gap) - low) / (high - low), 0.0, 1.0) * BINS


def _edges(ends: tuple[float, float]) -> Array:
    low, high = np.arcsinh(ends)
    return np.sinh(np.linspace(low, high, BINS + 1))


def _spread(centre: Array, half: Array, mass: Array, ends: tuple[float, float]) -> Array:
    """Mass in each bin when every node's mass is uniform on ``centre +- half``."""
    edges = _edges(ends)
    low, high = centre - half, centre + half
    first = np.minimum(_place(low, ends).astype(np.int64), BINS - 1)
    last = np.minimum(_place(high, ends).astype(np.int64), BINS - 1)
    wide = last > first
    inside = np.zeros(BINS) + np.bincount(first[~wide], mass[~wide], BINS)
    a, b, m = first[wide], last[wide], mass[wide]
    per_unit = m / (high - low)[wide]
    inside += np.bincount(a, np.clip(per_unit * (edges[a + 1] - low[wide]), 0, m), BINS)
    inside += np.bincount(b, np.clip(per_unit * (high[wide] - edges[b]), 0, m), BINS)
    density = np.cumsum(np.bincount(a + 1, per_unit, BINS + 1) - np.bincount(b, per_unit, BINS + 1))
    return inside + np.maximum(0.0, density[:BINS]) * np.diff(edges)


def gather(nodes: Nodes, *, rows: Literal["all", "even", "odd"] = "all", smooth: bool = True) -> tuple[Array, Array]:
    """Edges of bins of the loss, and both masses of each bin, shape (2, bins).

    Smooth: each node is spread evenly over as much of the loss as varies in its cell (at most a quarter either
    way), which makes the tails accurate; else each node stays whole, which keeps the ratio of its masses.
    Every second row alone stands for twice its width.
    """
    double = 1.0 if rows == "all" else 2.0
    chosen = slice(None) if rows == "all" else nodes.even == (rows == "even")
    ends = float(nodes.gaps.min()) - 1.0, float(nodes.gaps.max()) + 1.0
    edges, gaps, masses = _edges(ends), nodes.gaps[chosen], double * nodes.masses[:, chosen]
    if not smooth:
        at = np.minimum(_place(gaps, ends).astype(np.int64), BINS - 1)
        return edges, np.stack([np.bincount(at, mass, BINS) for mass in masses])
    half = np.minimum(0.25, np.hypot(double * nodes.changes[0, chosen], nodes.changes[1, chosen]) / 2)
    # Spreading both masses alike lowers delta by half^2 e^t p(t)/6; moving them apart by this much undoes it.
    tilt = half**2 / 12
    without, sampled = (
        _spread(gaps + sign * tilt, half, mass, ends) for sign, mass in zip((-1, 1), masses, strict=True)
    )
    # Rounding leaves traces where one side has no mass; e^loss would magnify them.
    with np.errstate(over="ignore", invalid="ignore"):
        without = np.fmin(without, sampled * np.exp(0.5 - edges[:-1]))
        sampled = np.fmin(sampled, without * np.exp(0.5 + edges[1:]))
    return edges, np.stack([without, sampled])


def balanced_nodes(sides: Sides, degrees: float) -> Nodes:
    """As many nodes as NODES and TERMS allow; over a cell the loss varies equally in both directions."""
    coarse = quadrature_nodes(sides, degrees, across=COARSEST, along=COARSEST)
    across, along = coarse.variation + 1e-12
    nodes = min(NODES, TERMS / coarse.terms)
    finer = min(1.0, len(coarse.gaps) / nodes)
    part_along = float(np.clip(math.sqrt(finer * across / along), finer, 1.0))
    return quadrature_nodes(sides, degrees, across=COARSEST * min(1.0, finer / part_along), along=COARSEST * part_along)
