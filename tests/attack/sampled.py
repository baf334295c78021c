"""Deltas by importance sampling: points from every part of a pair, each weighed by the density of all parts together.

A part is what happens under one condition (the record was taken, or not), so what is rare is drawn as often as the rest
and a delta of size rate is as sharp as one of size 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator, int, int], Any]
"""Points of one part: generator, part, how many."""

SIGMAS = 6.0
"""Standard errors that a right value may be away: once in 5e8."""
UNSEEN = 20
"""What happens less often in all draws may never have been seen: once in 5e8."""

ROUNDING = 1e-13
"""Sampled deltas below this are rounding."""
MOST, FEWEST = 100_000, 2_000
"""Points drawn of each part."""
MOST_TERMS = 1.5e8
"""Densities and normals taken at most for one judgement."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two mixtures of the same parts."""

    without: np.ndarray
    with_record: np.ndarray
    draw: Draw
    logs: Callable[[Any], np.ndarray]
    """Log densities of all parts, shape (parts, points), up to a number per point."""
    cost: float = 20.0
    """Densities or normals that one point takes."""

    def draws(self, releases: int = 1) -> int:
        """Points of each part or side that are not too much work, 0 where they would be too few."""
        found = int(min(MOST, MOST_TERMS / (len(self.without) * self.cost * releases)))
        return found if found >= FEWEST else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """One delta, sampled."""

    mean: float
    standard_error: float
    unseen: float
    """What events that were never drawn may add."""

    @property
    def sharp(self) -> bool:
        """More than rounding, with relative error below 1% and little room for what was not seen."""
        return self.mean > ROUNDING and self.standard_error < 0.01 * self.mean and self.unseen < 0.1 * self.mean

    @property
    def room(self) -> float:
        """How far a right value may be away."""
        return SIGMAS * self.standard_error + self.unseen + 1e-9 * self.mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """Log densities (parts, strata, draws) of as many points from each part as from any other."""

    logs: np.ndarray
    without: np.ndarray
    with_record: np.ndarray

    def losses(self) -> np.ndarray:
        """Log-likelihood ratios, by stratum."""
        below = _mixed(self.without, self.logs)
        above = _mixed(self.with_record, self.logs)
        # The small difference first: a loss of 1e-9 keeps its digits.
        with np.errstate(over="ignore", invalid="ignore"):
            excess = np.tensordot(self.with_record - self.without, np.exp(self.logs - below), axes=1)
            return np.where(np.abs(excess) < 0.5, np.log1p(np.clip(excess, -0.5, 0.5)), above - below)

    def delta(self, epsilon: float, direction: str) -> Truth:
        """``E (p - e^eps r)^+ / m`` over the mean m of all parts: a number that cannot exceed its ceiling."""
        high, low, loss = self.with_record, self.without, self.losses()
        if direction == "without_given_with":
            high, low, loss = low, high, -loss
        together = np.full(len(high), 1 / len(high))
        share = np.exp(_mixed(high, self.logs) - _mixed(together, self.logs))
        values = -share * np.expm1(np.minimum(epsilon - loss, 0.0))
        ceiling = float(((high - np.exp(min(epsilon, 700.0)) * low) / together).max())
        spread = values.std(axis=1) / np.sqrt(values.shape[1])
        return Truth(
            mean=float(values.mean()),
            standard_error=float(np.sqrt((spread**2).sum()) / len(spread)),
            # ten times the largest value seen, where the ceiling is far away
            unseen=UNSEEN * max(min(ceiling, 10 * float(values.max())), 0.0) / values.size,
        )

    def epsilons(self) -> list[float]:
        """Where each part's losses lie, and 0."""
        scales = np.quantile(np.abs(self.losses()), 0.9, axis=1)
        found = np.sort(np.outer([0.3, 1.0], scales[np.isfinite(scales) & (scales > 1e-12)]).ravel())
        return [0.0, *found[np.diff(found, prepend=0.0) > 0.2 * found].tolist()]


def _mixed(weights: np.ndarray, logs: np.ndarray) -> np.ndarray:
    kept = np.flatnonzero(weights > 0)
    return np.logaddexp.reduce(np.log(weights[kept]).reshape(-1, *[1] * (logs.ndim - 1)) + logs[kept], axis=0)


def sampled(pair: Pair, rng: np.random.Generator) -> Drawn | None:
    """As many points from each part."""
    draws = pair.draws()
    if not draws:
        return None
    kept = np.flatnonzero(pair.without + pair.with_record > 0)
    points = [pair.logs(pair.draw(rng, int(part), draws))[kept] for part in kept]
    return Drawn(logs=np.stack(points, axis=1), without=pair.without[kept], with_record=pair.with_record[kept])


def summed_losses(pair: Pair, releases: int, rng: np.random.Generator) -> Drawn | None:
    """Sums of independent losses without and with the record, themselves a pair of two parts."""
    draws = pair.draws(releases)
    if not draws:
        return None
    return of_losses(*(side_losses(pair, side, releases, draws, rng) for side in (pair.without, pair.with_record)))


def side_losses(pair: Pair, side: np.ndarray, releases: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Sums of as many independent losses, drawn from one side of the pair."""
    total = np.zeros(draws)
    for _ in range(releases):
        counts = rng.multinomial(draws, side / side.sum())
        logs = [pair.logs(pair.draw(rng, part, int(count))) for part, count in enumerate(counts) if count]
        joined = np.concatenate(logs, axis=1)[:, None]
        one = Drawn(logs=joined, without=pair.without, with_record=pair.with_record)
        total += rng.permutation(one.losses()[0])
    return total


def of_losses(without: np.ndarray, with_record: np.ndarray) -> Drawn:
    """A pair of two parts: losses drawn without the record, and with it."""
    totals = np.stack([without, with_record])
    logs = np.stack([np.zeros_like(totals), totals])
    return Drawn(logs=logs, without=np.array([1.0, 0.0]), with_record=np.array([0.0, 1.0]))
