"""Cells of the plane of an output's two statistics: exact masses and bounds of the loss in each."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy.special import ndtr

from guarantees.numerics.array import Array
from guarantees.numerics.chi_square import chi_square_tails
from guarantees.numerics.distributions import chi2
from guarantees.numerics.line_table import NormalMixture

REACH = 9.5
"""Standard deviations covered by regular cells along u; beyond lie 1e-21 of the mass."""
RARE = 1e-18
"""Probability at either end of w that lies outside the regular cells."""
DEEP = 45.0
"""Batch sizes whose log-probability is this far below the likeliest of a strip are left out of it."""
LEAST = 1e-290
"""Masses of rows and columns below this count as zero: their products would underflow."""
ROWS = 16
"""At most this many rows share one partition along u."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BatchMixture:
    """Outputs given the batch: mean along e, divisor j (the noise is 1/j) and log-probability."""

    log_weights: Array
    means: Array
    divisors: Array

    def line(self) -> NormalMixture:
        """The distribution of the coordinate along e alone."""
        order = np.argsort(self.means, kind="stable")
        return NormalMixture(
            log_weights=self.log_weights[order], means=self.means[order], deviations=1 / self.divisors[order]
        )

    def only(self, chosen: Array) -> BatchMixture:
        """The mixture of only the chosen batches."""
        return BatchMixture(
            log_weights=self.log_weights[chosen], means=self.means[chosen], divisors=self.divisors[chosen]
        )


Sides = tuple[BatchMixture, BatchMixture]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """A partition of the plane, flattened. g is the log-ratio of the second law to the first."""

    masses: Array
    """Masses under both laws, shape (2, cells): differences of normal and chi-square distribution functions."""
    low: Array
    """A lower bound of g in the cell; -inf if none was computed."""
    high: Array
    spread: Array
    """Estimated standard deviation of g in the cell."""
    along: Array
    """Bound on how much g varies over the cell along u; 0 if none was computed."""
    across: Array
    """Bound on how much g varies over the cell along w."""
    strip: Strip
    """Where the cells lie."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Edges:
    """A partition of the line: ``regular`` marks the short cells; the others hold almost no mass."""

    edges: Array
    regular: Array


def _partition(centre: Array, below: Array, above: Array, step: Array) -> _Edges:
    """Equal cells in the merged windows ``centre - below ... centre + above``, each at most as long as its step."""
    low, high = centre - below, centre + above
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    begin = np.flatnonzero(np.concatenate([[True], low[order][1:] > reach[:-1]]))
    finest = np.minimum.reduceat(step[order], begin)
    ends = reach[np.append(begin[1:], len(order)) - 1]
    pieces, regular = [[-np.inf]], [[False]]
    for start, end, width in zip(low[order][begin], ends, finest, strict=True):
        count = max(1, math.ceil((end - start) / width))
        pieces.append(np.linspace(start, end, count + 1))
        regular.append([True] * count + [False])
    pieces.append([np.inf])
    return _Edges(edges=np.concatenate(pieces), regular=np.concatenate(regular).astype(bool))


def _rows(sides: Sides, degrees: float, across: float) -> _Edges:
    """Rows of ``x = ln(w / degrees)``: the lowest starts at w = 0 and is regular, as g is smooth there."""
    # Near 0 g is linear in w: nothing is gained by following ln w further down.
    low = max(math.log(max(chi2.ppf(RARE, degrees) / degrees, 1e-300)), math.log(1e-5))
    high = math.log(chi2.isf(RARE, degrees) / degrees)
    divisors = np.unique(np.concatenate([side.divisors for side in sides]))
    step = across * math.sqrt(2 / max(2.0, degrees))
    ones = np.ones_like(divisors)
    rows = _partition(-2 * np.log(divisors), -low * ones, high * ones, step * ones)
    rows.regular[0] = degrees * math.exp(rows.edges[1]) * divisors[-1] ** 2 < 1e-3
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Strip:
    """Neighbouring rows and one partition along u."""

    rows: _Edges
    columns: _Edges
    degrees: float
    sides: Sides
    near: Sides
    """The batches of each side that matter in this strip."""

    @functools.cached_property
    def middle(self) -> tuple[Array, Array]:
        """ln of the middle of each row's range of w, and half the range over the middle."""
        low, high = self.rows.edges[:-1], self.rows.edges[1:]
        finite = np.where(np.isfinite(high), high, low + 1.0)
        with np.errstate(under="ignore"):
            part = np.exp(low - finite)
        return finite + np.log((1 + part) / 2), (1 - part) / (1 + part)

    @property
    def cost(self) -> float:
        """Work that the cells take, in about microseconds."""
        rows, columns = len(self.rows.regular), len(self.columns.regular)
        batches = sum(len(side.divisors) for side in self.near)
        return rows * columns * (1.2 + 0.01 * batches) + 0.2 * batches * (rows + columns)

    def masses(self, side: BatchMixture) -> Array:
        """Shape (columns, rows)."""
        j = side.divisors[:, None]
        edges = self.degrees * np.exp(self.rows.edges + 2 * np.log(j))
        below, above = chi_square_tails(edges, self.degrees)
        in_row = np.where(below[:, 1:] < 0.5, np.diff(below, axis=1), -np.diff(above, axis=1))
        z = (self.columns.edges - side.means[:, None]) * j
        low, high = z[:, :-1], z[:, 1:]
        right = low > -high
        in_column = ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low))
        in_row = np.exp(side.log_weights)[:, None] * in_row
        return np.where(in_column > LEAST, in_column, 0.0).T @ np.where(in_row > LEAST, in_row, 0.0)


