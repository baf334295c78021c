"""Sums of independent lognormals on a lattice, by FFT, with a proven bracket.

``Y = exp(x/sigma - 1/(2 sigma^2))`` with x standard normal is the likelihood ratio of one round; the mean ``L``
of ``rounds`` copies is the likelihood ratio of the 0/1 pair. Each Y is moved to its two neighbouring lattice
points so that its mean is kept, hence ``E (h - L)^+`` can only grow: the lattice bounds every delta from above.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr

from guarantees.numerics.array import Array

POINTS = 2**19
"""Lattice points of one window, half of them beyond its top as a guard against wrap-around."""


@dataclasses.dataclass(frozen=True)
class Bracket:
    """One delta from both sides. ``lower`` and ``upper`` are proved but for round-off, which is estimated."""

    lower: float
    upper: float
    proved: str
    estimated: str


def _split(noise_multiplier: float, step: float, cells: int) -> Array:
    """Mass that the lognormal sends to the points ``0, step, ..., cells*step``, keeping the mean of each cell."""
    edge = np.arange(cells + 1) * step
    with np.errstate(divide="ignore"):
        z = noise_multiplier * np.log(edge) + 0.5 / noise_multiplier

    def differences(shift: float) -> Array:
        # the smaller of the two tails keeps its relative precision
        return np.where(z[1:] < shift, np.diff(ndtr(z - shift)), -np.diff(ndtr(shift - z)))

    mass, moment = differences(0.0), differences(1 / noise_multiplier)
    upper = np.clip((moment - edge[:-1] * mass) / step, 0.0, mass)
    points = np.zeros(cells + 1)
    points[1:] += upper
    points[:-1] += mass - upper
    return points


def _root(decreasing: Callable[[float], float], low: float, high: float) -> float:
    """Root to a relative precision that is ample for a tilt."""
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if decreasing(middle) > 0 else (low, middle)
    return high


@dataclasses.dataclass(frozen=True)
class Window:
    """The law of L on ``(low, high]``, exact for lattice-rounded rounds up to round-off.

    Values above ``high`` are not resolved; their probabilities follow from the totals, which are known. Under
    the tilt ``exp(-tilt S)`` of the sum S the mass that wraps around the FFT is negligible (estimated, not proved).
    """

    rounds: int
    noise_multiplier: float
    low: float
    high: float
    points: int = POINTS

    @property
    def step(self) -> float:
        """Lattice spacing of the sum of the rounds."""
        return 2 * self.rounds * (self.high - self.low) / self.points

    @property
    def _start(self) -> int:
        return int(np.floor(self.rounds * self.low / self.step))

    @property
    def _empty(self) -> bool:
        """Whether even 'every round lies below the window's top' has a probability below 1e-280."""
        top = self.noise_multiplier * np.log(self.rounds * self.high) + 0.5 / self.noise_multiplier
        return bool(self.rounds * log_ndtr(top) < -645)

    @cached_property
    def _one_round(self) -> Array:
        # a round beyond the window's width carries the sum out of the window for good
        widest = min(self.points - 1, int(np.ceil(self.rounds * (self.high - self.low) / self.step)) + 1)
        return _split(self.noise_multiplier, self.step, widest)

    @cached_property
    def _tilt(self) -> float:
        points = np.arange(len(self._one_round))
        least = 10.0 / self.points

        def excess(tilt: float) -> float:
            weight = self._one_round * np.exp(-tilt * points)
            middle = self._start + 0.25 * self.points
            return self.rounds * float(weight @ points) / float(weight.sum()) - middle

        if excess(least) <= 0:
            return least
        top = 2 * least
        while excess(top) > 0:
            top *= 2
        return _root(excess, top / 2, top)

    @cached_property
    def _masses(self) -> Array:
        """P_without(S = point) for the lower half of the lattice."""
        points = np.arange(len(self._one_round))
        weight = self._one_round * np.exp(-self._tilt * points)
        scale = weight.sum()
        transform = np.fft.rfft(weight / scale, self.points)
        with np.errstate(divide="ignore"):
            power = np.exp(self.rounds * np.log(transform))
        tilted = np.roll(np.fft.irfft(power, self.points), -(self._start % self.points))[: self.points // 2 + 1]
        index = self._start + np.arange(len(tilted))
        return tilted * np.exp(self._tilt * index + self.rounds * np.log(scale))

    @cached_property
    def _sums(self) -> tuple[Array, Array]:
        if self._empty:
            return np.zeros(self.points // 2 + 2), np.zeros(self.points // 2 + 2)
        ratio = (self._start + np.arange(self.points // 2 + 1)) * (self.step / self.rounds)
        zero = np.zeros(1)
        return (
            np.concatenate([zero, np.cumsum(self._masses)]),
            np.concatenate([zero, np.cumsum(self._masses * ratio)]),
        )

    def below(self, ratio: Array) -> tuple[Array, Array]:
        """P(L <= ratio) without and with the record, at ratios within the window."""
        at = np.floor(np.asarray(ratio) * self.rounds / self.step).astype(np.int64) - self._start + 1
        at = np.clip(at, 0, self.points // 2 + 1)
        without, with_record = self._sums
        return without[at], with_record[at]

    def shortfall(self, ratio: Array) -> Array:
        """``E (ratio - L)^+`` without the record: never below the truth."""
        without, with_record = self.below(ratio)
        return np.asarray(ratio) * without - with_record

    def gap(self, ratio: float) -> float:
        """Proven bound on how far ``shortfall`` can lie above the truth; the best of three.

        With e_j the rounding of round j (mean 0 given Y_j, ``|e_j| <= dx``) and e their mean:
        (a) ``E e^+ <= dx / (4 sqrt M)``; (b) Lindeberg, replacing one round after another: each replacement
        costs at most ``E e_j^2 / 2`` times the density of the rounds not yet replaced, which is at most
        ``sqrt(2/m)`` times the lognormal's for m of them [rogozin1987; ball1986], the last one ``dx/4``;
        (c) ``E |e| 1{|L - ratio| <= |e|}`` with Hoeffding's tail of e beyond four standard deviations.
        """
        spread = self.step / np.sqrt(self.rounds)
        peak = np.exp(1 / self.noise_multiplier**2) * self.noise_multiplier / np.sqrt(2 * np.pi)
        lindeberg = self.step**2 / 8 * np.sqrt(2) * peak * 2 * np.sqrt(self.rounds) + self.step / 4
        reach = 4.01 * spread
        inside = self.below(np.array([ratio - reach, ratio + reach]))[0]
        local = reach * float(np.diff(inside)[0]) + 9 * spread * np.exp(-32.0)
        within = self.low <= ratio - reach and ratio + reach <= self.high
        return min(spread / 4, lindeberg / self.rounds, local if within else np.inf)
