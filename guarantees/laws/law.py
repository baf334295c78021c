"""The law of a privacy loss: what every trade-off curve is made of."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from guarantees.numerics.array import Array
from guarantees.numerics.search import crossing

FAR = 1e290
"""Beyond every finite loss, yet finite: tails there hold only the mass at infinity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tails:
    """Both laws of the loss ``L = ln dWith/dWithout`` on both sides of a threshold.

    Four numbers instead of two, so that neither tail is ever computed as one minus the other.
    """

    without_above: Array
    """P_without(L > t): the false-alarm rate alpha of the test 'L > t'."""
    without_below: Array
    with_above: Array
    with_below: Array
    """P_with(L <= t): the miss rate beta of the same test."""


class LossLaw(Protocol):
    """The log-likelihood ratio of a pair of neighbours, seen from both sides.

    A law may also have ``support`` (smallest and largest loss, for epsilon at delta 0) and
    ``compose(times)`` (a law of the sum that beats the generic composition).
    """

    @property
    def error(self) -> float:
        """Bound (or, where the docstring says so, estimate) of the absolute error of each tail."""
        ...

    def tails(self, threshold: Array) -> Tails:
        """The four tail probabilities at each threshold, which may be infinite."""
        ...

    def threshold(self, alpha: Array) -> Array:
        """A threshold whose supporting line touches the curve at ``alpha``."""
        ...


def _exchanged(tails: Tails, order: slice = slice(None)) -> Tails:
    """The same tails with the two sides exchanged."""
    return Tails(
        without_above=tails.with_below[order],
        without_below=tails.with_above[order],
        with_above=tails.without_below[order],
        with_below=tails.without_above[order],
    )


@dataclasses.dataclass(frozen=True)
class Reversed:
    """The same pair with the two sides exchanged: ``L`` becomes ``-L``."""

    law: LossLaw

    @property
    def error(self) -> float:
        """Unchanged by the exchange."""
        return self.law.error

    @property
    def support(self) -> tuple[float, float] | None:
        """The original range of losses, negated."""
        support = getattr(self.law, "support", None)
        return None if support is None else (-support[1], -support[0])

    @property
    def vertices(self) -> Tails | None:
        """Those of a piecewise linear curve, in the other order; None for a smooth one."""
        found = getattr(self.law, "vertices", None)
        return None if found is None else _exchanged(found, slice(None, None, -1))

    @property
    def smallest_delta(self) -> float:
        """Unchanged by the exchange."""
        return getattr(self.law, "smallest_delta", 0.0)

    def tails(self, threshold: Array) -> Tails:
        """The original tails, read from the other end."""
        return _exchanged(self.law.tails(-np.asarray(threshold, float)))

    def threshold(self, alpha: Array) -> Array:
        """The law's own ``reversed_threshold`` where it has one, else found by search."""
        own = getattr(self.law, "reversed_threshold", None)
        return invert(self.tails, alpha) if own is None else own(alpha)


def invert(tails: Callable[[Array], Tails], alpha: ArrayLike, *, start: float = 1.0) -> Array:
    """Smallest threshold t with ``P_without(L > t) <= alpha``, by a bracketed search in every entry at once.

    The search compares whichever of the two complementary tails is the smaller, so it is accurate in
    relative terms at both ends. At an atom it returns the atom, up to the search's tolerance. Levels 0 and 1
    give the thresholds +inf and -inf, and so does a level above all mass at finite losses.
    """
    alpha = np.asarray(alpha, float)
    flat = np.atleast_1d(alpha)
    value = np.where(flat <= 0, np.inf, -np.inf)
    at_bottom = tails(np.full(flat.shape, -FAR)).without_above
    searched = (flat > 0) & (flat < 1) & (at_bottom > flat)
    goal = flat[searched]
    low, high = np.full(goal.shape, -start), np.full(goal.shape, start)
    for _ in range(64):
        lower = tails(low).without_above <= goal
        higher = tails(high).without_above > goal
        if not (lower.any() or higher.any()):
            break
        low, high = np.where(lower, 2 * low, low), np.where(higher, 2 * high, high)

    def excess(t: Array, a: Array) -> Array:
        found = tails(t)
        upper = a < 0.5
        with np.errstate(divide="ignore"):
            gap = np.where(
                upper,
                np.log(np.where(upper, found.without_above, 1.0)) - np.log(np.where(upper, a, 1.0)),
                np.log1p(-np.where(upper, 0.0, a)) - np.log(np.where(upper, 1.0, found.without_below)),
            )
        return np.clip(gap, -1e3, 1e3)

    if goal.size:
        value[searched] = crossing(excess, low, high, goal)
    return value.reshape(alpha.shape)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Certificate:
    """How well a computed curve is known."""

    proved: str
    estimated: str
    round_off: float
    """Estimated (not proved) effect of floating point on any rate."""
    safe: LossLaw | None = None
    """Its curve is proved to lie on or below the truth: safe to promise."""
    leaked: LossLaw | None = None
    """Its curve is proved to lie on or above the truth: what surely leaks."""


