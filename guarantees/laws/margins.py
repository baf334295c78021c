"""The range of epsilon at a delta that a numerical error of both rates leaves."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from guarantees.laws.hockey_stick import first_within
from guarantees.laws.law import LossLaw
from guarantees.numerics.array import Array

MOST_STEPS = 100
SETTLED = 1e-9
"""The search ends at a step below this share of epsilon."""
STEEPEST = 700.0


class Profiled(Protocol):
    """What is needed of a curve; trade-off curves and claims both have it."""

    @property
    def law(self) -> LossLaw:
        """The law of its privacy loss."""
        ...

    def delta(self, epsilon: Any, direction: Any = "both") -> Any:
        """The privacy profile, in one direction or the larger of both."""
        ...

    def epsilon(self, delta: Any) -> Any:
        """Smallest epsilon at each delta."""
        ...


def delta_error(epsilon: Any, error: float) -> Any:
    """``(1 + e^epsilon) error``: the effect of an error of both tails on ``P_with(L > t) - e^t P_without(L > t)``."""
    return (1 + np.exp(np.minimum(epsilon, STEEPEST))) * error


def most_epsilon(curve: Profiled, delta: float, error: float) -> float:
    """The smallest epsilon with ``delta(epsilon) + (1 + e^epsilon) error <= delta``; infinite if there is none.

    The error moves delta, and with it epsilon, which makes the error larger: every step stays below the answer, so a
    search that does not settle promises nothing.
    """
    epsilon = float(curve.epsilon(delta))
    for _ in range(MOST_STEPS):
        left = delta - delta_error(epsilon, error)
        # a law that is not trusted so far down promises nothing there
        moved = float(curve.epsilon(left)) if left >= curve.law.smallest_delta else np.inf
        if moved <= epsilon * (1 + SETTLED):
            return moved
        epsilon = moved
    return np.inf


def least_epsilon(curve: Profiled, delta: float, error: float) -> float:
    """The smallest epsilon with ``delta(epsilon) - (1 + e^epsilon) error <= delta``: the truth is not below it."""
    found, goal, most = 0.0, np.array([delta]), float(curve.epsilon(delta))
    # one direction after the other: usually the second is within delta where the first is
    for way in ("with_given_without", "without_given_with"):

        def lowered(epsilon: Array, way: str = way) -> Array:
            return np.maximum(np.asarray(curve.delta(epsilon, way)) - delta_error(epsilon, error), 0.0)

        if lowered(np.array([found]))[0] > delta:
            found = float(first_within(lowered, goal, first=most if 0 < most < np.inf else 1.0)[0])
    return found
