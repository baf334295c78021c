"""The law of a sum of independent lattice losses: windows worth following, tilted transforms, what they leave out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.lattice import dense
from guarantees.numerics.array import Array
from guarantees.numerics.powers import Summand, summed_masses
from guarantees.numerics.search import first

MASS_LEFT_OUT = 1e-17
"""Bound on the mass beyond the window of the composed loss, and on that cut off all single losses."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LatticePart:
    """Masses without the record of one lattice law, as logarithms, and how often it is composed."""

    first: int
    log_masses: Array
    times: int
    spacing: float
    lost: tuple[float, float]
    """Masses at infinite loss: at -infinity without, and at +infinity with the record."""
    offset: float = 0.0
    """By how much the losses lie above the points of the lattice."""

    @functools.cached_property
    def losses(self) -> Array:
        """The lattice points."""
        return self.offset + self.spacing * (self.first + np.arange(len(self.log_masses)))

    def log_moment(self, tilt: float) -> float:
        """``ln sum_t p(t) e^(tilt t)`` over the finite losses."""
        exponents = self.log_masses + tilt * self.losses
        top = float(exponents.max())
        return top + float(np.log(np.sum(np.exp(exponents - top))))

    def tilted(self, tilt: float) -> Array:
        """Masses proportional to ``p(t) e^(tilt t)`` that sum to 1."""
        return np.exp(self.log_masses + tilt * self.losses - self.log_moment(tilt))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
    """Losses between which the sum is followed, and the tilts under which it is computed there."""

    low: float
    high: float
    tilts: tuple[float, ...]


Plan = tuple[Stretch, ...]
"""One stretch, or two with no loss worth following between them: the first for one side, the second for the other."""


def lattice_parts(laws: Sequence[DiscreteLaw], times: Sequence[int], spacing: float) -> list[LatticePart]:
    """Laws on a lattice as their logarithmic masses, each with the number of times that it is summed."""
    parts = []
    for law, n in zip(laws, times, strict=True):
        first, log_masses = dense(law, spacing)
        lost = float(law.without[0]), float(law.with_record[-1])
        parts.append(LatticePart(first=first, log_masses=log_masses, times=n, spacing=spacing, lost=lost))
    return parts


def summed_parts(parts: Sequence[LatticePart], plan: Plan) -> DiscreteLaw:
    """Law of the sum of independent lattice losses."""
    found = [_followed(parts, stretch) for stretch in plan]
    losses, log_without = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    with np.errstate(under="ignore"):
        without, with_record = np.exp(np.minimum(log_without, 0.0)), np.exp(np.minimum(log_without + losses, 0.0))
    lost = [-np.expm1(sum(part.times * np.log1p(-part.lost[side]) for part in parts)) for side in (0, 1)]
    return DiscreteLaw(
        np.concatenate([[-np.inf], losses, [np.inf]]),
        np.concatenate([[lost[0]], without, [0.0]]),
        np.concatenate([[0.0], with_record, [lost[1]]]),
    )


def _followed(parts: Sequence[LatticePart], stretch: Stretch) -> tuple[Array, Array]:
    """Losses of one stretch, and the logarithm of their masses without the record."""
    # it takes a fifteenth of a second to import, and most commands compose nothing
    from scipy import fft

    spacing, offset = parts[0].spacing, sum(part.times * part.offset for part in parts)
    low = int(np.floor((stretch.low - offset) / spacing)) - 1
    size = int(fft.next_fast_len(int(np.ceil((stretch.high - offset) / spacing)) + 2 - low, True) or 0)
    losses = offset + spacing * (low + np.arange(size))
    best, log_without = np.full(size, np.inf), np.full(size, -np.inf)
    for tilt in stretch.tilts:
        scale = sum(part.times * part.log_moment(tilt) for part in parts)
        log_factor = scale - tilt * losses
        tilted = [Summand(masses=part.tilted(tilt), first=part.first, times=part.times) for part in parts]
        raised = summed_masses(tilted, low=low, size=size)
        # The rounding error of each tilt is proportional to its factor: take the smallest.
        better = log_factor < best
        with np.errstate(divide="ignore"):
            log_without = np.where(better, np.log(raised) + log_factor, log_without)
        best = np.minimum(best, log_factor)
    return losses, log_without


