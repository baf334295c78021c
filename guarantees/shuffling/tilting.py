"""How far the law of one round may be tilted before the sum of many wraps around a finite circle."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.numerics.array import Array
from guarantees.numerics.search import halved

GROUPS = 1024
"""Groups of equal width; half as many more, of geometric widths, resolve the smallest values."""
ALIASED = 1e-14
"""Largest share of the tilted mass that may wrap around, by Chernoff's bound of the grouped round."""
SPEEDS = np.geomspace(0.05, 600.0, 12)
"""Further tilts for Chernoff's bound, in units of one over the distance to the circle's end."""


def _starts(count: int) -> Array:
    """Where the groups of points begin."""
    places = [np.linspace(0, count, GROUPS + 1)[:-1], np.geomspace(1, count, GROUPS // 2 + 1)[:-1]]
    return np.unique(np.concatenate(places).astype(int))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cumulants:
    """One round with its points in groups, and the number of rounds."""

    values: Array
    log_masses: Array
    rounds: int

    @staticmethod
    def of(values: Array, masses: Array, rounds: int) -> Cumulants:
        """A round with neighbouring points grouped at their mean: an estimate."""
        starts = _starts(len(values))
        total = np.add.reduceat(masses, starts)
        held = total > 0
        mean = np.add.reduceat(masses * values, starts)[held] / total[held]
        return Cumulants(values=mean, log_masses=np.log(total[held]), rounds=rounds)

    @staticmethod
    def bounding(values: Array, masses: Array, rounds: int) -> Cumulants:
        """A round with each group moved to its two ends, mean kept: no moment becomes smaller."""
        starts = _starts(len(values))
        first, last = values[starts], values[np.append(starts[1:], len(values)) - 1]
        total = np.add.reduceat(masses, starts)
        share = np.add.reduceat(masses * values, starts) - first * total
        upper = np.clip(np.divide(share, last - first, out=np.zeros_like(share), where=last > first), 0.0, total)
        ends, parts = np.stack([first, last], axis=1).ravel(), np.stack([total - upper, upper], axis=1).ravel()
        held = parts > 0
        return Cumulants(values=ends[held], log_masses=np.log(parts[held]), rounds=rounds)

    def _exponents(self, tilt: Array) -> tuple[Array, Array]:
        exponents = self.log_masses + np.multiply.outer(tilt, self.values)
        return exponents, exponents.max(axis=-1, keepdims=True)

    def log_moments(self, tilt: Array) -> Array:
        """``ln E exp(tilt Y)`` at each tilt."""
        exponents, top = self._exponents(tilt)
        return top[..., 0] + np.log(np.exp(exponents - top).sum(axis=-1))

    def log_moment(self, tilt: float) -> float:
        """``ln E exp(tilt Y)``."""
        return float(self.log_moments(np.array(tilt)))

    def mean(self, tilt: float) -> float:
        """Mean of one tilted round."""
        exponents, top = self._exponents(np.array(tilt))
        weights = np.exp(exponents - top)
        return float(weights @ self.values / weights.sum())

    def log_wrapped(self, tilt: float, end: float) -> float:
        """Chernoff's bound of the logarithm of the tilted probability that the sum reaches ``end``.

        A bound of a ``bounding`` round at tilt 0, else an estimate.
        """
        if self.rounds * self.values[-1] < end * (1 + 1e-9):
            return -np.inf
        way = end - self.rounds * self.mean(tilt)
        if way <= 0:
            return 0.0
        further = SPEEDS / way
        moments = self.log_moments(tilt + np.append(0.0, further))
        return float(np.min(self.rounds * (moments[1:] - moments[0]) - further * end))

    def tilt(self, *, mean: float, end: float, most: bool) -> float:
        """The tilt that puts the sum's mean at ``mean``, or less where too much would wrap around ``end``.

        ``most`` says that the tilt may not be positive.
        """

        def allowed(tilt: float) -> bool:
            return self.rounds * self.mean(tilt) <= mean and self.log_wrapped(tilt, end) <= np.log(ALIASED)

        unit = 1 / (end - min(mean, self.rounds * self.mean(0.0)))
        if most and allowed(0.0):
            return 0.0
        low, high = (-unit, 0.0) if most or not allowed(0.0) else (0.0, unit)
        while high > 0 and allowed(high) and high < 1e5 * unit:
            low, high = high, 2 * high
        while high <= 0 and not allowed(low) and low > -1e9 * unit:
            low, high = 4 * low, low
        return halved(lambda tilt: not allowed(tilt), low, high, rounds=30)[0]
