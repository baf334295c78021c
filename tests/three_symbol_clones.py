"""The clone bound for shuffled fixed-size batches with three symbols a clone: coarser than fine_clones, its oracle.

The proof is in docs/shuffling-upper-bound.md.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.array import Array

NEGLIGIBLE = 1e-16


@dataclasses.dataclass(frozen=True)
class Clones:
    """The bound for one clone probability, with everything that does not depend on epsilon computed once."""

    rounds: int
    noise_multiplier: float
    probability: float
    blocks: int
    """Clone counts told apart: a block takes the delta of its smallest count, which is its largest."""

    @property
    def _blanket(self) -> float:
        """``beta``: how often a round shows a symbol that tells with from without."""
        return float(2 * ndtr(0.5 / self.noise_multiplier) - 1)

    @cached_property
    def additive(self) -> float:
        """``(T-1) p eta(p)``: what the clones cost, on each side."""
        loss = -np.log(self.probability)
        parts = [gaussian_delta(loss, mu / self.noise_multiplier) for mu in (2.0, 1.0)]
        return float((self.rounds - 1) * self.probability * sum(parts) / 2)

    @cached_property
    def _counts(self) -> tuple[Array, Array]:
        """Numbers of clones and their weights; weight below the first is given to zero clones."""
        law = binom(self.rounds - 1, self.probability)
        edges = np.linspace(law.ppf(1e-12), law.isf(1e-12), self.blocks)
        counts = np.unique(np.concatenate([[0], edges.astype(int)]))
        return counts, -np.diff(np.concatenate([law.sf(counts - 1), [0.0]]))

    @cached_property
    def _symbols(self) -> tuple[Array, Array]:
        """Numbers of telling clones, and their probabilities for each number of clones."""
        counts, _ = self._counts
        low = int(binom.ppf(NEGLIGIBLE, counts[min(1, len(counts) - 1)], self._blanket))
        high = int(binom.isf(NEGLIGIBLE, counts[-1], self._blanket)) + 1
        numbers = np.unique(np.concatenate([[0], np.arange(low, high + 1)]))
        return numbers, binom.pmf(numbers[None, :], counts[:, None], self._blanket)

    @cached_property
    def _table(self) -> tuple[Array, int]:
        """``P(Bin(N, 1/2) > N//2 + j)`` for each number N and j in a window beyond which it is 0 or 1."""
        numbers, _ = self._symbols
        reach = int(4.5 * np.sqrt(numbers[-1])) + 3
        offsets = np.arange(-reach, reach + 1)
        return binom.sf(numbers[:, None] // 2 + offsets[None, :], numbers[:, None], 0.5), reach

    def _above(self, level: Array) -> Array:
        """``P(X > level)`` for each number of clones, X the telling clones' ones minus zeros."""
        numbers, weights = self._symbols
        table, reach = self._table
        need = np.floor((level[:, None] + numbers[None, :]) / 2).astype(np.int64) - numbers[None, :] // 2
        at = np.clip(need, -reach, reach) + reach
        value = table[np.arange(len(numbers))[None, :], at]
        value = np.where(need < -reach, 1.0, np.where(need > reach, 0.0, value))
        return (weights * value).sum(axis=1)

    def delta(self, epsilon: float) -> float:
        """``E D_C(eps) + (1 + e^eps)(T-1) p eta(p)``."""
        counts, weights = self._counts
        beta, level = self._blanket, (counts + 1) * np.tanh(epsilon / 2)
        middle = (1 - beta) * self._above(level)
        with_record = middle + beta * self._above(level - 1)
        without = middle + beta * self._above(level + 1)
        part = float(weights @ np.maximum(with_record - np.exp(epsilon) * without, 0.0))
        return part + float((1 + np.exp(epsilon)) * self.additive)


def three_symbol_clones(*, rounds: int, noise_multiplier: float, epsilon: float, blocks: int = 32) -> float:
    """The clone bound with three symbols, smallest over p, and never above the fixed order's.

    The guarantee of version 0.1. Never below ``fine_clones``, of which it is a garbled version: kept to compare.
    ``ln(1/p) = 2/s^2 + (2/s) z``: past the privacy loss's z-th deviation. The number of clones is taken in ``blocks``,
    each at its worst; more (a few hundred) are slower and lower epsilon by up to 3%.
    """
    s, best = noise_multiplier, float(gaussian_delta(epsilon, 1 / noise_multiplier))
    for loss in 2 / s**2 + 2 / s * np.linspace(2, 7, 16) if rounds > 1 and epsilon < 30 else ():
        plan = Clones(rounds, s, float(np.exp(-loss)), blocks)
        if (1 + np.exp(epsilon)) * plan.additive < best:
            best = min(best, plan.delta(epsilon))
    return max(best, 0.0)
