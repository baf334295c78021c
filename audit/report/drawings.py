"""Data of a page's plots: curves thinned to a few dozen points, ready for JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from audit.record.record import AuditRecord, Curve, ScoreGrid
from audit.report.ceiling import Ceiling

MOST_POINTS = 80
"""Most points of a drawn curve; records keep up to 200."""
MOST_BARS = 60
"""Most cells of a drawn histogram."""
DIGITS = 4
EPSILONS = 60

Points = list[list[float]]

LARGEST_EXPONENT = 700.0
"""Largest epsilon that is drawn: the exponential of larger ones would overflow."""


def drawing(record: AuditRecord, most: Ceiling | None, *, unjudged: bool = True) -> dict[str, Any]:
    """The three plots of one audit: trade-off curve, privacy profile, histogram of the scores.

    Without ``unjudged`` only of scores that a test was made of: a battery of many costs many times a page's room.
    """
    grids = drawn(record, unjudged=unjudged)
    return {
        "tradeOff": _trade_off(record, most, grids),
        "profile": _profile(record),
        "scores": [_histogram(grid) for grid in grids],
    }


def drawn(record: AuditRecord, *, unjudged: bool) -> tuple[ScoreGrid, ...]:
    """The scores to draw, that of the fewest errors first, as it is shown at once; one equal in all trials is last."""
    errors: dict[str, float] = {}
    for point in record.points:
        errors[point.member] = min(errors.get(point.member, 2.0), point.alpha_upper + point.beta_upper)
    grids = [grid for grid in record.grids if unjudged or grid.member in errors]
    return tuple(sorted(grids, key=lambda grid: (grid.edges[0] == grid.edges[-1], errors.get(grid.member, 2.0))))


def observed(grid: ScoreGrid) -> tuple[np.ndarray, np.ndarray]:
    """The empirical trade-off curve on the grid, with its two ends."""
    without, with_record = np.asarray(grid.without), np.asarray(grid.with_record)
    alpha = np.concatenate([[1.0], 1 - np.cumsum(without) / without.sum()])
    beta = np.concatenate([[0.0], np.cumsum(with_record) / with_record.sum()])
    return alpha, beta


def falling(record: AuditRecord) -> tuple[np.ndarray, np.ndarray]:
    """The band as a curve that never rises: what holds at a false-alarm rate holds at every larger one."""
    alpha, beta = np.asarray(record.band.alpha), np.asarray(record.band.beta)
    order = np.lexsort((beta, alpha))
    return alpha[order], np.minimum.accumulate(beta[order])


def _trade_off(record: AuditRecord, most: Ceiling | None, grids: tuple[ScoreGrid, ...]) -> dict[str, Any]:
    points = record.points if len(record.points) <= 12 else ()
    judged = {point.member for point in record.points}
    return {
        "claim": _curve(record.claim.curve),
        "exact": None if record.theory is None else _curve(record.theory),
        "observed": [
            {"name": grid.member, "judged": grid.member in judged, "points": thinned(*observed(grid))}
            for grid in sorted(grids, key=lambda grid: grid.member in judged)
        ],
        "band": thinned(*falling(record)) if record.band.alpha else [],
        "proven": [[*_rounded(p.alpha_upper, p.beta_upper), p.target] for p in points if p.limited],
        "violated": _violated(record),
        "ceiling": None if most is None else _rounded(most.point.alpha, most.point.beta),
    }


def _violated(record: AuditRecord) -> list[float] | None:
    """Error rates at which the claim is violated: recorded ones, or those of the test of the violated number."""
    broken = record.violated_at
    if broken is None:
        return None
    if broken.false_alarm_rate is not None and broken.miss_rate is not None:
        return _rounded(broken.false_alarm_rate, broken.miss_rate)
    tests = [point for point in record.points if point.target == broken.number and point.limited]
    return _rounded(tests[0].alpha_upper, tests[0].beta_upper) if tests else None


def _profile(record: AuditRecord) -> dict[str, Any]:
    """Delta against epsilon: claimed, exact, proven."""
    bounds = [number for number in record.numbers if number.name == "epsilon" and number.given is not None]
    seen = [record.claim.epsilon, record.epsilon(record.report_delta)]
    finite = [epsilon for epsilon in seen if epsilon is not None and math.isfinite(epsilon) and epsilon > 0]
    epsilons = np.linspace(0.0, min(1.25 * max(finite, default=1.0), LARGEST_EXPONENT), EPSILONS)
    return {
        "epsilons": _short(epsilons),
        "claim": _deltas(record.claim.curve, epsilons),
        "exact": None if record.theory is None else _deltas(record.theory, epsilons),
        "proven": _rounded(*(record.delta(float(e)) for e in epsilons)),
        "number": [_rounded(number.at_least, number.given) for number in bounds if number.given] or _guessed(record),
    }


def _guessed(record: AuditRecord) -> list[list[float]]:
    """Epsilon proven by one training, at its delta."""
    proven = 0.0 if record.one_run is None else record.epsilon(record.report_delta)
    return [_rounded(proven, record.report_delta)] if proven and record.report_delta else []


def _deltas(curve: Curve, epsilons: np.ndarray) -> list[float]:
    """Delta in the larger direction, by lines through the recorded points: at most that of the curve itself."""
    alpha, beta = np.asarray(curve.alpha), np.asarray(curve.beta)
    growth = np.exp(epsilons)[:, None]
    both = np.maximum(1 - beta - growth * alpha, 1 - alpha - growth * beta)
    return _short(np.maximum(both.max(axis=1), 0.0))


def _histogram(grid: ScoreGrid) -> dict[str, Any]:
    """Densities between the edges, neighbouring cells joined; shares of the two open cells."""
    edges = np.asarray(grid.edges)
    keep = np.unique(np.linspace(0, len(edges) - 1, MOST_BARS + 1).astype(int))
    width = np.maximum(np.diff(edges[keep]), np.finfo(float).tiny)

    def side(counts: tuple[int, ...]) -> dict[str, Any]:
        all_of_them = np.asarray(counts, float) / sum(counts)
        inside = np.add.reduceat(all_of_them[1:-1], keep[:-1]) if len(keep) > 1 else np.zeros(0)
        return {"density": _short(inside / width), "below": all_of_them[0], "above": all_of_them[-1]}

    return {
        "member": grid.member,
        "edges": _short(edges[keep]),
        "without": side(grid.without),
        "with": side(grid.with_record),
    }


def _curve(curve: Curve) -> Points:
    return thinned(np.asarray(curve.alpha), np.asarray(curve.beta))


def thinned(alpha: np.ndarray, beta: np.ndarray) -> Points:
    """At most 80 points including both ends, spread over what a linear and a logarithmic axis show."""
    if len(alpha) <= MOST_POINTS:
        return [_rounded(a, b) for a, b in zip(alpha, beta, strict=True)]
    small = np.minimum(np.maximum(alpha, 1e-12), np.maximum(beta, 1e-12))
    travelled = np.abs(np.diff(alpha)) + np.abs(np.diff(beta)) + 0.05 * np.abs(np.diff(np.log(small)))
    place = np.concatenate([[0.0], np.cumsum(travelled)])
    wanted = np.linspace(0.0, place[-1], MOST_POINTS)
    kept = np.unique(np.clip(np.searchsorted(place, wanted), 0, len(alpha) - 1))
    return [_rounded(a, b) for a, b in zip(alpha[kept].tolist(), beta[kept].tolist(), strict=True)]


def _rounded(*numbers: float) -> list[float]:
    return [float(f"{number:.{DIGITS}g}") for number in numbers]


def _short(numbers: np.ndarray) -> list[float]:
    return _rounded(*numbers.tolist())
