"""Many independent rounds of a loss whose moment generating function is known: tails by contour integrals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from guarantees.laws.law import Certificate, estimate
from guarantees.laws.tabulated_law import TabulatedLaw
from guarantees.numerics.array import Array
from guarantees.numerics.search import halved

STEPS = (64, 128, 256, 512, 1024, 2048, 4096)
"""Numbers of nodes tried for a contour; a loss that decays too slowly for the last is refused."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SummedLaw(TabulatedLaw):
    """Law of ``times`` independent losses, from ``log_moment(z) = ln E_without exp(z loss)``.

    ``P(sum > t) = (1/2 pi i) int exp(times log_moment(z) - z t) dz/z`` along Re z = c > 0, and minus that along
    c < 0 below t; with the record ``log_moment(z + 1)`` takes its place. The line passes near the saddle
    point, where the trapezoidal rule converges geometrically and the tail keeps its relative accuracy.
    Nothing is discretised.
    [daniels1987; lugannani1980]
    """

    log_moment: Callable[[Array], Array]
    lowest: float
    """Real part above which the moment is finite."""
    times: int
    lost: float = 0.0
    """Mass that one loss's moments leave out."""
    remainder: float = 1e-12
    """Estimated remainder of the quadrature rule."""
    atom: float = 0.0
    """Probability, equal on both sides, that one loss is exactly 0; the contours carry only the rest."""

    @property
    def error(self) -> float:
        """Estimated error: the rule's remainder, what each loss leaves out, and rounding of its moments' logarithm."""
        return self.remainder + self.times * (self.lost + 2e-16)

    @property
    def certificate(self) -> Certificate:
        """An estimate only: contour integrals prove nothing."""
        return estimate("the contour integrals' remainder and rounding", self.error)

    @property
    def work(self) -> int:
        """Evaluations for both sides: complex exponentials at the nodes, and as many again to find the saddle."""
        return 16 * self.count

    @property
    def _atom(self) -> float:
        return self.atom**self.times

    def _log_total(self, z: Array) -> Array:
        """``ln`` of the moment of the sum, without the atom at 0."""
        total = self.times * self.log_moment(z)
        if not self._atom:
            return total
        # Off the real line the moment may be smaller than the atom; far above it the atom is lost in rounding.
        near = np.real(total) < 40
        with np.errstate(divide="ignore"):
            return np.where(near, np.log(np.exp(np.where(near, total, 0.0)) - self._atom + 0j), total)

    def _slope(self, z: Array) -> Array:
        """First derivative of ``_log_total`` at real z, by a complex step."""
        return np.imag(self._log_total(z + 1e-30j)) / 1e-30

    @functools.cached_property
    def _means(self) -> Array:
        return self._slope(np.array([0.0, 1.0]))

    def _saddle(self, t: Array, start: float, sign: Array) -> tuple[Array, Array]:
        """Distance from ``start`` to the saddle of the integrand, on the side ``sign``, and its width."""
        edge = np.where(sign > 0, 1e9, np.minimum(1e9, (start - self.lowest) * 0.999))

        def passed(log_distance: Array) -> Array:
            shift = sign * np.exp(log_distance)
            return ~(sign * (self._slope(start + shift) - t) - np.exp(-log_distance) < 0)

        low, high = halved(passed, np.full(t.shape, -25.0), np.log(edge), rounds=18)
        c = sign * np.exp((low + high) / 2)
        nudge = 1e-4 * np.abs(c)
        spread = (self._slope(start + c + nudge) - self._slope(start + c - nudge)) / (2 * nudge)
        with np.errstate(divide="ignore"):
            return c, 1 / np.sqrt(np.maximum(spread, 0.0) + c**-2.0)

    def _contour(self, t: Array, start: float, sign: Array, count: int) -> tuple[Array, Array]:
        """The tail on the side ``sign``, and how far the integrand has decayed at the last node."""
        c, width = self._saddle(t, start, sign)
        step = width[:, None] / 6
        z = c[:, None] + 1j * step * np.arange(count)
        exponent = self._log_total(start + z) - z * t[:, None]
        peak = exponent[:, :1].real
        with np.errstate(under="ignore", invalid="ignore"):
            values = np.exp(exponent - peak) / z
            values[:, 0] /= 2
            # At the saddle the peak is at most about 1; far outside the support no saddle exists.
            total = values.sum(axis=1).real * step[:, 0] / np.pi * sign * np.exp(np.minimum(peak[:, 0], 9.0))
        return np.clip(total, 0.0, 1.0), np.abs(values[:, -1] * c)

    def _side(self, threshold: Array, start: float) -> tuple[Array, Array]:
        """(above, below) under the side whose moments start at ``start``."""
        shape = np.shape(threshold)
        t = np.clip(np.ravel(threshold), -1e290, 1e290)
        mean = self._means[int(start)]
        sign = np.where(t >= mean, 1.0, -1.0)
        tail = np.empty(t.shape)
        for begin in range(0, len(t), 16):
            part = slice(begin, begin + 16)
            tail[part], _ = self._contour(t[part], start, sign[part], self.count)
        tail = tail.reshape(shape)
        up, zero = (sign > 0).reshape(shape), (t < 0).reshape(shape)
        above, below = np.where(up, tail, 1 - self._atom - tail), np.where(up, 1 - self._atom - tail, tail)
        return above + np.where(zero, self._atom, 0.0), below + np.where(zero, 0.0, self._atom)

    @functools.cached_property
    def count(self) -> int:
        """Nodes of a contour; 0 where the moments decay too slowly for any allowed number."""
        for count in STEPS:
            left = [
                self._contour(np.array([self._means[i]]), float(i), np.array([sign]), count)[1]
                for i in (0, 1)
                for sign in (-1.0, 1.0)
            ]
            if np.max(left) < 1e-15:
                return count
        return 0

    def _without(self, threshold: Array) -> tuple[Array, Array]:
        return self._side(threshold, 0.0)

    def _with_record(self, threshold: Array) -> tuple[Array, Array]:
        return self._side(threshold, 1.0)

    def threshold(self, alpha: Array) -> Array:
        """Threshold from a table that is built once; levels that fall within the atom give its loss, exactly."""
        above, _ = self._without(np.zeros(1))
        return self._at_atom(alpha, above, super().threshold(alpha))

    def reversed_threshold(self, alpha: Array) -> Array:
        """Threshold for the exchanged pair, found in the same way."""
        _, below = self._with_record(np.zeros(1))
        return self._at_atom(alpha, below - self._atom, super().reversed_threshold(alpha))

    def _at_atom(self, alpha: Array, beyond: Array, found: Array) -> Array:
        """The thresholds, set to 0 at levels within the atom, which a table only comes near."""
        return np.where((alpha > beyond) & (alpha < beyond + self._atom), 0.0, found)

    def compose(self, times: int) -> SummedLaw:
        """The law of ``times`` times as many rounds."""
        return dataclasses.replace(self, times=self.times * times)


def summed(law: SummedLaw) -> SummedLaw | None:
    """The law itself; None if its moments decay too slowly, so that a lattice must serve."""
    return law if law.count else None
