"""Proven points of the trade-off plane that hold together at one risk, and what they imply for epsilon, delta, mu."""

from __future__ import annotations

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits, clopper_pearson_upper, delta_at, epsilon_at, mu_at
from audit.bounds.supporting_lines import tabulate
from guarantees.claim import Claim
from guarantees.numerics.array import Array


def rectangles(
    counts: tuple[ErrorCounts, ...], risks: np.ndarray, *, on_alpha: np.ndarray | float = 0.5
) -> tuple[Limits, ...]:
    """Limits for several tests, each at its own share of the risk; ``on_alpha`` of it, fixed beforehand, on alpha."""
    false_alarms, misses = [c.false_alarms for c in counts], [c.misses for c in counts]
    alpha = clopper_pearson_upper(false_alarms, [c.trials_without for c in counts], risk=risks * on_alpha)
    beta = clopper_pearson_upper(misses, [c.trials_with for c in counts], risk=risks * (1 - np.asarray(on_alpha)))
    return tuple(Limits(alpha=float(a), beta=float(b)) for a, b in zip(alpha, beta, strict=True))


def proven_epsilon(points: tuple[Limits, ...], *, delta: float) -> tuple[float, float]:
    """Best proven epsilon in each direction over points that hold together."""
    both = [epsilon_at(point, delta=delta) for point in points]
    return max(b[0] for b in both), max(b[1] for b in both)


def proven_delta(points: tuple[Limits, ...], *, epsilon: float) -> tuple[float, float]:
    """Best proven delta in each direction."""
    both = [delta_at(point, epsilon=epsilon) for point in points]
    return max(b[0] for b in both), max(b[1] for b in both)


def proven_mu(points: tuple[Limits, ...]) -> float:
    """Best proven mu."""
    return max(mu_at(point) for point in points)


def refutes(points: tuple[Limits, ...], claim: Claim) -> bool:
    """Whether a proven point lies below the claimed curve by more than the claim's numerical error.

    One curve speaks for both directions: beta below f(alpha) is alpha below f^-1(beta). The error is that of both rates
    of a line's touching point, so a steep line is lowered by more of it. [docs/validity.md, section 1]
    """
    alpha = np.array([point.alpha for point in points])
    beta = np.array([point.beta for point in points])
    return bool(np.any(lowest_beta(claim, alpha) > beta))


def lowest_beta(claim: Claim, alpha: Array) -> Array:
    """The claimed miss rate less what the claim's numerical error may have added."""
    return claim.beta(alpha) if claim.error == 0 else tabulate(claim).below(alpha)
