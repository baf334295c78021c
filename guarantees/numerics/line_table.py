"""Smooth functions on the line, tabulated so that they can be evaluated and inverted in bulk."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy.special import ndtr

from guarantees.numerics.array import Array

LOG_NEGLIGIBLE = -92.0
"""Mixture terms this far below the largest (1e-40) change no digit of a double."""
REACH = 38.5
"""Standard deviations beyond every mean up to which a ratio is tabled."""
FAR_OFF = 39.0
"""Standard deviations at which a normal tail is 0 in float64."""
NEIGHBOURS = 64
"""Fewest intervals whose masses are summed together..."""
MOST_GROUPS = 256
"""... and the most such groups."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NormalMixture:
    """A mixture of normal laws on the line, sorted by mean; the weights may sum to slightly less than 1."""

    log_weights: Array
    means: Array
    deviations: Array

    @property
    def width(self) -> float:
        """Smallest standard deviation of the components."""
        return float(self.deviations.min())

    def support(self, reach: float) -> tuple[float, float]:
        """An interval that leaves out only points more than ``reach`` standard deviations off every mean."""
        return (
            float((self.means - reach * self.deviations).min()),
            float((self.means + reach * self.deviations).max()),
        )

    def log_density(self, x: Array) -> Array:
        """ln density with its first two derivatives, stacked: shape (3, len(x)); ``x`` must increase."""
        result = np.empty((3, len(x)))
        precision = self.deviations**-2
        constant = self.log_weights - np.log(self.deviations) - 0.5 * np.log(2 * np.pi)
        step = max(1, 200_000 // len(self.means))
        for start in range(0, len(x), step):
            part = x[start : start + step, None]
            ends = constant - 0.5 * precision * (part[[0, -1]] - self.means) ** 2
            near = np.flatnonzero((ends > ends.max(axis=1, keepdims=True) - 45).any(axis=0))
            keep = slice(near[0], near[-1] + 1) if np.ptp(self.deviations) == 0 else slice(None)
            slope = -precision[keep] * (part - self.means[keep])
            terms = constant[keep] + 0.5 * slope * (part - self.means[keep])
            top = terms.max(axis=1, keepdims=True)
            weights = np.exp(terms - top)
            total = weights.sum(axis=1)
            mean = (weights * slope).sum(axis=1) / total
            spread = (weights * ((slope - mean[:, None]) ** 2 - precision[keep])).sum(axis=1) / total
            result[:, start : start + step] = np.log(total) + top[:, 0], mean, spread
        return result

    def mass_between(self, low: Array, high: Array) -> Array:
        """Probability of each interval, computed from the smaller tail."""
        low, high = np.broadcast_arrays(low, high)
        shape, low, high = low.shape, low.ravel(), high.ravel()
        total = np.zeros(low.shape)
        open_ended = np.isinf(low) | np.isinf(high)
        total[open_ended] = self._masses(low[open_ended], high[open_ended], slice(None))
        inside = np.flatnonzero(~open_ended & (low < high))
        inside = inside[np.argsort(low[inside])]
        # Neighbouring intervals together: of a mean further off than this the normal tail is 0 in float64.
        reach = FAR_OFF * float(self.deviations.max())
        together = max(NEIGHBOURS, len(inside) // MOST_GROUPS)
        for start in range(0, len(inside), together):
            at = inside[start : start + together]
            near = (self.means > low[at].min() - reach) & (self.means < high[at].max() + reach)
            total[at] = self._masses(low[at], high[at], near)
        return total.reshape(shape)

    def _masses(self, low: Array, high: Array, kept: slice | Array) -> Array:
        """Probability of each interval under only the ``kept`` components."""
        weights, means, deviations = np.exp(self.log_weights[kept]), self.means[kept], self.deviations[kept]
        total = np.zeros(low.shape)
        step = max(1, 1_000_000 // max(1, total.size))
        for start in range(0, len(weights), step):
            part = slice(start, start + step)
            a = (low[:, None] - means[part]) / deviations[part]
            b = (high[:, None] - means[part]) / deviations[part]
            # -inf and inf have no sum
            right = a > -b
            piece = ndtr(np.where(right, -a, b)) - ndtr(np.where(right, -b, a))
            total += np.maximum(piece, 0.0) @ weights[part]
        return total


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LineTable:
    """A smooth function from its values and first two derivatives at equal steps (quintic Hermite).

    The interpolation error is at most ``step^6 max|f^(6)| / 46080``; outside the nodes the end value is kept.
    """

    start: float
    step: float
    values: Array
    """Function, first and second derivative: shape (3, nodes)."""

    @property
    def nodes(self) -> Array:
        """Points at which the function is tabulated."""
        return self.start + self.step * np.arange(self.values.shape[1])

    @functools.cached_property
    def _coefficients(self) -> Array:
        f, g, c = self.values[0], self.values[1] * self.step, self.values[2] * self.step**2 / 2
        rise = f[1:] - f[:-1] - g[:-1] - c[:-1]
        turn = g[1:] - g[:-1] - 2 * c[:-1]
        bend = c[1:] - c[:-1]
        return np.stack(
            [
                f[:-1],
                g[:-1],
                c[:-1],
                10 * rise - 4 * turn + bend,
                -15 * rise + 7 * turn - 2 * bend,
                6 * rise - 3 * turn + bend,
            ]
        )

    def cell(self, x: Array) -> tuple[Array, Array]:
        """The step in which each point lies, and how far along it: the same for all tables on one grid."""
        place = np.asarray(x, float) - self.start
        place /= self.step
        place = np.clip(place, 0.0, self.values.shape[1] - 1)
        cell = np.minimum(place.astype(np.int64), self.values.shape[1] - 2)
        return cell, place - cell

    def at(self, cell: Array, along: Array) -> Array:
        """The interpolated function at points whose cells are known."""
        # in place, coefficient by coefficient: evaluations of exact laws are most of what a collapsed audit costs
        found = self._coefficients[-1].take(cell)
        for coefficient in self._coefficients[-2::-1]:
            found *= along
            found += coefficient.take(cell)
        return found

    def __call__(self, x: Array) -> Array:
        """The interpolated function."""
        return self.at(*self.cell(x))

    @functools.cached_property
    def turning_points(self) -> Array:
        """Ends of the table and, between them, every point at which the derivative changes its sign."""
        slope = self.values[1]
        # where it is exactly 0 at nodes, they are passed over: it turns at the first of them
        sloping = np.flatnonzero(slope)
        cell = sloping[:-1][np.diff(np.sign(slope[sloping])) != 0]
        a = self._coefficients[:, cell]
        low, high = np.zeros(len(cell)), np.ones(len(cell))
        for _ in range(54):
            z = (low + high) / 2
            found = a[1] + z * (2 * a[2] + z * (3 * a[3] + z * (4 * a[4] + z * 5 * a[5])))
            left = np.sign(found) == np.sign(slope[cell])
            low, high = np.where(left, z, low), np.where(left, high, z)
        inner = self.start + self.step * (cell + (low + high) / 2)
        return np.concatenate([[self.start], inner, [self.nodes[-1]]])

    @functools.cached_property
    def _heights(self) -> Array:
        return self(self.turning_points)

    def crossings(self, level: Array) -> Array:
        """Where each monotone piece meets each level, clipped to the piece: shape (pieces, *level.shape)."""
        level = np.asarray(level, float)
        points, heights = self.turning_points, self._heights
        sign = np.where(heights[1:] >= heights[:-1], 1.0, -1.0)
        first, last = (sign * heights[:-1])[:, None], (sign * heights[1:])[:, None]
        wanted = sign[:, None] * level.ravel()
        found = np.where(wanted <= first, points[:-1, None], points[1:, None])
        piece, which = np.nonzero((wanted > first) & (wanted < last))
        if piece.size:
            met = level.ravel()[which]
            found[piece, which] = self._root(points[piece], points[piece + 1], sign[piece], met, piece)
        return found.reshape(len(sign), *level.shape)

    def _root(self, begin: Array, end: Array, sign: Array, level: Array, piece: Array) -> Array:
        """Where monotone pieces meet levels between their ends: the cell, then bisection, then Newton's method.

        Levels of one piece stand together.
        """
        starts = np.flatnonzero(np.diff(piece, prepend=-1))
        firsts, lasts = self.cell(begin[starts])[0].tolist(), self.cell(end[starts])[0].tolist()
        cells = [
            first + np.searchsorted(sign[at] * self.values[0, first + 1 : last + 1], sign[at] * level[at:stop])
            for at, stop, first, last in zip(starts, [*starts[1:], len(piece)], firsts, lasts, strict=True)
        ]
        cell = np.concatenate(cells)
        a = self._coefficients[:, cell]
        low = np.maximum(0.0, (begin - self.start) / self.step - cell)
        high = np.clip((end - self.start) / self.step - cell, 0.0, 1.0)
        for _ in range(16):
            z = (low + high) / 2
            under = sign * (_polynomial(a, z) - level) < 0
            low, high = np.where(under, z, low), np.where(under, high, z)
        z = (low + high) / 2
        for _ in range(3):
            slope = a[1] + z * (2 * a[2] + z * (3 * a[3] + z * (4 * a[4] + z * 5 * a[5])))
            with np.errstate(divide="ignore", invalid="ignore"):
                step = (_polynomial(a, z) - level) / slope
            z = np.clip(z - np.where(np.isfinite(step), step, 0.0), low, high)
        return self.start + self.step * (cell + z)


def _polynomial(a: Array, z: Array) -> Array:
    return a[0] + z * (a[1] + z * (a[2] + z * (a[3] + z * (a[4] + z * a[5]))))


def tabulate_ratio(
    without: NormalMixture, with_record: NormalMixture, *, roughness: float = 1.0
) -> tuple[LineTable, LineTable, LineTable]:
    """ln density without, with, and their difference (the loss on the line), on a common grid.

    ``roughness`` is the steepest slope of the loss in units of the narrowest standard deviation: the step is
    .05 of its inverse, which keeps the interpolation error near 1e-13 (coarser above a million nodes).
    """
    low0, high0 = without.support(REACH)
    low1, high1 = with_record.support(REACH)
    start, end = min(low0, low1), max(high0, high1)
    step = 0.05 * min(without.width, with_record.width) / max(1.0, roughness)
    count = int(min(1e6, np.ceil((end - start) / step))) + 1
    nodes = np.linspace(start, end, count)
    step = (end - start) / (count - 1)
    f0, f1 = without.log_density(nodes), with_record.log_density(nodes)
    return tuple(LineTable(start=start, step=step, values=f) for f in (f0, f1, f1 - f0))  # pyright: ignore[reportReturnType]
