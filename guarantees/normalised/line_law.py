"""Laws of losses that depend on one coordinate, or on one coordinate and an independent chi-square."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from guarantees.answers import hands_on
from guarantees.laws.hockey_stick import hockey_stick
from guarantees.laws.large_losses import FAR
from guarantees.laws.law import Certificate, LossLaw, Tails, carried, estimate
from guarantees.laws.summed_law import SummedLaw, summed
from guarantees.laws.tabulated_law import TabulatedLaw
from guarantees.numerics.array import Array
from guarantees.numerics.changed_scale import scale_log_moment
from guarantees.numerics.chi_square import chi_square_tails
from guarantees.numerics.line_table import LineTable, NormalMixture, tabulate_ratio
from guarantees.numerics.noncentral import chi_square_levels, panel_rule

RARE = 27.0
"""Losses beyond this, either way, have tails that may be multiplied by more than e^27: they are followed deeper..."""
STEEPEST = 12.0
"""... in panels over which ln of the density changes by no more than this."""
MOST_PANELS = 2e7
"""Most panels; beyond, an exact curve takes minutes and gigabytes."""


def hidden_loss(threshold: Array, rate: float) -> Array:
    """The g with ``ln(1 - rate + rate e^g) = threshold``; -inf where the threshold is below every loss."""
    t = np.asarray(threshold, float)
    if rate == 1.0:
        return t
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(t, 30.0)) / rate, -1.0))
        large = t - np.log(rate) + np.log1p(-(1.0 - rate) * np.exp(-np.maximum(t, 1.0)))
    return np.where(t < 30.0, small, large)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LineLaw(LossLaw):
    """Two normal mixtures on the line: without, and ``(1 - rate) without + rate sampled``.

    The loss is ``ln(1 - rate + rate e^g)`` with g = ln sampled/without. g need not be monotone: the line is cut
    at the turning points of g, each piece is inverted, and the pieces' masses are sums of normal tails.
    ``error`` covers the mass left out of the mixtures and an estimate (1e-13) of the interpolation of g.
    """

    without: NormalMixture
    sampled: NormalMixture
    rate: float = 1.0
    roughness: float = 1.0
    error: float = 1e-13

    @property
    def certificate(self) -> Certificate:
        """An estimate only: the interpolation was compared with exact values, not bounded."""
        return estimate("the interpolation of the loss along the line", self.error)

    @functools.cached_property
    def _gap(self) -> LineTable:
        return tabulate_ratio(self.without, self.sampled, roughness=self.roughness)[2]

    def tails(self, threshold: Array) -> Tails:
        """Normal masses of the pieces of the line on which the loss is above, or not above, the threshold."""
        t = np.asarray(threshold, float)
        level = hidden_loss(t.ravel(), self.rate)
        points = self._gap.turning_points
        edges = points.copy()
        edges[0], edges[-1] = -np.inf, np.inf
        crossing = self._gap.crossings(level)
        crossing = np.where(crossing == points[0], -np.inf, np.where(crossing == points[-1], np.inf, crossing))
        low, high = np.broadcast_arrays(edges[:-1, None], edges[1:, None])
        rising = (np.diff(self._gap(points)) >= 0)[:, None]
        sums = []
        for mixture in (self.without, self.sampled):
            left, right = mixture.mass_between(low, crossing), mixture.mass_between(crossing, high)
            sums += [np.where(rising, right, left).sum(axis=0), np.where(rising, left, right).sum(axis=0)]
        above0, below0, above1, below1 = (part.reshape(t.shape) for part in sums)
        always = Tails(without_above=above0, without_below=below0, with_above=above1, with_below=below1)
        return always.sampled(self.rate)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Panels:
    """Cuts of one side's line that serve all thresholds, with the values at the nodes of each piece."""

    table: LineTable
    """ln density of u on this side."""
    spread: float
    """Standard deviation of this side's noise."""
    lowest: float
    """Panels on which ln density is below this everywhere are skipped."""
    levels: Array
    """Quantiles of w / spread^2 at which panels are cut."""
    edges: Array
    mass: Array
    loss: Array


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlaneLaw(TabulatedLaw):
    """Mixtures on the line and, independently, w: chi-square without, ``scale^2`` chi-square with the record.

    The loss is ``g(u) - degrees ln scale - curvature w``, curvature = (scale^-2 - 1)/2 > 0, so that
    ``P(loss > t) = int p(u) F((g(u) - degrees ln scale - t)/curvature) du``, F the chi-square law of w.
    The integral is cut where the argument of F meets 0 and its quantiles, so steps of F cost no accuracy.
    ``error`` covers the mass left out and an estimate (1e-12) of the quadrature, checked against mpmath.
    """

    without: NormalMixture
    with_record: NormalMixture
    degrees: float
    scale: float
    roughness: float = 1.0
    error: float = 1e-12

    @property
    def certificate(self) -> Certificate:
        """An estimate only: the quadrature was compared with exact values, not bounded."""
        return estimate("the interpolation and quadrature along the line", self.error)

    @property
    def curvature(self) -> float:
        """Loss per unit of w, ``(1 - scale^2) / (2 scale^2)``."""
        return (1 - self.scale) * (1 + self.scale) / (2 * self.scale**2)

    @functools.cached_property
    def tables(self) -> tuple[LineTable, LineTable, LineTable]:
        """Tables along u: ln density without, ln density with, and their difference g."""
        return tabulate_ratio(self.without, self.with_record, roughness=self.roughness)

    @functools.cached_property
    def _panels(self) -> tuple[_Panels, _Panels]:
        """Panels of both sides, for losses near 0."""
        return self._cut(0, 14.0, -75.0, 12.0), self._cut(1, 14.0, -75.0, 12.0)

    @functools.cached_property
    def _deep_panels(self) -> tuple[_Panels, _Panels]:
        """Panels of both sides for losses beyond RARE, down to the smallest masses of float64."""
        return self._cut(0, 38.0, -740.0, 36.0), self._cut(1, 38.0, -740.0, 36.0)

    def _cut(self, side: int, reach: float, lowest: float, scores: float) -> _Panels:
        """Panels of one side's line, cut in the same way for every threshold."""
        mixture, table = (self.without, self.with_record)[side], self.tables[side]
        low, high = mixture.support(reach)
        nodes, points = table.nodes, self.tables[2].turning_points
        at = nodes[(nodes > low) & (nodes < high)]
        panels = np.maximum(0.5 / mixture.width, np.abs(table.values[1, (nodes > low) & (nodes < high)]) / STEEPEST)
        passed = np.cumsum(panels) * table.step
        if passed[-1] > MOST_PANELS:
            raise ValueError(
                f"the exact curve would take {passed[-1]:.2g} panels, more than {MOST_PANELS:.2g}: the noise is tiny "
                "beside the record. distinguishers.projection needs no exact curve."
            )
        base = np.interp(np.arange(np.ceil(passed[-1]) + 1), passed, at)
        edges = np.sort(np.concatenate([[low], base, [high], points[(points > low) & (points < high)]]))
        mass, loss = self._nodes(edges[:-1], np.diff(edges), table)
        return _Panels(
            table=table,
            spread=(1.0, self.scale)[side],
            lowest=lowest,
            levels=chi_square_levels(self.degrees, scores),
            edges=edges,
            mass=mass,
            loss=loss,
        )

    def _nodes(self, start: Array, width: Array, table: LineTable) -> tuple[Array, Array]:
        """Masses and losses at the nodes of panels, shape (panels, nodes)."""
        x, weight = panel_rule(self.degrees)
        # the three tables have one grid
        cell, along = table.cell(start[:, None] + width[:, None] * x)
        mass = np.exp(table.at(cell, along))
        mass *= weight
        mass *= width[:, None]
        return mass, self.tables[2].at(cell, along)

    def _side(self, room: Array, panels: _Panels) -> tuple[Array, Array]:
        """(above, below) for one side; ``room`` is -degrees ln scale - t."""
        fixed, table, spread = panels.edges, panels.table, panels.spread
        levels = spread**2 * panels.levels * self.curvature
        steps = np.clip(self.tables[2].crossings(levels - room[:, None]), fixed[0], fixed[-1])
        steps = np.moveaxis(steps, 0, 1).reshape(len(room), -1)
        edges = np.sort(np.concatenate([np.broadcast_to(fixed, (len(room), len(fixed))), steps], axis=1), axis=1)
        width, height = np.diff(edges, axis=1), table(edges)
        row, column = np.nonzero((width > 0) & (np.maximum(height[:, 1:], height[:, :-1]) > panels.lowest))
        start, wide = edges[row, column], width[row, column]
        # most panels are cut by no step, and are the same for all thresholds
        place = np.minimum(np.searchsorted(fixed, start), len(fixed) - 2)
        whole = (fixed[place] == start) & (fixed[place + 1] == edges[row, column + 1])
        mass, w = panels.mass[place], panels.loss[place]
        mass[~whole], w[~whole] = self._nodes(start[~whole], wide[~whole], table)
        w += room[row, None]
        w /= self.curvature * spread**2
        within, beyond = chi_square_tails(w, self.degrees)
        above = np.bincount(row, (mass * within).sum(axis=1), len(room))
        below = np.bincount(row, (mass * beyond).sum(axis=1), len(room))
        return above, below

    def _without(self, threshold: Array) -> tuple[Array, Array]:
        return self._rates(threshold, 0)

    def _with_record(self, threshold: Array) -> tuple[Array, Array]:
        return self._rates(threshold, 1)

    def _rates(self, threshold: Array, side: int) -> tuple[Array, Array]:
        """One side, a few thresholds at a time so that the panels fit into memory."""
        t = np.clip(np.asarray(threshold, float), -FAR, FAR)
        flat = t.ravel()
        found, rare = np.zeros((2, flat.size)), (np.abs(flat) > RARE) & (np.abs(flat) < FAR)
        for chosen, deep in ((np.flatnonzero(~rare), False), (np.flatnonzero(rare), True)):
            for start in range(0, chosen.size, 64):
                at = chosen[start : start + 64]
                panels = (self._deep_panels if deep else self._panels)[side]
                found[:, at] = self._side(-self.degrees * np.log(self.scale) - flat[at], panels)
        above, below = np.clip(found, 0.0, 1.0)
        return above.reshape(t.shape), below.reshape(t.shape)

    @functools.cached_property
    def _line(self) -> tuple[Array, Array]:
        """ln mass without the record and g, on a grid along u fine enough for the trapezoidal rule."""
        log_density, _, gap = self.tables
        low, high = (
            min(self.without.support(20.0)[0], self.with_record.support(20.0)[0]),
            max(self.without.support(20.0)[1], self.with_record.support(20.0)[1]),
        )
        step = 0.4 * self.with_record.width / max(1.0, self.roughness)
        u = np.linspace(low, high, int(np.ceil((high - low) / step)) + 1)
        log_mass, loss = log_density(u) + np.log(u[1] - u[0]), gap(u)
        tilted = log_mass + np.array([-1.0, 0.0, 1.0, 2.0])[:, None] * loss
        keep = (tilted > tilted.max(axis=1, keepdims=True) - 50).any(axis=0)
        return log_mass[keep], loss[keep]

    def log_moment(self, z: Array) -> Array:
        """``ln E_without e^(z loss)``: an integral over u times a chi-square moment."""
        z = np.asarray(z)
        log_mass, gap = self._line
        exponents = log_mass + z[..., None] * gap
        top = np.real(exponents).max(axis=-1)
        total = np.log(np.exp(exponents - top[..., None]).sum(axis=-1)) + top
        return total + self.degrees * scale_log_moment(z, self.scale)

    def compose(self, times: int) -> SummedLaw | None:
        """By contour integrals of the moments; None where they decay too slowly. ``error`` is an estimate."""
        lowest = -1 / (2 * self.curvature)
        return summed(
            SummedLaw(log_moment=self.log_moment, lowest=lowest, times=times, lost=self.error, remainder=1e-11)
        )


@hands_on("law", "error", "defect")
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SampledLaw(LossLaw):
    """A pair whose second side is replaced by ``(1 - rate) first + rate second``: ``rate f + (1 - rate) ID``."""

    law: LossLaw
    rate: float

    @property
    def certificate(self) -> Certificate | None:
        """Sampling keeps the order of curves, so each proven side stays one."""
        return carried(self.law.certificate, lambda law: SampledLaw(law=law, rate=self.rate))

    def tails(self, threshold: Array) -> Tails:
        """The law's tails at the hidden loss, mixed on the side with the record."""
        return self.law.tails(hidden_loss(threshold, self.rate)).sampled(self.rate)

    def far_delta(self, epsilon: Array) -> Array:
        """``rate`` times the law's at the hidden loss."""
        return self.rate * hockey_stick(self.law, hidden_loss(epsilon, self.rate))

    def reversed_far_delta(self, epsilon: Array) -> Array | None:
        """The law's own where every batch has the record; sampled, no loss is so far below 0."""
        return self.law.reversed_far_delta(epsilon) if self.rate == 1.0 else np.zeros(epsilon.shape)

    def threshold(self, alpha: Array) -> Array:
        """The loss at the law's own threshold."""
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + self.law.threshold(alpha))