def _strip(sides: Sides, degrees: float, rows: _Edges, along: float) -> Strip:
    whole = _Edges(edges=np.array([-np.inf, np.inf]), regular=np.zeros(1, bool))
    strip = Strip(rows=rows, columns=whole, degrees=degrees, sides=sides, near=sides)
    if not rows.regular.all():
        return strip
    z = degrees / 2
    # The densest place of the strip for each batch: where j^2 w is nearest to its mean.
    place = [
        np.clip(0.0, rows.edges[0] + 2 * np.log(s.divisors), rows.edges[-1] + 2 * np.log(s.divisors)) for s in sides
    ]
    heights = [side.log_weights + z * (y - np.expm1(y)) for side, y in zip(sides, place, strict=True)]
    top = max(float(height.max()) for height in heights)
    if top < -2 * DEEP:
        return strip
    floor = max(-DEEP, top) - DEEP
    kept = [side.only(height > floor) for side, height in zip(sides, heights, strict=True)]
    near = [side.only(height > height.max() - DEEP) for side, height in zip(sides, heights, strict=True)]
    divisors = np.concatenate([side.divisors for side in kept])
    means = np.concatenate([side.means for side in kept])
    columns = _partition(means, REACH / divisors, REACH / divisors, along / divisors)
    return Strip(rows=rows, columns=columns, degrees=degrees, sides=sides, near=(near[0], near[1]))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Posterior:
    """For one side: ln density at the middles, and bounds of two means over the batch sizes in each cell."""

    log_density: Array
    slope: tuple[Array, ...]
    """Bounds of the mean slope of the ln density along u, and its value at the middle."""
    excess: tuple[Array, ...]
    """Bounds of the mean of ``j^2 e^x - 1``, and its value at the middle."""


def _exp(x: Array) -> Array:
    """e^x, or 0 where a product of two such factors would underflow: arithmetic on such products is slow."""
    return np.exp(np.where(x < -340.0, -np.inf, x))


def _ratio(low: Array, high: Array, total_low: Array, total_high: Array) -> tuple[Array, Array]:
    """Bounds of a quotient whose numerator and (positive) denominator lie between bounds."""
    return (
        low / np.where(low > 0, total_high, total_low),
        high / np.where(high > 0, total_low, total_high),
    )


