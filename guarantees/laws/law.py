"""The law of a privacy loss: what every trade-off curve is made of."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from guarantees.answers import hands_on
from guarantees.laws.large_losses import FAR
from guarantees.numerics.array import Array
from guarantees.numerics.search import crossing

T = TypeVar("T")


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

    def sampled(self, rate: Array | float) -> Tails:
        """Tails if the side with the record is taken at this rate, and otherwise is the one without it."""
        return dataclasses.replace(
            self,
            with_above=(1 - rate) * self.without_above + rate * self.with_above,
            with_below=(1 - rate) * self.without_below + rate * self.with_below,
        )


def four(make: Callable[..., Array], *tails: Any) -> Tails:
    """Tails made by applying a function to each of the four numbers of some tails (or of any object that has them)."""
    names = [field.name for field in dataclasses.fields(Tails)]
    return Tails(**{name: make(*(getattr(one, name) for one in tails)) for name in names})


class LossLaw(abc.ABC):
    """The log-likelihood ratio of a pair of neighbours, seen from both sides, with everything that may be asked of it.

    A law has its own ``error`` and ``tails``; every other question has a usual answer here, for a law
    that knows no better. ``adapter.as_law`` lends these answers to a class that does not inherit them.
    """

    error: Any
    """Bound (or, where the certificate says so, estimate) of the absolute error of each tail, a float.

    Not typed so, because it is a field of some laws and a property of others, and type checkers allow only one of them.
    """

    @abc.abstractmethod
    def tails(self, threshold: Array) -> Tails:
        """The four tail probabilities at each threshold, which may be infinite."""

    def threshold(self, alpha: Array) -> Array:
        """A threshold whose supporting line touches the curve at ``alpha``; found by search unless the law knows it."""
        return invert(self.tails, alpha)

    def reversed_threshold(self, alpha: Array) -> Array:
        """The threshold at ``alpha`` for the exchanged pair, whose loss is ``-L``."""
        return invert(lambda t: exchanged(self.tails(-t)), alpha)

    def far_delta(self, epsilon: Array) -> Array | None:
        """``D_eps(with||without)`` where e^eps nears overflow; None means: integrate the tail (if it has no atoms)."""
        return None

    @property
    def closed(self) -> bool:
        """Whether ``far_delta`` and its reverse hold at every epsilon >= 0, with all digits of a small delta."""
        return False

    def reversed_far_delta(self, epsilon: Array) -> Array | None:
        """``D_eps(without||with)`` where e^eps nears overflow; None means: integrate the tail."""
        return None

    @property
    def support(self) -> tuple[float, float] | None:
        """Smallest and largest loss, if known: the largest is epsilon at delta 0."""
        return None

    @property
    def point_masses(self) -> tuple[float, ...] | None:
        """Losses that have mass of their own, if a law with slow tails knows them; None if unknown."""
        return None

    @property
    def losses(self) -> Array | None:
        """All values of a loss that has finitely many, in increasing order; otherwise None."""
        return None

    @property
    def vertices(self) -> Tails | None:
        """The tails between the atoms: entry i lies above atoms 0..i-1 and below atoms i.. ."""
        return None

    @property
    def smallest_delta(self) -> float:
        """Below this delta the law is not to be trusted, and epsilon is refused."""
        return 0.0

    @property
    def certificate(self) -> Certificate | None:
        """What is proved and what is estimated; None for a closed form, which is right up to its rounding."""
        return None

    @property
    def work(self) -> int:
        """Evaluations of a closed form for the tails at one threshold; decides how fine a lattice may be."""
        return 1

    def walked(self, way: tuple[float, ...], walk: Callable[[], T]) -> T:
        """The result of a walk over the law's thresholds; ``way`` and the law decide it completely.

        A law whose thresholds take long may know those of the same walk from an earlier process.
        """
        del way
        return walk()

    @property
    def tabled(self) -> LossLaw:
        """The law for uses that need thousands of thresholds: itself, or a table if its thresholds are slow."""
        return self

    def compose(self, times: int) -> LossLaw | None:
        """The law of the sum of ``times`` losses where that beats the generic composition, else None."""
        return None

    @property
    def noise(self) -> float | None:
        """The part of ``error`` that is rounding and may err either way, if known separately."""
        return None

    @property
    def is_pair(self) -> bool:
        """Whether all tails belong to one pair, and are not lines that bound a curve one by one."""
        return True

    def largest_error(self) -> float:
        """Largest error among the thresholds asked for; the stated error if the law keeps no count."""
        return self.error

    def defect(self) -> float:
        """How far the law breaks an identity of every pair, if that is cheap to tell, else 0."""
        return 0.0


def exchanged(tails: Tails, order: Any = ...) -> Tails:
    """Tails with the two sides exchanged, reordered by ``order`` if given."""
    return Tails(
        without_above=tails.with_below[order],
        without_below=tails.with_above[order],
        with_above=tails.without_below[order],
        with_below=tails.without_above[order],
    )


@hands_on("law", "error", "smallest_delta", "closed", "work", "noise", "is_pair", "defect")
@dataclasses.dataclass(frozen=True)
class Reversed(LossLaw):
    """A pair with its two sides exchanged: ``L`` becomes ``-L``."""

    law: LossLaw

    @property
    def support(self) -> tuple[float, float] | None:
        """The original range of losses, negated."""
        support = self.law.support
        return None if support is None else (-support[1], -support[0])

    @property
    def point_masses(self) -> tuple[float, ...] | None:
        """The original losses with mass of their own, negated."""
        return None if self.law.point_masses is None else tuple(-loss for loss in self.law.point_masses)

    @property
    def losses(self) -> Array | None:
        """The original losses negated, hence in reverse order."""
        return None if self.law.losses is None else -self.law.losses[::-1]

    @property
    def vertices(self) -> Tails | None:
        """Tails between the atoms in reverse order; None for a smooth curve."""
        found = self.law.vertices
        return None if found is None else exchanged(found, slice(None, None, -1))

    @property
    def certificate(self) -> Certificate | None:
        """The original certificate, about the exchanged pair."""
        return carried(self.law.certificate, reverse)

    def tails(self, threshold: Array) -> Tails:
        """The original tails, read from the other end."""
        return exchanged(self.law.tails(-np.asarray(threshold, float)))

    def threshold(self, alpha: Array) -> Array:
        """The original law's ``reversed_threshold``."""
        return self.law.reversed_threshold(alpha)

    def reversed_threshold(self, alpha: Array) -> Array:
        """The original law's ``threshold``."""
        return self.law.threshold(alpha)

    def far_delta(self, epsilon: Array) -> Array | None:
        """The original law's ``reversed_far_delta``."""
        return self.law.reversed_far_delta(epsilon)

    def reversed_far_delta(self, epsilon: Array) -> Array | None:
        """The original law's ``far_delta``."""
        return self.law.far_delta(epsilon)

    @property
    def tabled(self) -> LossLaw:
        """The original law's table, exchanged; this law itself if none is needed."""
        tabled = self.law.tabled
        return self if tabled is self.law else reverse(tabled)

    def compose(self, times: int) -> LossLaw | None:
        """The original law's composition, exchanged."""
        own = self.law.compose(times)
        return None if own is None else reverse(own)


def reverse(law: LossLaw) -> LossLaw:
    """The pair with its sides exchanged; exchanging twice gives the original."""
    return law.law if isinstance(law, Reversed) else Reversed(law)


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
    """Estimated (not proved) effect of floating point on any rate, and on any delta of the two laws below."""
    safe: LossLaw | None = None
    """Its curve is proved to lie on or below the truth: safe to promise."""
    leaked: LossLaw | None = None
    """Its curve is proved to lie on or above the truth: what surely leaks."""


def estimate(what: str, error: float) -> Certificate:
    """The certificate of a law that proves nothing."""
    return Certificate(proved="nothing", estimated=what, round_off=error)


def carried(certificate: Certificate | None, change: Callable[[LossLaw], LossLaw]) -> Certificate | None:
    """A certificate whose proven laws went through the same change as the law that carries it."""
    if certificate is None:
        return None
    return dataclasses.replace(
        certificate,
        safe=None if certificate.safe is None else change(certificate.safe),
        leaked=None if certificate.leaked is None else change(certificate.leaked),
    )
