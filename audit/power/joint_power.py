"""What the joint test of both error counts can show with a fixed number of trials."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from audit.bounds import joint
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import GAMMA_SHARE
from audit.bounds.supporting_lines import SupportingLines, tabulate
from guarantees.claim import Claim
from guarantees.numerics.array import Array
from guarantees.numerics.search import first
from guarantees.trade_off import TradeOff

Point = tuple[float, float]
"""A false-alarm rate and a miss rate of one test."""
CURVE_POINTS = 128
LINES = 1024
FEW_TRIALS = 64
"""Trials per side below which the normal approximation is not used."""
NEAR = 0.5
"""False-alarm rates whose logarithms differ by less share a critical value, and its edge."""


def joint_power(
    lines: SupportingLines, point: Point, *, trials_per_side: int, risk: float, critical: float | None = None
) -> float:
    """Probability that the joint test refutes the claim at these error rates, with one critical value of T."""
    if critical is None:
        critical = critical_statistic(lines, point, trials_per_side=trials_per_side, risk=risk)
    return _beyond(joint.edge_of(critical, lines, _typical(point, trials_per_side)), point, trials_per_side)


def _beyond(edge: joint.Edge | None, point: Point, trials_per_side: int) -> float:
    """Probability of counts on or beyond the edge, at these error rates."""
    counts = _typical(point, trials_per_side)
    region = joint.region_below(edge, counts, *joint.groups(point[0], point[0], trials_per_side))
    return float(joint.probability(region, np.array(point[:1]), np.array(point[1:]), counts)[0])


def critical_statistic(lines: SupportingLines, point: Point, *, trials_per_side: int, risk: float) -> float:
    """Value of T at which the joint p-value equals the risk, near the false alarms that are typical of a point."""
    counts, gamma = _typical(point, trials_per_side), GAMMA_SHARE * risk
    centre = ndtri(risk) ** 2 / 2
    low, high = 0.3 * centre, 2.5 * centre + 2
    cells = 1 << math.ceil(math.log2((high - low) / (5e-3 * centre)))

    @functools.cache
    def p_value(cell: int) -> float:
        return joint.p_value_of(low + (high - low) * cell / cells, lines, counts, gamma=gamma)

    def expected(cell: int) -> int:
        """Cell where the p-value equals the risk if the root of 2 T is normal, up to the shift at this cell."""
        shift = ndtri(p_value(cell)) - ndtri(risk)
        root = math.sqrt(2 * (low + (high - low) * cell / cells)) + (shift if math.isfinite(shift) else 0.0)
        return int(np.clip(math.ceil((max(root, 0.0) ** 2 / 2 - low) / (high - low) * cells), 1, cells))

    centred = round((centre - low) / (high - low) * cells)
    found = first(lambda cell: p_value(cell) <= risk, 0, cells, guess=expected(centred))
    return low + (high - low) * found / cells


def jointly_refuting(claim: Claim | TradeOff, *, trials_per_side: int, risk: float) -> Callable[[Array, Array], Array]:
    """Power of the joint test as a function of error rates; a test without errors is judged exactly.

    By the normal law of the root of 2 T with half an error added to either rate, which is off by one or two per cent of
    the leak; with few trials by ``joint_power``.
    """
    lines = tabulate(claim, points=LINES)

    def power(alpha: Array, beta: Array) -> Array:
        if trials_per_side < FEW_TRIALS:
            points = zip(alpha.tolist(), beta.tolist(), strict=True)
            found = np.array([_beyond(near(point), point, trials_per_side) for point in points])
        else:
            first, second = ((trials_per_side * rate + 0.5) / (trials_per_side + 1) for rate in (alpha, beta))
            distance = joint.evidence_at_all(first, second, lines, trials=(trials_per_side, trials_per_side))
            found = np.where(distance > 0, ndtr(np.sqrt(2 * distance) + ndtri(risk)), 0.0)
        clean = (alpha == 0) & (beta == 0)
        return np.where(clean, refuted_by_none(), found) if clean.any() else found

    def refuted_by_none() -> bool:
        counts = _typical((0.0, 0.0), trials_per_side)
        return joint.joint_p_value(counts, claim, gamma=GAMMA_SHARE * risk) <= risk

    @functools.cache
    def edge(step: int) -> joint.Edge | None:
        alpha = float(np.clip(np.exp(NEAR * step), 1 / trials_per_side, 1.0))
        beta = float(lines.below(np.array([alpha]))[0])
        critical = critical_statistic(lines, (alpha, beta), trials_per_side=trials_per_side, risk=risk)
        return joint.edge_of(critical, lines, _typical((alpha, beta), trials_per_side))

    def near(point: Point) -> joint.Edge | None:
        return edge(round(np.log(max(point[0], 1 / trials_per_side)) / NEAR))

    return power


def _typical(point: Point, trials: int) -> ErrorCounts:
    """Counts that are typical of these error rates."""
    return ErrorCounts(
        false_alarms=round(point[0] * trials),
        trials_without=trials,
        misses=round(point[1] * trials),
        trials_with=trials,
    )
