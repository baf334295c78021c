"""The sum ``R = sum (r_j^2 - r_j)`` of rounds whose lognormal r stays below a cap, on a lattice by FFT.

Rounds above the cap are counted apart, so that rare large losses keep their relative precision. The lattice keeps
every mean, hence its errors are of second order in the step.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy.special import log_ndtr, ndtr

from guarantees.numerics.array import Array
from guarantees.numerics.powers import raised


def _roots(value: Array) -> tuple[Array, Array]:
    """The two r with ``r^2 - r = value``; the smaller one may be negative."""
    root = np.sqrt(np.maximum(1 + 4 * value, 0.0))
    return -2 * value / (1 + root), (1 + root) / 2


def _normal_masses(z: Array) -> Array:
    """``Phi(z[1:]) - Phi(z[:-1])`` of increasing z, from the smaller tail."""
    upper = int(np.searchsorted(z, 0.0))
    return np.concatenate([np.diff(ndtr(z[:upper])), -np.diff(ndtr(-z[max(upper - 1, 0) :]))])


@dataclasses.dataclass(frozen=True)
class Round:
    """One round: ``r = exp(mu x)/tau`` with x normal of mean ``shifts * mu``."""

    mu: float
    log_tau: float

    def position(self, r: Array) -> Array:
        """The x at which the ratio reaches r; minus infinity for r <= 0."""
        with np.errstate(divide="ignore"):
            return (np.log(np.maximum(r, 0.0)) + self.log_tau) / self.mu

    def _partial_moment(self, power: int) -> float:
        """``E r^power 1{r <= 1}``."""
        inside = log_ndtr(self.log_tau / self.mu - power * self.mu)
        return float(np.exp(power**2 * self.mu**2 / 2 - power * self.log_tau + inside))

    def capped_mean(self) -> float:
        """``E (r - r^2) 1{r <= 1}``: how far a round typically lowers the sum."""
        return self._partial_moment(1) - self._partial_moment(2)

    def capped_square(self) -> float:
        """``E r^2 1{r <= 1}``."""
        return self._partial_moment(2)

    def above(self, value: Array, shifts: int) -> Array:
        """``P(r^2 - r > value)``."""
        return self.places(value).above(shifts)

    def at_most(self, value: Array, shifts: int) -> Array:
        """``P(r^2 - r <= value)``, as a difference of the smaller tails."""
        return self.places(value).at_most(shifts)

    def places(self, value: Array) -> Places:
        """The two x at which ``r^2 - r`` has each of these values."""
        value = np.asarray(value, float)
        low, high = _roots(value)
        return Places(self.mu, value, self.position(low), self.position(high))


class Cells:
    """The lattice cells ``step * (floor(-1/(4 step)), ...)`` of a round's ``r^2 - r`` for r up to a cap."""

    def __init__(self, round: Round, step: float, cap: float) -> None:
        """Compute where the cells end, in x."""
        self.round, self.step = round, step
        self.first = int(np.floor(-0.25 / step))
        last = int(np.ceil((cap**2 - cap) / step)) + 1
        self.edges = step * np.arange(self.first, last + 1)
        low, high = _roots(np.clip(self.edges, -0.25, cap**2 - cap))
        self._falling, self._rising = round.position(low)[::-1], round.position(high)
        self._inside: dict[int, Array] = {}

    def inside(self, shifts: int) -> Array:
        """Probability of each cell with x shifted; the moments of one shift are masses of the next shifts."""
        if shifts not in self._inside:
            shift = shifts * self.round.mu
            masses = _normal_masses(self._falling - shift)[::-1] + _normal_masses(self._rising - shift)
            self._inside[shifts] = masses
        return self._inside[shifts]

    def split(self, shifts: int) -> tuple[Array, float]:
        """Masses on the cells' ends that keep each cell's mean.

        Also the variance that this rounding adds: a sixth of the squared step where the density is smooth, less
        where it sits at a lattice point.
        """
        mu, log_tau = self.round.mu, self.round.log_tau

        def partial(power: int) -> Array:
            scale = np.exp(power * shifts * mu**2 + power**2 * mu**2 / 2 - power * log_tau)
            return scale * self.inside(shifts + power)

        mass, moment = partial(0), partial(2) - partial(1)
        upper = np.clip((moment - self.edges[:-1] * mass) / self.step, 0.0, mass)
        points = np.zeros(len(self.edges))
        points[1:] += upper
        points[:-1] += mass - upper
        share = upper / np.maximum(mass, 1e-300)
        return points, float(self.step**2 * np.sum(mass * np.minimum(1 / 6, share * (1 - share))))


