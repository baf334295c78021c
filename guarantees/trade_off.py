"""Trade-off curves: the smallest miss rate beta that any test of false-alarm rate alpha can have."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import elementwise

from guarantees.loss_law import Array, LossLaw, Reversed

Direction = Literal["both", "with_given_without", "without_given_with"]
DIRECTIONS = ("both", "with_given_without", "without_given_with")


@dataclasses.dataclass(frozen=True)
class TradeOff:
    """The trade-off curve of a pair of neighbours, from the law of its privacy loss.

    H0 is 'without the record', H1 'with it'. Every number comes from a supporting line of the curve at some
    threshold t: ``f(a) >= beta(t) - exp(t) (a - alpha(t))`` with equality where the line touches, so an
    error in t costs only its square, atoms need no special case, and ``delta(t)`` is the line's intercept.
    [dong2022]
    """

    law: LossLaw

    @property
    def error(self) -> float:
        """Stated absolute error of the rates that this curve returns."""
        return self.law.error

    @property
    def reverse(self) -> TradeOff:
        """T(with, without): the inverse function of this curve."""
        inner = self.law
        return TradeOff(inner.law if isinstance(inner, Reversed) else Reversed(inner))

    def errors(self, threshold: ArrayLike) -> tuple[Array, Array]:
        """False-alarm and miss rates of the likelihood-ratio test at a threshold."""
        tails = self.law.tails(np.asarray(threshold, float))
        return tails.without_above, tails.with_below

    def llr_threshold(self, alpha: ArrayLike) -> Array:
        """Threshold on the log-likelihood ratio of the best test at level ``alpha``."""
        return self.law.threshold(np.asarray(alpha, float))

    def beta(self, alpha: ArrayLike) -> Array:
        """The curve itself: smallest miss rate at each false-alarm rate."""
        level = np.asarray(alpha, float)
        if np.any(~((level >= 0) & (level <= 1))):
            raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}.")
        flat = np.atleast_1d(level)
        t = np.atleast_1d(self.law.threshold(flat))
        tails = self.law.tails(t)
        missing = flat - tails.without_above
        with np.errstate(over="ignore", invalid="ignore"):
            correction = np.where(missing == 0, 0.0, np.exp(t) * missing)
        correction = np.where(np.isfinite(correction), correction, 0.0)
        value = np.clip(tails.with_below - correction, 0.0, 1.0 - flat)
        return value.reshape(level.shape)[()]

    def delta(self, epsilon: ArrayLike, direction: Direction = "both") -> Array:
        """The privacy profile: ``sup_S P(S) - exp(epsilon) Q(S)`` in one direction or the larger of both.

        ``with_given_without`` has P = with the record; ``without_given_with`` the other way round.
        """
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {DIRECTIONS}, got {direction!r}.")
        epsilon = np.asarray(epsilon, float)
        if direction == "without_given_with":
            return self.reverse.delta(epsilon, "with_given_without")
        tails = self.law.tails(epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(tails.without_above > 0, np.exp(epsilon) * tails.without_above, 0.0)
        forward = np.maximum(0.0, tails.with_above - scaled)
        if direction == "with_given_without":
            return forward[()]
        return np.maximum(forward, self.delta(epsilon, "without_given_with"))[()]

    def epsilon(self, delta: ArrayLike, direction: Direction = "both") -> Array:
        """Smallest epsilon >= 0 with ``delta(epsilon) <= delta``; infinite if there is none."""
        target = np.asarray(delta, float)
        if np.any(~((target >= 0) & (target <= 1))):
            raise ValueError(f"delta must lie in [0, 1], got {delta!r}.")
        flat = np.atleast_1d(target)
        low, high = np.zeros(flat.shape), np.ones(flat.shape)
        for _ in range(12):
            short = self.delta(high, direction) > flat
            if not short.any():
                break
            high = np.where(short, 2 * high, high)
        met_at_zero = self.delta(low, direction) <= flat
        never = self.delta(high, direction) > flat

        def gap(eps: Array, goal: Array) -> Array:
            found = self.delta(eps, direction)
            with np.errstate(divide="ignore"):
                return np.clip(np.log(found) - np.log(goal), -1e3, 1e3)

        search = elementwise.find_root(
            gap, (low, high), args=(flat,), tolerances={"xatol": 1e-12, "xrtol": 1e-13}
        )
        value = np.where(met_at_zero, 0.0, np.where(never, np.inf, search.x))
        return value.reshape(target.shape)[()]

    @property
    def total_variation(self) -> float:
        """Largest ``1 - alpha - beta``: delta at epsilon 0, the advantage of the best attack."""
        return float(self.delta(0.0, "with_given_without"))

    @property
    def advantage(self) -> float:
        """Another name for total variation: best (true positives - false positives)."""
        return self.total_variation

    @property
    def separation(self) -> float:
        """Largest distance of the curve from the diagonal, ``TV / sqrt(2)`` for every curve. [ertan2026]"""
        return self.total_variation / np.sqrt(2.0)
