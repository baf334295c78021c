"""Expected positive parts of sums of independent lattice variables, by an FFT with bounded rounding and wrap-around."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from scipy import fft

from guarantees.numerics.array import Array
from guarantees.shuffling.stop_loss import LatticeLaw

UNIT = 2.0**-53
PER_LEVEL = 16 * UNIT
"""Relative error of one level of a transform: a complex product with a rounded root and two additions need 7 units."""
MOST_POINTS = 2**20
DEVIATIONS = 8.0
"""Deviations that the circle reaches to each side of the largest sum's mean; the mass beyond is bounded."""
FAINT = 1e-22
"""Moduli of the spectrum below this are left out, and their effect bounded."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Spectrum:
    """The first frequencies of the law of a sum; all later ones are below ``rest`` in modulus."""

    values: Array
    errors: Array
    rest: float


@dataclasses.dataclass(frozen=True, eq=False)
class CertifiedSum:
    """Upper bounds of ``E (S_n - t)^+`` for sums ``S_n`` of up to ``most`` copies of a lattice variable.

    Mass that wraps round the circle from below only adds; what wraps from above is added once more by Chernoff's
    bound. Each entry of a transform of length 2^k is wrong by at most 16 (k + 2) units of rounding times the sum of the
    moduli transformed [higham2002, section 24.1]; that bound is carried through power and inverse.
    """

    law: LatticeLaw
    most: int

    @cached_property
    def _reach(self) -> tuple[float, float]:
        """Distances below and above the mean up to which a sum is followed: some deviations, one farthest value."""
        values, mean = self.law.values, self.law.mean
        deviations = DEVIATIONS * self.law.deviation * np.sqrt(self.most)
        return deviations + mean - float(values[0]), deviations + float(values[-1]) - mean

    @cached_property
    def _size(self) -> int:
        width, whole = sum(self._reach) / self.law.spacing, self.most * (len(self.law.masses) - 1) + 1
        return int(min(2 ** int(np.ceil(np.log2(max(min(width, whole), 16)))), MOST_POINTS))

    @cached_property
    def _one(self) -> tuple[Array, Array]:
        """Transform of one copy, and the largest modulus from each frequency on."""
        wrapped = np.bincount(np.arange(len(self.law.masses)) % self._size, self.law.masses, self._size)
        values = np.asarray(fft.rfft(wrapped))
        return values, np.maximum.accumulate(np.abs(values)[::-1])[::-1]

    @cached_property
    def _log_moduli(self) -> Array:
        """Log moduli of the transform of one copy, error included, so that powers are exponentials."""
        return np.log(np.abs(self._one[0]) + self._slack)

    @cached_property
    def _slack(self) -> float:
        """Error of any entry of a transform, relative to the sum of the input's moduli."""
        return PER_LEVEL * (np.log2(self._size) + 2)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Speeds and ``ln E e^(speed c)`` at them."""
        values = self.law.values
        usual = 1 / (self.law.deviation * np.sqrt(self.most))
        speeds = np.geomspace(0.5 * usual, max(60 * usual, 40 / self._reach[1]), 12)
        top = speeds * values[-1]
        # masses that underflow at the top are counted as more than they are: the moment is bounded from above
        scaled = np.exp(np.outer(speeds, values) - top[:, None]) @ self.law.masses
        return speeds, top + np.log(np.maximum(scaled, 1e-300))

    def _beyond(self, copies: int, end: float, level: Array) -> Array:
        """``E (S - level)^+ 1{S > end}`` at most: ``(x - t)^+ e^(-speed (x - end)) <= max(end - t, 1/speed)`` there."""
        speeds, logs = self._moments
        reach = np.maximum(end - level[:, None], 1 / speeds)
        return np.min(reach * np.exp(np.minimum(copies * logs - speeds * end, 600.0)), axis=1)

    def _power(self, copies: int) -> _Spectrum:
        """Spectrum of the sum: z^n by repeated squaring is wrong by at most 3 n units."""
        one, largest = self._one
        faint = FAINT ** (1 / copies)
        kept = max(int(np.searchsorted(-largest, -faint)), 2)
        values, square, left = np.ones(kept, complex), one[:kept], copies
        while left:
            if left & 1:
                values = values * square
            left >>= 1
            if left:
                square = square * square
        errors = 1.001 * copies * (self._slack + 3 * UNIT) * np.exp((copies - 1) * self._log_moduli[:kept])
        rest = (float(largest[kept]) + self._slack) ** copies if kept < len(one) else 0.0
        return _Spectrum(values=values, errors=errors, rest=rest)

    def _window(self, copies: int) -> tuple[int, int]:
        """First and last lattice index followed: around the mean and never beyond the largest sum."""
        below, above = self._reach
        bottom = int(np.floor(copies * self.law.mean / self.law.spacing - self._size * below / (below + above)))
        last = copies * (self.law.first + len(self.law.masses) - 1)
        return bottom, min(bottom + self._size - 1, last)

    def excess(self, copies: int, level: Array) -> Array:
        """Upper bound of ``E (S_n - level)^+`` for each level."""
        return self._excess(self._power(copies), copies, np.asarray(level, float))

    def _excess(self, found: _Spectrum, copies: int, level: Array) -> Array:
        step, size = self.law.spacing, self._size
        bottom, top = self._window(copies)
        padded = np.zeros(size // 2 + 1, complex)
        padded[: len(found.values)] = found.values
        masses = np.asarray(fft.irfft(padded, size))
        error = (2 * float(np.sum(found.errors + self._slack * np.abs(found.values))) + size * found.rest) / size
        at = np.arange(bottom, top + 1)
        held = np.maximum(masses[(at - copies * self.law.first) % size], 0.0) + error
        above = np.cumsum(held[::-1])[::-1]
        stop = np.append(step * np.cumsum(above[:0:-1])[::-1], 0.0)
        inside = np.interp(level, step * at, stop) + np.maximum(step * bottom - level, 0.0)
        missed = 0.0
        if top < copies * (self.law.first + len(self.law.masses) - 1):
            missed = self._beyond(copies, step * top, level)
        return inside * (1 + 4 * UNIT * size) + missed + copies * self.law.excess

    def positive(self, copies: int) -> float:
        """Upper bound of ``E (S_n)^+``: spectrum against the ramp's, without an inverse transform."""
        (bottom, top), found, size = self._window(copies), self._power(copies), self._size
        if bottom > 0 or top < 1 or len(found.values) > size // 64:
            return float(self._excess(found, copies, np.zeros(1))[0])
        k = np.arange(1, len(found.values))

        def root(times: int) -> Array:
            return np.exp(2j * np.pi * (k * times % size) / size)

        gap = -2j * np.sin(np.pi * k / size) * np.exp(1j * np.pi * k / size)
        ramp = (root(1) - (top + 1) * root(top + 1) + top * root(top + 2)) / gap**2
        ramp_error = 16 * UNIT * (2 * top + 2) / np.abs(gap) ** 2
        turned = found.values[1:] * root(-copies * self.law.first)
        # every frequency stands for its conjugate too, but for the first and the one in the middle
        weight, flat = np.where(2 * k == size, 1.0, 2.0), top * (top + 1) / 2
        total = float(found.values[0].real) * flat + float(weight @ (turned * ramp).real)
        each = found.errors[1:] * np.abs(ramp) + np.abs(turned) * (ramp_error + (64 + len(k)) * UNIT * np.abs(ramp))
        wrong = found.errors[0] * flat + float(weight @ each)
        # later frequencies: the ramp's are at most 2 (top + 1) / |1 - root|, and the sine is above half its argument
        wrong += found.rest * 4 * (top + 1) * size * (1 + np.log(size))
        value = self.law.spacing * max(total + 1.001 * wrong, 0.0) / size
        missed = 0.0
        if top < copies * (self.law.first + len(self.law.masses) - 1):
            missed = float(self._beyond(copies, self.law.spacing * top, np.zeros(1))[0])
        return value + missed + copies * self.law.excess
