"""Sums of independent lognormals on a lattice, by FFT, with a proven bracket.

``Y = exp(x/sigma - 1/(2 sigma^2))`` with x standard normal is the likelihood ratio of one round; the mean ``L``
of ``rounds`` copies is the likelihood ratio of the 0/1 pair. Each Y is moved to its two neighbouring lattice
points so that its mean is kept, hence ``E (h - L)^+`` and ``E (L - h)^+`` can only grow: the lattice bounds every
delta from above.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from scipy import fft
from scipy.special import log_ndtr, ndtr

from guarantees.numerics.array import Array
from guarantees.numerics.powers import running_sums
from guarantees.shuffling.tilting import Cumulants

FARTHEST = 11.0
"""Normal deviation beyond the record's shift from which rounds are treated as never happening (1e-28)."""
FINE_CELLS = 2**19
"""Cells of one round before the lattice coarsens; after each half as many, its spacing doubles."""
EXTENDED = 3000
"""Number of rounds above which transforms use extended precision."""
RARE = 1e-5
"""Expected number of large rounds up to which they are counted separately."""
UNIT = 2.0**-53


@dataclasses.dataclass(frozen=True)
class Bracket:
    """One delta bracketed: ``lower`` and ``upper`` are proved but for round-off, which is estimated."""

    lower: float
    upper: float
    proved: str
    estimated: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRound:
    """One round at most ``top``, rounded to ``step * index`` with its mean kept."""

    index: Array
    masses: Array
    top: float
    rounding: float
    """Mean square of the rounding."""
    largest: float
    """Bound of the rounding itself."""