@functools.lru_cache(maxsize=1)
def _cells(round: Round, step: float, cap: float) -> Cells:
    """Cached cells, which serve all shifts and tilts."""
    return Cells(round, step, cap)


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """The two x at which ``r^2 - r`` has each of some values, for several questions about a round."""

    mu: float
    values: Array
    low: Array
    high: Array

    def above(self, shifts: int) -> Array:
        """``P(r^2 - r > value)``."""
        outside = ndtr(self.low - shifts * self.mu) + ndtr(shifts * self.mu - self.high)
        return np.where(self.values < -0.25, 1.0, outside)

    def at_most(self, shifts: int) -> Array:
        """``P(r^2 - r <= value)``, as a difference of the smaller tails."""
        a, b = self.low - shifts * self.mu, self.high - shifts * self.mu
        right = a > 0
        inside = ndtr(np.where(right, -a, b)) - ndtr(np.where(right, -b, a))
        return np.where(self.values < -0.25, 0.0, inside)


@dataclasses.dataclass(frozen=True)
class CappedSum:
    """The law of R for ``count`` capped rounds, and optionally one more of which x is shifted.

    ``tilt`` multiplies the law by ``exp(tilt R)`` before the FFT, which protects the upper tail from round-off.
    """

    round: Round
    count: int
    cap: float
    low: float
    """Smallest sum that is followed: there is no mass worth counting below it."""
    width: float
    points: int
    tilt: float = 0.0
    sharpen: bool = True
    """Whether to remove the variance that rounding added; that makes the masses ring near an atom."""

    @property
    def step(self) -> float:
        """Spacing of the lattice."""
        return self.width / self.points

    @functools.cached_property
    def sums(self) -> Array:
        """Values of R on the lattice."""
        start = int(np.floor(self.low / self.step))
        return self.step * (start + np.arange(self.points))

    def _transform(self, shifts: int) -> tuple[Array, float]:
        cells = _cells(self.round, self.step, self.cap)
        masses, added = cells.split(shifts)
        index = cells.first + np.arange(len(masses))
        vector = np.bincount(
            index % self.points, weights=masses * np.exp(self.tilt * self.step * index), minlength=self.points
        )
        return np.fft.rfft(vector), added

    @functools.cached_property
    def _others(self) -> tuple[Array, float]:
        return self._transform(0)

    @property
    def added_variance(self) -> float:
        """Variance that rounding adds to each round."""
        return self._others[1]

    @property
    def log_moment(self) -> float:
        """``ln E exp(tilt R)`` over the capped rounds: large where the tilt goes too far."""
        return self.count * float(np.log(max(self._others[0][0].real, 1e-300)))

    def masses(self, *special: int) -> Array:
        """P(R = each of ``sums``, no round above the cap), with one more round for each special shift."""
        base, added = self._others
        scale = base[0].real
        if scale < 1e-290:
            return np.zeros(self.points)
        power = raised(base / scale, self.count)
        variance = self.count * added
        for shifts in special:
            factor, more = self._others if shifts == 0 else self._transform(shifts)
            power, variance = power * factor, variance + more
        if self.sharpen:
            # the variance that rounding added is taken out again, at the low frequencies, which alone matter
            frequency = 2 * np.pi * np.arange(len(power)) / self.width
            taper = np.exp(-((variance * frequency**2 / 0.1) ** 2))
            power = power * np.exp(-variance / 2 * (self.tilt - 1j * frequency) ** 2 * taper)
        start = int(np.floor(self.low / self.step))
        tilted = np.roll(np.fft.irfft(power, self.points), -(start % self.points))
        # sums that the tilt made all but impossible hold only rounding, which must not overflow
        return tilted * np.exp(np.minimum(self.count * np.log(scale) - self.tilt * self.sums, 600.0))
