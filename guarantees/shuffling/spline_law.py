"""A law known at some thresholds and interpolated smoothly, for uses that need very many of them."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from guarantees.laws.consistency import InconsistentLawError
from guarantees.laws.law import Certificate, LossLaw, Tails, estimate
from guarantees.numerics.array import Array

if TYPE_CHECKING:
    from scipy.interpolate import BSpline


def _quantile(below: float, above: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.clip(ndtri(below) if below < 0.5 else -ndtri(above), -40, 40))


@dataclasses.dataclass(frozen=True, eq=False)
class SplineLaw(LossLaw):
    """Splines through the normal quantiles of both rates of another law. The error is estimated, not proved."""

    law: LossLaw
    spacing: float = 0.15
    """Distance of neighbouring thresholds in normal quantiles; the fifth-degree spline then errs by about 1e-9."""
    farthest: float = 7.0
    """Normal quantile beyond which both rates (probability 1e-12) need not be resolved."""
    probes: int = 12
    """Thresholds between the nodes at which the splines are compared with the law; none where thresholds are dear."""

    @property
    def error(self) -> float:
        """Largest error at the nodes, four times that of the splines between them, and the mass beyond the ends.

        Without probes: as measured at T 100 and 1,000, noise .4 and .5 (1e-8 at a spacing of .25, 1e-5 at .5).
        """
        seen = self._seen if self.probes else 1e-7 * (self.spacing / 0.25) ** 8
        return 4 * seen + self.law.largest_error() + self._beyond

    @property
    def _beyond(self) -> float:
        """Largest rate beyond the first or the last node, where every rate is taken as 0 or 1."""
        nodes, *splines = self._splines
        ends = ((nodes[0], 1), (nodes[-1], -1))
        return max(float(ndtr(side * spline(end))) for end, side in ends for spline in splines)

    @cached_property
    def _seen(self) -> float:
        """Largest observed error of the splines between nodes."""
        nodes = self._splines[0]
        middle = (nodes[1:] + nodes[:-1]) / 2
        at = middle[np.unique(np.linspace(0, len(middle) - 1, self.probes).astype(int))]
        exact, here = self.law.tails(at), self.tails(at)
        names = ("without_above", "without_below", "with_above", "with_below")
        return float(max(np.abs(getattr(exact, name) - getattr(here, name)).max() for name in names))

    @property
    def certificate(self) -> Certificate:
        """An estimate only."""
        return estimate("the interpolated law, and its splines", self.error)

    def _rates(self, threshold: float) -> tuple[float, float]:
        tails = self.law.tails(np.array(threshold))
        without = _quantile(float(tails.without_below), float(tails.without_above))
        return without, _quantile(float(tails.with_below), float(tails.with_above))

    def _walk(self, sign: int) -> list[tuple[float, float, float]]:
        """Thresholds from 0 outwards, each about ``spacing`` further in quantiles of the faster rate.

        Until both rates are beyond ``farthest``: the slower one may be a percent where the faster is 1e-12. It ends
        before that where the law knows no more, or its rates jump.
        """
        threshold, step, smallest, now = 0.0, 0.02, 0.0, self._rates(0.0)
        found = [(threshold, *now)]
        while min(sign * now[0], sign * now[1]) < self.farthest and abs(threshold) < 60 and step > smallest:
            try:
                after = self._rates(threshold + sign * step)
            except InconsistentLawError:
                break
            moved = max(abs(after[0] - now[0]), abs(after[1] - now[1]))
            if moved > 2 * self.spacing:
                step *= 0.5
                continue
            threshold, now, smallest = threshold + sign * step, after, 0.01 * step
            found.append((threshold, *now))
            step *= float(np.clip(self.spacing / max(moved, 1e-9), 0.5, 2.0))
        return found

    @cached_property
    def _splines(self) -> tuple[Array, BSpline, BSpline]:
        # scipy.optimize comes along, which takes a fifth of a second
        from scipy.interpolate import make_interp_spline

        way = (self.spacing, self.farthest)
        nodes = self.law.walked(way, lambda: sorted({*self._walk(-1), *self._walk(1)}))
        t, without, with_record = np.array(nodes).T
        return t, make_interp_spline(t, without, k=5), make_interp_spline(t, with_record, k=5)

    def tails(self, threshold: Array) -> Tails:
        """Normal tails of the interpolated quantiles; 0 beyond the last threshold."""
        t = np.asarray(threshold, float)
        nodes, without, with_record = self._splines
        inside = np.clip(t, nodes[0], nodes[-1])

        def rates(spline: BSpline) -> tuple[Array, Array]:
            u = np.where(t > nodes[-1], np.inf, np.where(t < nodes[0], -np.inf, spline(inside)))
            return ndtr(u), ndtr(-u)

        (below0, above0), (below1, above1) = rates(without), rates(with_record)
        return Tails(without_above=above0, without_below=below0, with_above=above1, with_below=below1)
