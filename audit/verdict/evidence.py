"""What the counts prove: points of the trade-off plane that hold together at one risk."""

from __future__ import annotations

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits, clopper_pearson_upper, delta_at, epsilon_at, mu_at
from audit.policies.policy import Cut
from audit.trials.source import Tally
from guarantees.claim import Claim


def error_counts(tally: Tally, edges: np.ndarray, cut: Cut) -> ErrorCounts:
    """Errors of one test, read off the grid; its threshold is one of the grid's edges."""
    row = edges[cut.member]
    at = int(np.searchsorted(row, np.float32(cut.threshold)))
    if at >= len(row) or row[at] != np.float32(cut.threshold):
        raise ValueError(f"threshold {cut.threshold} is not an edge of the grid of member {cut.member}.")
    n = tally.trials_per_side
    above_without = int(tally.without[cut.member, at + 1 :].sum())
    above_with = int(tally.with_record[cut.member, at + 1 :].sum())
    if cut.rejects == "above":
        false_alarms, misses = above_without, n - above_with
    else:
        false_alarms, misses = n - above_without, above_with
    return ErrorCounts(false_alarms=false_alarms, trials_without=n, misses=misses, trials_with=n)


def proven(counts: tuple[ErrorCounts, ...], risks: np.ndarray) -> tuple[Limits, ...]:
    """Limits for several tests, each at its own share of the risk, half on alpha and half on beta."""
    alpha = clopper_pearson_upper([c.false_alarms for c in counts], [c.trials_without for c in counts], risk=risks / 2)
    beta = clopper_pearson_upper([c.misses for c in counts], [c.trials_with for c in counts], risk=risks / 2)
    return tuple(Limits(alpha=float(a), beta=float(b)) for a, b in zip(alpha, beta, strict=True))


def epsilon(evidence: tuple[Limits, ...], *, delta: float) -> tuple[float, float]:
    """Best proven epsilon in each direction over points that hold together."""
    both = [epsilon_at(point, delta=delta) for point in evidence]
    return max(b[0] for b in both), max(b[1] for b in both)


def delta(evidence: tuple[Limits, ...], *, epsilon: float) -> tuple[float, float]:
    """Best proven delta in each direction."""
    both = [delta_at(point, epsilon=epsilon) for point in evidence]
    return max(b[0] for b in both), max(b[1] for b in both)


def mu(evidence: tuple[Limits, ...]) -> float:
    """Best proven mu."""
    return max(mu_at(point) for point in evidence)


def refutes(evidence: tuple[Limits, ...], claim: Claim) -> bool:
    """Whether some proven point lies below the claimed curve by more than the claim's numerical error.

    One curve speaks for both directions: beta below f(alpha) is alpha below f^-1(beta).
    """
    alpha = np.array([point.alpha for point in evidence])
    beta = np.array([point.beta for point in evidence])
    return bool(np.any(claim.beta(alpha) - beta > claim.error))