def planned_windows(parts: Sequence[LatticePart]) -> Plan:
    """Stretches and tilts, found on a coarse lattice that leaks more than any finer one."""
    room = -np.log(MASS_LEFT_OUT)
    speeds = np.geomspace(1e-3, 1e4, 71)

    def end(base: float, sign: int) -> float:
        """Loss beyond which Chernoff's bound leaves at most MASS_LEFT_OUT; in its speed it falls, then rises."""

        @functools.cache
        def bound(i: int) -> float:
            return (sum(p.times * p.log_moment(base + sign * speeds[i]) for p in parts) + room) / speeds[i]

        return bound(first(lambda i: bound(i) < bound(i + 1), -1, len(speeds) - 1))

    low = max(-end(0.0, -1), sum(part.times * part.losses[0] for part in parts))
    high = min(end(1.0, 1), sum(part.times * part.losses[-1] for part in parts))
    low = float(min(low, *(part.losses[0] for part in parts), 0.0))
    high = float(max(high, *(part.losses[-1] for part in parts), 0.0))
    # where one side's losses end and the other's begin
    ends, begins = float(end(0.0, 1)), -float(end(1.0, -1))
    if low < ends < begins < high:
        return (
            Stretch(low=low, high=ends, tilts=(*_walk(parts, 0.0, -1, low, ends), 0.0)),
            Stretch(low=begins, high=high, tilts=(1.0, *_walk(parts, 1.0, 1, begins, high))),
        )
    return (Stretch(low=low, high=high, tilts=_tilts(parts, low, high)),)


def _tilts(parts: Sequence[LatticePart], low: float, high: float) -> tuple[float, ...]:
    """Tilts whose means are some six standard deviations apart, over the whole window."""
    between = int(np.clip(_moments(parts, 0.5)[1] / 6.0, 1, 8))
    inside = np.linspace(0.0, 1.0, between + 1).tolist()
    return (*_walk(parts, 0.0, -1, low, high), *inside, *_walk(parts, 1.0, 1, low, high))


def _moments(parts: Sequence[LatticePart], tilt: float) -> tuple[float, float]:
    """Mean and standard deviation of the tilted sum."""
    mean = variance = 0.0
    for part in parts:
        weights = part.tilted(tilt)
        centre = float(np.sum(weights * part.losses))
        mean += part.times * centre
        variance += part.times * float(np.sum(weights * (part.losses - centre) ** 2))
    return mean, float(np.sqrt(variance))


def _walk(parts: Sequence[LatticePart], start: float, sign: int, low: float, high: float) -> list[float]:
    """Tilts beyond the one at the start, as long as they bring the tails nearer."""
    found, tilt = [], start
    for _ in range(6):
        mean, deviation = _moments(parts, tilt)
        if deviation == 0 or not low < mean < high:
            break
        before, tilt = tilt, tilt + sign * 6.0 / deviation
        # Beyond this the exponent itself is rounded by more than the tilt gains.
        if abs(tilt) * max(-low, high) > 5000.0 or not _stays(parts, before, tilt, high - low):
            break
        found.append(tilt)
    return found


def _stays(parts: Sequence[LatticePart], before: float, tilt: float, width: float) -> bool:
    """Whether almost nothing wraps around the circle onto the losses at which this tilt is used.

    It is used beyond the loss at which its factor falls below that of the tilt before. The tail of a loss that was
    itself composed ends in rounding errors, which a large tilt would raise above all else.
    """

    def total(z: float) -> float:
        return sum(part.times * part.log_moment(z) for part in parts)

    sign, at = np.sign(tilt - before), total(tilt)
    end = (at - total(before)) / (tilt - before) + sign * width
    return min(total(tilt + sign * s) - at - sign * s * end for s in np.geomspace(1e-2, 1e4, 25)) < np.log(1e-14)