def _edges(first: int, last: int) -> Array:
    """Lattice points between which cells lie: all of them at first, then fewer and fewer."""
    fine = min(last, first + FINE_CELLS)
    parts, at, stride = [np.array([0] if first > 0 else [], np.int64), np.arange(first, fine + 1)], fine, 2
    while at < last:
        part = at + stride * np.arange(1, FINE_CELLS // 2 + 1)
        part = part[part <= last]
        if not len(part):
            part = np.array([last])
        parts.append(part)
        at, stride = int(part[-1]), 2 * stride
    return np.concatenate(parts)


def one_round(noise_multiplier: float, step: float, top: float) -> OneRound:
    """The lattice law of one round that is at most ``top`` (moved to the lattice); larger rounds are left out."""
    last = max(1, int(np.ceil(top / step)))
    # nothing lies 38 deviations below the median
    first = int(np.exp((-38 - 0.5 / noise_multiplier) / noise_multiplier) / step) if last > FINE_CELLS else 0
    index = _edges(first, last)
    edge = index * step
    with np.errstate(divide="ignore"):
        z = noise_multiplier * np.log(edge) + 0.5 / noise_multiplier

    def differences(shift: float) -> Array:
        # the smaller of the two tails keeps its relative precision; one cell has the middle inside
        tail, below = ndtr(-np.abs(z - shift)), z < shift
        found = np.where(below[1:], np.diff(tail), -np.diff(tail))
        middle = below[:-1] & ~below[1:]
        found[middle] = ndtr(shift - z[:-1][middle]) - tail[1:][middle]
        return found

    mass, moment, width = differences(0.0), differences(1 / noise_multiplier), np.diff(edge)
    upper = np.clip((moment - edge[:-1] * mass) / width, 0.0, mass)
    points = np.zeros(len(edge))
    points[1:] += upper
    points[:-1] += mass - upper
    _require_kept(float(points.sum()), float(ndtr(z[-1])), "mass")
    _require_kept(float(points @ edge), float(ndtr(z[-1] - 1 / noise_multiplier)), "mean")
    held = mass > 0
    rounding = float(np.sum((width**2 * upper * (1 - upper / np.where(held, mass, 1.0)))[held]))
    return OneRound(
        index=index, masses=points, top=float(edge[-1]), rounding=rounding, largest=float(width[held].max(initial=0.0))
    )


@dataclasses.dataclass(frozen=True)
class _Spectrum:
    """The transform of a law on a circle, as logarithms: in extended precision where many rounds multiply its error.

    Frequencies at which its power would be below e^-80 are left out.
    """

    held: Array
    height: Array
    phase: Array

    @staticmethod
    def of(vector: Array, times: int) -> _Spectrum:
        found = np.asarray(fft.rfft(vector.astype(np.longdouble) if times > EXTENDED else vector))
        with np.errstate(divide="ignore"):
            held = times * np.log(np.abs(found.astype(complex))) > -80
        real, imaginary = np.real(found[held]), np.imag(found[held])
        return _Spectrum(held, np.log(real**2 + imaginary**2) / 2, np.arctan2(imaginary, real))

    def power(self, times: int) -> Array:
        """The transform to a power, at most the ``times`` of its construction."""
        power = np.zeros(len(self.held), complex)
        turn = np.remainder(times * self.phase, 2 * np.arctan2(self.phase.dtype.type(0), -1))
        power[self.held] = np.exp((times * self.height).astype(float) + 1j * turn.astype(float))
        return power


def _require_kept(found: float, due: float, what: str) -> None:
    if not abs(found - due) <= 1e-10 * due + 1e-290:
        raise ArithmeticError(f"the lattice of one round lost {what}: {found!r} of {due!r}.")


@dataclasses.dataclass(frozen=True)
class Jumps:
    """Sums with one or two rounds above ``cut``, with one transform for each number of them."""

    cut: float
    rounds: int
    left_out: float
    """Bound of the probability, with the record, of the sums that are left out."""

    def masses(self, one: OneRound, points: int, start: int) -> Array:
        """P(S = point, one or two jumps), with small round-off relative to their own probability."""
        step = one.top / one.index[-1]
        larger = one.index * step > self.cut
        rate = float(one.masses[larger].sum())
        body, jump = (
            np.bincount(one.index[part] % points, one.masses[part] * scale, points)
            for part, scale in ((~larger, 1.0), (larger, 1 / rate))
        )
        others = _Spectrum.of(body, self.rounds)
        factor = np.asarray(fft.rfft(jump)) * (self.rounds * rate)
        single = others.power(self.rounds - 1) * factor
        double = factor**2 * (0.5 * (1 - 1 / self.rounds))
        double = double * (others.power(self.rounds - 2) if self.rounds > 2 else 1.0)
        return np.roll(np.asarray(fft.irfft(single + double, points)), -start % points)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """The law of L around ``target``, exact for lattice-rounded rounds up to round-off.

    Rounds above ``high * rounds`` carry L above ``high`` by themselves: they are left out of the FFT and counted in
    closed form. The law is tilted before the FFT so that L is near ``target``, unless more than ``ALIASED`` of the
    tilted mass would wrap around.
    """

    rounds: int
    noise_multiplier: float
    low: float
    """No mass below this is worth counting (0: there is none)."""
    high: float
    target: float
    points: int
    jumps_above: float | None = None
    """Ratio above which everything asked for lies; only then are large rounds counted separately."""

    @property
    def step(self) -> float:
        """Lattice spacing of the sum of the rounds."""
        return 2 * self.rounds * (self.high - self.low) / self.points

    @property
    def _start(self) -> int:
        return int(np.floor(self.rounds * self.low / self.step))

    @cached_property
    def _round(self) -> OneRound:
        s = self.noise_multiplier
        farthest = np.exp(min((FARTHEST + 0.5 / s) / s, 700.0))
        return one_round(s, self.step, min(self.rounds * self.high, farthest))

    @cached_property
    def _larger(self) -> tuple[float, float]:
        """Probabilities, without and with the record, that some round is larger than those in the FFT."""
        z = self.noise_multiplier * np.log(self._round.top) + 0.5 / self.noise_multiplier
        others = log_ndtr(z)
        without = -np.expm1(self.rounds * others)
        with_record = -np.expm1(log_ndtr(z - 1 / self.noise_multiplier) + (self.rounds - 1) * others)
        if self._round.top < self.rounds * self.high:
            # such a round need not carry L above the window: at infinite loss it can only raise delta
            without = 0.0
        return float(without), float(with_record) + (0.0 if self.jumps is None else self.jumps.left_out)

    @cached_property
    def _cumulants(self) -> Cumulants:
        return Cumulants.of(self._round.index * self.step, self._round.masses, self.rounds)

    @cached_property
    def _tilt(self) -> float:
        return self._cumulants.tilt(
            mean=self.rounds * self.target, end=(self._start + self.points) * self.step, most=self.high <= 1
        )

    @staticmethod
    def _jumps_alone(begin: float) -> float:
        """Ratio from which only jumps are left, somewhat before ``begin``."""
        return 1 + 0.9 * (begin - 1)

    @cached_property
    def _raised(self) -> float:
        """Mass that ``excess`` counts although it may not be there: at infinite loss, or left out of the jumps."""
        far = self._larger[1] if self._round.top < self.rounds * self.high else 0.0
        return far if far or self.jumps is None else self.jumps.left_out

    @cached_property
    def jumps(self) -> Jumps | None:
        """Large rounds counted separately, if they are so rare that round-off would hide them."""
        begin = self.jumps_above
        if begin is None:
            return None
        cut = (begin - 1) * self.rounds / 8
        larger = self._round.index * self.step > cut
        rate = self.rounds * float(self._round.masses[larger].sum())
        shifted = float((self._round.masses * self._round.index)[larger].sum()) * self.step
        if not 0 < rate < RARE:
            return None
        body = Cumulants.bounding((self._round.index * self.step)[~larger], self._round.masses[~larger], self.rounds)
        without = np.exp(body.log_wrapped(0.0, self._jumps_alone(begin) * self.rounds))
        # three jumps, or a sum that comes so far without any, whose tail falls at least like exp(-.05 L / begin)
        left_out = rate**2 / 2 * shifted + rate**3 / 6 + without * begin * 64
        tail = ndtr(1 / self.noise_multiplier - self.noise_multiplier * np.log(self._round.top))
        return Jumps(cut, self.rounds, float(left_out)) if left_out < 1e-6 * tail else None

    @cached_property
    def _tilted(self) -> tuple[Array, int, float]:
        """The tilted masses from ``_start`` on, the round's centre, and the logarithm of one round's scale."""
        centre = round(self._cumulants.mean(self._tilt) / self.step)
        away = self._round.index - centre
        guess = self._cumulants.log_moment(self._tilt) - self._tilt * self.step * centre
        # only where there is no mass can the exponent be large
        weights = self._round.masses * np.exp(np.minimum(self._tilt * self.step * away - guess, 700.0))
        scale = float(weights.sum())
        vector = np.bincount(away % self.points, weights / scale, self.points)
        power = _Spectrum.of(vector, self.rounds).power(self.rounds)
        found = np.roll(np.asarray(fft.irfft(power, self.points)), (self.rounds * centre - self._start) % self.points)
        return found, centre, guess + np.log(scale)

    def _log_factor(self, place: Array) -> Array:
        """Logarithm of the factor that undoes the tilt of the masses at these lattice points."""
        _, centre, scale = self._tilted
        return self.rounds * scale - self._tilt * self.step * (place - float(self.rounds * centre))

    @cached_property
    def empty(self) -> bool:
        """Whether 'every round lies below the window's top' has a probability below 1e-290."""
        top = self.noise_multiplier * np.log(self.rounds * self.high) + 0.5 / self.noise_multiplier
        return bool(self.rounds * log_ndtr(top) < -667) or not self._round.masses.any()

    @cached_property
    def _masses(self) -> tuple[Array, Array]:
        """P(S = point) without and with the record."""
        place = self._start + np.arange(self.points)
        if self.empty:
            without = np.zeros(self.points)
        elif self.jumps is not None:
            without = self.jumps.masses(self._round, self.points, self._start)
        else:
            with np.errstate(under="ignore"):
                without = self._tilted[0] * np.exp(np.minimum(self._log_factor(place), 700.0))
        return without, without * (place * (self.step / self.rounds))

    @property
    def largest_mass(self) -> float:
        """Mass of the heaviest lattice point without the record."""
        return float(self._masses[0].max())

    @cached_property
    def _from_below(self) -> tuple[Array, Array]:
        without, with_record = (np.append(0.0, running_sums(m)) for m in self._masses)
        return without, with_record

    @cached_property
    def _from_above(self) -> tuple[Array, Array]:
        without, with_record = (
            np.append(running_sums(m[::-1])[::-1], 0.0) + more
            for m, more in zip(self._masses, self._larger, strict=True)
        )
        return without, with_record

    def _at(self, ratio: Array) -> Array:
        at = np.floor(np.asarray(ratio) * (self.rounds / self.step)).astype(np.int64) - self._start + 1
        return np.clip(at, 0, self.points)

    def below(self, ratio: Array) -> tuple[Array, Array]:
        """P(L <= ratio) without and with the record, at ratios within the window."""
        at, (without, with_record) = self._at(ratio), self._from_below
        return without[at], with_record[at]

    def above(self, ratio: Array) -> tuple[Array, Array]:
        """P(L > ratio) without and with the record, at ratios within the window."""
        if self.empty or (self.jumps is None and self._tilt < 0):
            # a tilt down is only needed where larger ratios are not rare; it would multiply their round-off
            without, with_record = self.below(ratio)
            return 1 - without, 1 - with_record
        at, (without, with_record) = self._at(ratio), self._from_above
        return without[at], with_record[at]

    def shortfall(self, ratio: Array) -> Array:
        """``E (ratio - L)^+`` without the record: never below the truth but for round-off."""
        without, with_record = self.below(ratio)
        return np.asarray(ratio) * without - with_record

    def excess(self, ratio: Array) -> Array:
        """``E (L - ratio)^+`` without the record: never below the truth but for round-off."""
        without, with_record = self.above(ratio)
        return with_record - np.asarray(ratio) * without

    def roundoff(self, ratio: float) -> float:
        """Estimated absolute error of the tails at a ratio, from the FFT after untilting and from the closed forms."""
        if self.empty:
            return 0.0
        if self.jumps is not None:
            return 1e-12 * self._larger[1]
        place = np.array(ratio * self.rounds / self.step)
        transform = UNIT * (8 + (2.0**-11 if self.rounds > EXTENDED else 1.0) * self.rounds)
        return float(transform * np.exp(min(float(self._log_factor(place)), 700.0)) * max(1.0, ratio))

    def gap(self, low: float, high: float) -> float:
        """Proven bound on how far ``shortfall`` and ``excess`` at ratios in [low, high] can lie above the truth.

        With e_j the rounding of round j (mean 0 given Y_j) and e their mean, the best of three: (a) ``E e^+``, at most
        half the deviation of e; (b) Lindeberg, replacing one round after another: each replacement costs at most
        ``E e_j^2 / 2`` times the density of the rounds not yet replaced, which is at most ``sqrt(2/m)`` times the
        lognormal's for m of them [rogozin1987; ball1986], the last one ``E |e_j| / 2``; (c) as
        ``E e 1{L > ratio} = 0``, only roundings across the ratio count: ``E |e| 1{|L + e - ratio| <= |e|}`` up to
        some |e|, and Bernstein's tail of e beyond. Added: what is counted in case it is there.
        """
        if self.empty:
            return 0.0
        deviation = np.sqrt(self._round.rounding)
        peak = np.exp(min(1 / self.noise_multiplier**2, 600.0)) * self.noise_multiplier / np.sqrt(2 * np.pi)
        lindeberg = self._round.rounding * np.sqrt(2) * peak * np.sqrt(self.rounds) + deviation / 2
        far = 40 + 1.3 * max(0.0, float(np.log(high)))
        local = min(self._local_gap(low, high, exponent) for exponent in (4, 8, 12, 20, 32, far))
        found = min(deviation / np.sqrt(self.rounds) / 2, lindeberg / self.rounds, local)
        return float(found + (self._raised if high > 1 or self.high > 1 else 0.0))

    def _local_gap(self, low: float, high: float, exponent: float) -> float:
        """Roundings below Bernstein's bound for probability 2 e^-exponent, if L is near; and all larger ones."""
        rounding, largest = self._round.rounding / self.rounds, self._round.largest / (3 * self.rounds)
        reach = 1.001 * exponent * (largest + np.sqrt(largest**2 + 2 * rounding / exponent))
        begins = self.low if self.jumps is None else self._jumps_alone(self.jumps_above or 1.0)
        if (begins > 0 and low - reach <= begins) or high + 2 * reach >= 2 * self.high - self.low:
            return np.inf
        cells = int(min((high - low) / reach, 1e6))
        if cells == 10**6:
            return np.inf
        ratios = low + reach * np.arange(-1, cells + 3)
        near = np.diff(self.below(ratios)[0]) if self.high <= 1 else -np.diff(self.above(ratios)[0])
        # any interval of length 2 reach lies in three neighbouring cells
        most = float(np.convolve(near, np.ones(3)).max()) + (0.0 if self.jumps is None else self.jumps.left_out)
        # beyond, the tail falls at least like exp(-exponent |e| / reach)
        return float(reach * (most + 2 * np.exp(-exponent) * (1 + 1 / exponent)))
