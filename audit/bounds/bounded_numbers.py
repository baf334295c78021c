"""The numbers that bounds are about: epsilon at a delta, delta at an epsilon, mu. Each orders trade-off curves."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from guarantees.checks import require
from guarantees.numerics.array import Array


class Question(Protocol):
    """A number theta >= 0 with one symmetric trade-off curve for each value: the larger theta, the lower the curve."""

    name: ClassVar[str]
    """Name of the number: epsilon, delta or mu."""
    largest: ClassVar[float]
    """Largest value that is considered."""

    def through(self, alpha: ArrayLike, beta: ArrayLike) -> Array:
        """The theta whose curve passes through these error rates; 0 on or above the curve of 0."""
        ...

    def curve(self, theta: float, alpha: ArrayLike) -> Array:
        """The least beta that theta allows at alpha. Every curve is its own inverse."""
        ...

    def middle(self, theta: float) -> float:
        """Where the curve meets alpha = beta, often at a kink."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonAt:
    """Epsilon at ``delta``: ``1 - beta <= exp(epsilon) alpha + delta`` and the same with the rates exchanged."""

    delta: float
    name: ClassVar[str] = "epsilon"
    largest: ClassVar[float] = 700.0

    def __post_init__(self):
        require("delta", 0 <= self.delta < 1, "in [0, 1)", self.delta)

    def through(self, alpha: ArrayLike, beta: ArrayLike) -> Array:
        """Largest epsilon that these error rates rule out, in either direction."""
        a, b = np.asarray(alpha, float), np.asarray(beta, float)

        def ratio(power: Array, error: Array) -> Array:
            excess = np.maximum(power - self.delta, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(excess > error, np.log(excess) - np.log(error), 0.0)

        return np.maximum(ratio(1 - b, a), ratio(1 - a, b))

    def curve(self, theta: float, alpha: ArrayLike) -> Array:
        """The curve of (theta, delta): ``max(0, 1 - delta - e^theta alpha, e^-theta (1 - delta - alpha))``."""
        a = np.asarray(alpha, float)
        steep = 1 - self.delta - math.exp(theta) * a
        return np.maximum(np.maximum(steep, math.exp(-theta) * (1 - self.delta - a)), 0.0)

    def middle(self, theta: float) -> float:
        """Where the curve meets alpha = beta: ``(1 - delta) / (1 + e^theta)``."""
        return (1 - self.delta) / (1 + math.exp(theta))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeltaAt:
    """Delta at ``epsilon``."""

    epsilon: float
    name: ClassVar[str] = "delta"
    largest: ClassVar[float] = 1.0

    def __post_init__(self):
        require("epsilon", 0 <= self.epsilon <= 700, "in [0, 700]", self.epsilon)

    def through(self, alpha: ArrayLike, beta: ArrayLike) -> Array:
        """Largest delta that these error rates rule out, in either direction."""
        a, b = np.asarray(alpha, float), np.asarray(beta, float)
        scale = math.exp(self.epsilon)
        return np.maximum(np.maximum(1 - b - scale * a, 1 - a - scale * b), 0.0)

    def curve(self, theta: float, alpha: ArrayLike) -> Array:
        """The curve of (epsilon, theta)."""
        a, scale = np.asarray(alpha, float), math.exp(self.epsilon)
        return np.maximum(np.maximum(1 - theta - scale * a, (1 - theta - a) / scale), 0.0)

    def middle(self, theta: float) -> float:
        """Where the curve meets alpha = beta: ``(1 - theta) / (1 + e^epsilon)``."""
        return (1 - theta) / (1 + math.exp(self.epsilon))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mu:
    """The mu of Gaussian differential privacy."""

    name: ClassVar[str] = "mu"
    largest: ClassVar[float] = 70.0

    def through(self, alpha: ArrayLike, beta: ArrayLike) -> Array:
        """The mu whose Gaussian curve passes through these error rates."""
        with np.errstate(invalid="ignore"):
            mu = -ndtri(np.asarray(alpha, float)) - ndtri(np.asarray(beta, float))
        # One rate 0 and the other 1: such a test says nothing.
        return np.maximum(np.nan_to_num(mu, nan=0.0, posinf=np.inf, neginf=0.0), 0.0)

    def curve(self, theta: float, alpha: ArrayLike) -> Array:
        """The Gaussian curve: ``Phi(Phi^-1(1 - alpha) - theta)``."""
        return ndtr(-ndtri(np.asarray(alpha, float)) - theta)

    def middle(self, theta: float) -> float:
        """Where the curve meets alpha = beta: ``Phi(-theta / 2)``."""
        return float(ndtr(-theta / 2))
