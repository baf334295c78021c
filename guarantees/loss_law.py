"""The law of a privacy loss: what every trade-off curve is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import elementwise

Array = np.ndarray


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
    """The log-likelihood ratio of a pair of neighbours, seen from both sides."""

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


@dataclasses.dataclass(frozen=True)
class Reversed:
    """The same pair with the two sides exchanged: ``L`` becomes ``-L``."""

    law: LossLaw

    @property
    def error(self) -> float:
        """Unchanged by the exchange."""
        return self.law.error

    def tails(self, threshold: Array) -> Tails:
        """The original tails, read from the other end."""
        tails = self.law.tails(-np.asarray(threshold, float))
        return Tails(
            without_above=tails.with_below,
            without_below=tails.with_above,
            with_above=tails.without_below,
            with_below=tails.without_above,
        )

    def threshold(self, alpha: Array) -> Array:
        """Found by bisection: the original law inverts only its own side."""
        return invert(lambda t: self.tails(t), alpha)


def invert(tails: Callable[[Array], Tails], alpha: ArrayLike, *, start: float = 1.0) -> Array:
    """Threshold t with ``P_without(L > t) = alpha``, by a bracketed root search in every entry at once.

    The search compares whichever of the two complementary tails is the smaller, so it is accurate in
    relative terms at both ends. At an atom it returns the atom, up to the search's tolerance.
    """
    alpha = np.atleast_1d(np.asarray(alpha, float))
    low, high = np.full(alpha.shape, -start), np.full(alpha.shape, start)
    for _ in range(64):
        below_low, above_high = tails(low), tails(high)
        raise_low = below_low.without_above < alpha
        raise_high = above_high.without_above > alpha
        if not (raise_low.any() or raise_high.any()):
            break
        low = np.where(raise_low, 2 * low, low)
        high = np.where(raise_high, 2 * high, high)

    def gap(t: Array, a: Array) -> Array:
        found = tails(t)
        with np.errstate(divide="ignore"):
            upper = np.log(a) - np.log(found.without_above)
            lower = np.log(found.without_below) - np.log1p(-a)
        value = np.where(a < 0.5, upper, lower)
        return np.clip(np.nan_to_num(value, nan=0.0, posinf=1e3, neginf=-1e3), -1e3, 1e3)

    found = elementwise.find_root(
        gap, (low, high), args=(alpha,), tolerances={"xatol": 1e-13, "xrtol": 1e-14, "fatol": 1e-14}
    )
    inside = (alpha > 0) & (alpha < 1)
    return np.where(inside, found.x, np.where(alpha <= 0, np.inf, -np.inf))


@dataclasses.dataclass(frozen=True)
class DiscreteLaw:
    """A loss with finitely many values: a piecewise linear curve.

    ``losses`` increase strictly; the first may be -inf (never seen with the record) and the last +inf
    (never seen without it). Each finite atom has ``with = exp(loss) * without``.
    """

    losses: Array
    without: Array
    with_record: Array
    error: float = 0.0

    def _cumulative(self) -> tuple[Array, Array, Array, Array]:
        below0, below1 = np.cumsum(self.without), np.cumsum(self.with_record)
        above0 = np.cumsum(self.without[::-1])[::-1]
        above1 = np.cumsum(self.with_record[::-1])[::-1]
        pad_low, pad_high = np.zeros(1), np.zeros(1)
        return (
            np.concatenate([above0, pad_high]),
            np.concatenate([pad_low, below0]),
            np.concatenate([above1, pad_high]),
            np.concatenate([pad_low, below1]),
        )

    def tails(self, threshold: Array) -> Tails:
        """Sums over the atoms above, and at or below, each threshold."""
        at = np.searchsorted(self.losses, np.asarray(threshold, float), side="right")
        above0, below0, above1, below1 = self._cumulative()
        return Tails(
            without_above=above0[at], without_below=below0[at], with_above=above1[at], with_below=below1[at]
        )

    def threshold(self, alpha: Array) -> Array:
        """The atom at which a randomised test of this level randomises."""
        above0 = self._cumulative()[0]
        at = np.searchsorted(-above0, -np.asarray(alpha, float), side="left")
        return self.losses[np.clip(at - 1, 0, len(self.losses) - 1)]