def _posterior(side: BatchMixture, strip: Strip, u: Array, half: Array) -> _Posterior:
    """Bounds over each cell, from those of each batch's density: a product of a function of u and one of w.

    ``u`` and ``half`` are middles and half-lengths of the columns. A density is at most its largest value over the
    column times that over the row, so every sum over batches is bounded by a matrix product. Slopes are taken
    relative to a reference, which moves all batches alike and so leaves their shares alone.
    """
    (x, tall), z = strip.middle, strip.degrees / 2
    j, m = side.divisors[:, None], side.means[:, None]
    y = x + 2 * np.log(j)
    excess = np.expm1(y)
    rise = z * (y - excess)
    top = rise.max(axis=0)
    shift = _mean(rise + side.log_weights[:, None], excess)
    excess = excess - shift
    slope = -(j**2) * (u - m)
    at = side.log_weights[:, None] + np.log(j) - (j * (u - m)) ** 2 / 2
    steep = _mean(at + rise[:, [len(x) // 2]], slope)
    slope = slope - steep
    scale = at.max(axis=0)
    at = at - scale
    peak = np.clip(slope / j**2, -half, half)
    up = _exp(at + slope * peak - (j * peak) ** 2 / 2)
    down = _exp(at - np.abs(slope) * half - (j * half) ** 2 / 2)
    more, less = (_exp(rise - top + sign * z * tall * np.abs(excess)) for sign in (1, -1))
    steepest, flattest = slope + j**2 * half, slope - j**2 * half
    total = down.T @ less, up.T @ more
    slopes = _ratio(
        (down * np.maximum(flattest, 0)).T @ less - (up * np.maximum(-flattest, 0)).T @ more,
        (up * np.maximum(steepest, 0)).T @ more - (down * np.maximum(-steepest, 0)).T @ less,
        *total,
    )
    plus, minus = np.maximum(excess, 0), np.maximum(-excess, 0)
    excesses = _ratio(
        down.T @ (less * plus) - up.T @ (more * minus), up.T @ (more * plus) - down.T @ (less * minus), *total
    )
    here, there = _exp(at), _exp(rise - top)
    density = here.T @ there
    return _Posterior(
        log_density=np.log(density) + scale[:, None] + top,
        slope=tuple(steep[:, None] + part for part in (*slopes, (here * slope).T @ there / density)),
        excess=tuple(shift + part for part in (*excesses, here.T @ (there * excess) / density)),
    )


def _mean(log_weights: Array, values: Array) -> Array:
    """Weighted mean over the first axis."""
    weights = _exp(log_weights - log_weights.max(axis=0))
    return (weights * values).sum(axis=0) / weights.sum(axis=0)


def _bounded(strip: Strip) -> tuple[Array, Array, Array, Array]:
    """In regular columns: the middle value of g, its deviation (estimated), half its variation along u and along w."""
    inside = strip.columns.regular
    low, high = strip.columns.edges[:-1][inside], strip.columns.edges[1:][inside]
    u, half = (low + high) / 2, (high - low) / 2
    _, tall = strip.middle
    first, second = (_posterior(side, strip, u, half) for side in strip.near)
    half, rate = half[:, None], strip.degrees / 2 * tall
    parts = []
    for (low0, high0, at0), (low1, high1, at1), size in (
        (first.slope, second.slope, half),
        (first.excess, second.excess, rate),
    ):
        parts.append((np.maximum(high0 - low1, high1 - low0) * size, np.abs(at1 - at0) * size))
    (along, forth), (across, up) = parts
    return second.log_density - first.log_density, np.hypot(forth, up) / math.sqrt(3), along, across


def coarse_strips(sides: Sides, degrees: float, *, step: float) -> list[Strip]:
    """The plane in strips, with ``step`` standard deviations of each batch size either way."""
    rows = _rows(sides, degrees, step)
    kind = rows.regular
    changes = np.flatnonzero(np.concatenate([[True], kind[1:] != kind[:-1], [True]]))
    found = []
    for begin, end in itertools.pairwise(changes):
        for first in range(begin, end, ROWS):
            last = min(end, first + ROWS)
            found.append(
                _strip(sides, degrees, _Edges(edges=rows.edges[first : last + 1], regular=kind[first:last]), step)
            )
    return found


def finer_strips(strip: Strip, *, along: float, parts: float) -> Iterator[Strip]:
    """The strip cut again: each row into ``parts`` (below 1: rows are joined), and with other steps along u."""
    edges = strip.rows.edges
    if parts > 1:
        inner = [
            np.linspace(a, b, int(parts) + 1)[:-1] if np.isfinite(b - a) else [a] for a, b in itertools.pairwise(edges)
        ]
        edges = np.append(np.concatenate(inner), edges[-1])
    else:
        edges = np.append(edges[: -1 : round(1 / parts)], edges[-1])
    for first in range(0, len(edges) - 1, ROWS):
        part = edges[first : first + ROWS + 1]
        yield _strip(strip.sides, strip.degrees, _Edges(edges=part, regular=np.ones(len(part) - 1, bool)), along)


def cells_of(strip: Strip) -> Cells:
    """The strip's cells with their masses and bounds.

    In a cell g differs from its middle value by at most half the sum of the largest slopes times the cell's
    lengths; the slopes are differences of two means over batch sizes, each bounded over the whole cell.
    """
    masses = np.stack([strip.masses(side) for side in strip.near])
    shape = masses.shape[1:]
    low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
    spread, along, across = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    at = strip.columns.regular
    if at.any():
        with np.errstate(all="ignore"):
            middle, guess, forth, up = _bounded(strip)
            known = np.isfinite(middle + guess + forth + up)
            low[at] = np.where(known, middle - forth - up, -np.inf)
            high[at] = np.where(known, middle + forth + up, np.inf)
        spread[at], along[at], across[at] = (np.where(known, part, 0.0) for part in (guess, 2 * forth, 2 * up))
    return Cells(
        masses=masses.reshape(2, -1),
        low=low.ravel(),
        high=high.ravel(),
        spread=spread.ravel(),
        along=along.ravel(),
        across=across.ravel(),
        strip=strip,
    )