@dataclasses.dataclass(frozen=True, eq=False)
class DiscreteLaw:
    """A loss with finitely many values: a piecewise linear curve.

    ``losses`` increase strictly; the first may be -inf (never seen with the record) and the last +inf
    (never seen without it). Each finite atom has ``with = exp(loss) * without``.
    """

    losses: Array
    without: Array
    with_record: Array
    error: float = 0.0
    smallest_delta: float = 0.0
    """Below this delta the masses are not to be trusted, and epsilon is refused."""
    certificate: Certificate | None = None

    @functools.cached_property
    def vertices(self) -> Tails:
        """The four tails between the atoms: entry i lies above atoms 0..i-1 and below atoms i.. ."""

        def below(masses: Array) -> Array:
            # Extended precision: a million rounded additions would cost four digits of the small tails.
            sums = np.cumsum(np.asarray(masses, np.longdouble))
            return np.concatenate([np.zeros(1), sums.astype(float)])

        return Tails(
            without_above=below(self.without[::-1])[::-1],
            without_below=below(self.without),
            with_above=below(self.with_record[::-1])[::-1],
            with_below=below(self.with_record),
        )

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest loss that has any mass."""
        held = np.flatnonzero((self.without > 0) | (self.with_record > 0))
        return float(self.losses[held[0]]), float(self.losses[held[-1]])

    def tails(self, threshold: Array) -> Tails:
        """Sums over the atoms above, and at or below, each threshold."""
        at = np.searchsorted(self.losses, np.asarray(threshold, float), side="right")
        vertices = self.vertices
        return Tails(
            without_above=vertices.without_above[at],
            without_below=vertices.without_below[at],
            with_above=vertices.with_above[at],
            with_below=vertices.with_below[at],
        )

    def threshold(self, alpha: Array) -> Array:
        """The atom at which a randomised test of this level randomises."""
        at = np.searchsorted(-self.vertices.without_above, -np.asarray(alpha, float), side="left")
        return self.losses[np.clip(at - 1, 0, len(self.losses) - 1)]


@dataclasses.dataclass(frozen=True)
class MixtureLaw:
    """One of several pairs, drawn with known weights and revealed: the tails are averaged.

    The curve lies on or below that of the same mixture with the choice hidden. [wang2026, theorem 3.6]
    """

    laws: tuple[LossLaw, ...]
    weights: tuple[float, ...]

    @property
    def error(self) -> float:
        """Averaged like the tails."""
        return float(sum(w * law.error for law, w in zip(self.laws, self.weights, strict=True)))

    @property
    def support(self) -> tuple[float, float] | None:
        """The hull of the ranges, where every part states its own."""
        ranges = [getattr(law, "support", None) for law in self.laws]
        known = [r for r in ranges if r is not None]
        if len(known) < len(ranges):
            return None
        return min(r[0] for r in known), max(r[1] for r in known)

    def tails(self, threshold: Array) -> Tails:
        """Weighted sums of the parts' tails."""
        parts = [law.tails(threshold) for law in self.laws]

        def mixed(name: str) -> Array:
            return np.tensordot(self.weights, np.stack([getattr(part, name) for part in parts]), 1)

        return Tails(
            without_above=mixed("without_above"),
            without_below=mixed("without_below"),
            with_above=mixed("with_above"),
            with_below=mixed("with_below"),
        )

    def threshold(self, alpha: Array) -> Array:
        """Found by search."""
        return invert(self.tails, alpha)


@dataclasses.dataclass(frozen=True)
class SymmetrisedLaw:
    """The best symmetric curve below a curve and its inverse: the convex hull of their minimum.

    Its privacy profile is the larger of the two directions, so its tails are those of whichever direction
    leaks more at the threshold. [dong2022, theorem 4.2]
    """

    law: LossLaw

    @property
    def error(self) -> float:
        """Unchanged: one of the two directions is taken."""
        return self.law.error

    @property
    def support(self) -> tuple[float, float] | None:
        """The larger of the two ranges, on both sides."""
        support = getattr(self.law, "support", None)
        if support is None:
            return None
        reach = max(-support[0], support[1])
        return -reach, reach

    def _upper(self, threshold: Array) -> Tails:
        """Tails at thresholds >= 0."""
        first, second = self.law.tails(threshold), Reversed(self.law).tails(threshold)
        with np.errstate(over="ignore", invalid="ignore"):
            slope = np.exp(threshold)
            leak1 = first.with_above - np.where(first.without_above > 0, slope * first.without_above, 0.0)
            leak2 = second.with_above - np.where(second.without_above > 0, slope * second.without_above, 0.0)
        # At threshold 0 both leak the same; just above it, the flatter one leaks more.
        take = np.where(threshold == 0, first.without_above <= second.without_above, leak1 >= leak2)
        return Tails(
            **{
                field.name: np.where(take, getattr(first, field.name), getattr(second, field.name))
                for field in dataclasses.fields(Tails)
            }
        )

    def tails(self, threshold: Array) -> Tails:
        """The leakier direction above zero, its mirror image below."""
        t = np.asarray(threshold, float)
        up = self._upper(np.abs(t))
        negative = t < 0
        return Tails(
            without_above=np.where(negative, up.with_below, up.without_above),
            without_below=np.where(negative, up.with_above, up.without_below),
            with_above=np.where(negative, up.without_below, up.with_above),
            with_below=np.where(negative, up.without_above, up.with_below),
        )

    def threshold(self, alpha: Array) -> Array:
        """Found by search."""
        return invert(self.tails, alpha)
