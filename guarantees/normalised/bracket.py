"""Curves of a loss known in cells: an estimate, with a proved curve on each side of it."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from guarantees.answers import hands_on
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.hockey_stick import hockey_stick
from guarantees.laws.law import Certificate, LossLaw, Reversed, Tails
from guarantees.normalised.batch_cells import LEAST, Cells
from guarantees.numerics.array import Array
from guarantees.numerics.rounding import at_most
from guarantees.trade_off import TradeOff

HALF = 1 << 16
FARTHEST = 1e9
"""Largest finite loss of the lattice, which is even in the inverse hyperbolic sine of the loss."""
FLAT = float(np.arcsinh(FARTHEST)) / HALF
LEVELS = np.concatenate([[-np.inf], np.sinh(FLAT * np.arange(-HALF, HALF + 1)), [np.inf]])


def _below(loss: Array) -> Array:
    """Index of the last level at or below each loss."""
    with np.errstate(invalid="ignore"):
        place = np.floor(np.arcsinh(np.clip(loss, -FARTHEST, FARTHEST)) / FLAT) + (HALF + 1)
    place = np.where(loss > FARTHEST, 2 * HALF + 1, np.where(loss < -FARTHEST, 0, place))
    return place.astype(np.int64)


def _split(masses: Array, loss: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Masses of both sides at ``low`` and at ``high`` that together equal those given at ``loss`` in between.

    Both sums are kept, so the result can be turned into the original: it leaks at least as much.
    [doroshenko2022]
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = np.expm1(low - loss) / np.expm1(low - high)
        share = np.where((loss > low) & (high > low), np.clip(share, 0.0, 1.0), 0.0)
        without = np.where(share > 0, share * np.exp(loss - high), 0.0)
    top = masses * np.stack([np.where(np.isnan(without), 0.0, without), share])
    return masses - top, top


@dataclasses.dataclass(eq=False)
class _Levels:
    """Masses of both sides at each level, added up cell by cell."""

    masses: Array = dataclasses.field(default_factory=lambda: np.zeros((2, len(LEVELS))))

    def add(self, at: Array, masses: Array) -> None:
        if not len(at):
            return
        # cells of one strip are near each other, and all levels would be a megabyte for each strip
        first, last = int(at.min()), int(at.max()) + 1
        for side, mass in zip(self.masses, masses, strict=True):
            side[first:last] += np.bincount(at - first, mass)

    def split(self, masses: Array, loss: Array, low: Array, high: Array) -> None:
        """Add masses, split between two levels."""
        first, second = _split(masses, loss, LEVELS[low], LEVELS[high])
        self.add(low, first)
        self.add(high, second)

    def law(self, losses: Array, rate: float) -> DiscreteLaw:
        """Law of the loss when the second side is hidden: ``(1 - rate) first + rate second``."""
        first, second = self.masses
        with_record = (1 - rate) * first + rate * second
        seen = (first > 0) | (with_record > 0)
        with np.errstate(over="ignore", divide="ignore"):
            g = losses[seen]
            mixed = np.where(g < 30, np.log1p(rate * np.expm1(np.minimum(g, 30.0))), g + np.log(rate))
        values, at = np.unique(mixed, return_inverse=True)
        return DiscreteLaw(values, np.bincount(at, first[seen]), np.bincount(at, with_record[seen]))


@dataclasses.dataclass(eq=False)
class Gathering:
    """Cells gathered into three laws: a lower bound of the leak, an estimate, and an upper bound.

    Joining all outputs of a cell cannot leak more than the outputs; splitting a cell's masses between the bounds
    of its loss cannot leak less. In between, each cell is split one standard deviation either way.
    """

    leaked: _Levels = dataclasses.field(default_factory=_Levels)
    middle: _Levels = dataclasses.field(default_factory=_Levels)
    safe: _Levels = dataclasses.field(default_factory=_Levels)

    def add(self, cells: Cells) -> None:
        """Gather more cells."""
        held = (cells.masses > 0).any(axis=0)
        masses = cells.masses[:, held]
        # What the bounds themselves may be wrong by, where thousands cancel.
        slack = 1e-10 * (1 + np.minimum(np.abs(cells.low[held]), np.abs(cells.high[held])))
        slack = np.where(np.isfinite(slack), slack, 0.0)
        low, high = cells.low[held] - slack, cells.high[held] + slack
        with np.errstate(divide="ignore"):
            loss = np.clip(np.log(masses[1]) - np.log(masses[0]), low, high)
        # Where one side has underflowed, what is surely known of the loss.
        with np.errstate(divide="ignore"):
            most, fewest = np.log(masses[1] / LEAST), -np.log(masses[0] / LEAST)
        least = np.where(masses[0] == 0, np.maximum(np.maximum(low, most), 0.0), loss)
        least = np.where(masses[1] == 0, np.minimum(np.minimum(high, fewest), 0.0), least)
        self.leaked.add(_below(least), masses)
        self.safe.split(masses, loss, _below(low), np.minimum(_below(high) + 1, len(LEVELS) - 1))
        spread = cells.spread[held]
        left, right = np.maximum(low, loss - spread), np.minimum(high, loss + spread)
        for part, place in zip(_split(masses, loss, left, right), (left, right), strict=True):
            at = _below(place)
            self.middle.split(part, place, at, np.minimum(at + 1, len(LEVELS) - 1))

    def bracket(self, rate: float, *, lost: float) -> BracketedLaw:
        """The three laws; ``lost`` is the mass of batches that were left out."""
        first, second = self.leaked.masses
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(second) - np.log(first)
        # Where one side underflows, the end of the level's interval that is nearer to zero.
        upper = np.append(LEVELS[1:], np.inf)
        end = np.where(upper > 0, LEVELS, upper)
        leaked = self.leaked.law(np.where(np.isfinite(found), np.clip(found, LEVELS, upper), end), rate)
        missing = np.maximum(0.0, 1 - self.safe.masses.sum(axis=1)) + lost
        self.safe.masses[0, 0] += missing[0]
        self.safe.masses[1, -1] += missing[1]
        safe = self.safe.law(LEVELS, rate)
        return BracketedLaw(middle=self.middle.law(LEVELS, rate), safe=safe, leaked=leaked)


def _profiles(law: DiscreteLaw, epsilon: Array) -> Array:
    return np.stack([hockey_stick(side, epsilon) for side in (law, Reversed(law))])


def largest_gap(safe: DiscreteLaw, leaked: DiscreteLaw) -> float:
    """Largest difference of the two profiles, in either direction, at every atom of either law."""
    losses = np.abs(np.concatenate([safe.losses, leaked.losses]))
    # both are linear in e^epsilon between atoms
    at = np.unique(np.append(losses[np.isfinite(losses)], 0.0))
    return float((_profiles(safe, at) - _profiles(leaked, at)).max())


@hands_on("middle", "losses", "vertices", "support", "far_delta", "reversed_far_delta", "threshold")
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BracketedLaw(LossLaw):
    """A discrete loss between two others: ``leaked`` leaks at most as much as the truth, ``safe`` at least.

    Every delta, and every point of the curve, is within ``error`` of the truth; that is proved up to rounding. A single
    tail at a threshold is that of a test on the curve so known, whose level may differ by more.
    """

    middle: DiscreteLaw
    safe: DiscreteLaw
    leaked: DiscreteLaw
    rounding: float = 1e-14
    """Estimated effect of floating point on any rate."""

    def tails(self, threshold: Array) -> Tails:
        """Tails of the estimated law."""
        return self.middle.tails(threshold)

    @functools.cached_property
    def gap(self) -> float:
        """Largest difference of any two of the three profiles."""
        pairs = (self.safe, self.leaked), (self.middle, self.leaked), (self.safe, self.middle)
        return max(largest_gap(*pair) for pair in pairs)

    @property
    def error(self) -> float:
        """Distance of the two proved curves, plus rounding."""
        return self.gap + self.rounding

    @property
    def certificate(self) -> Certificate:
        """The certificate with the two proved curves."""
        return Certificate(
            proved=f"each delta lies between those of two computed curves, which are within {at_most(self.gap, '.2g')}",
            estimated=f"rounding, about {self.rounding:.1e}, and batch sizes e^-45 below a strip's likeliest",
            round_off=self.rounding,
            safe=self.safe,
            leaked=self.leaked,
        )

    def compose(self, times: int) -> BracketedLaw:
        """All three laws composed on a lattice, the outer ones rounded away from the truth, which keeps their order."""
        middle, safe, leaked = (TradeOff(law).compose(times) for law in (self.middle, self.safe, self.leaked))
        rounding = times * self.rounding + max(_round_off(curve) for curve in (middle, safe, leaked))
        return BracketedLaw(
            middle=_discrete(middle.law),
            safe=_discrete(safe.certificate.safe if safe.certificate else safe.law),
            leaked=_discrete(leaked.certificate.leaked if leaked.certificate else leaked.law),
            rounding=rounding,
        )


def _round_off(curve: TradeOff) -> float:
    return curve.certificate.round_off if curve.certificate else curve.error


def _discrete(law: LossLaw | None) -> DiscreteLaw:
    if not isinstance(law, DiscreteLaw):
        raise TypeError(f"a discrete loss composed to {type(law).__name__}, which is not discrete.")
    return dataclasses.replace(law, certificate=None)
