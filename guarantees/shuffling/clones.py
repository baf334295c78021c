"""A provable guarantee for shuffled fixed-size batches: the other records as clones.

The proof is in docs/shuffling-upper-bound.md.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.laws.law import Certificate, SimpleLaw, Tails
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff

NEGLIGIBLE = 1e-16


def gaussian_delta(epsilon: float, mu: float) -> float:
    """``Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)``."""
    return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


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
        return (self.rounds - 1) * self.probability * sum(parts) / 2

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


@dataclasses.dataclass(frozen=True, eq=False)
class UpperLaw(SimpleLaw):
    """A symmetric promise known through its profile: each threshold gives one line below the curve.

    At a threshold t the line is ``1 - delta(t) - e^t a`` (t >= 0) or ``e^t (1 - delta(-t) - a)``: all mass of the
    pair that it belongs to is at infinite loss or at 0.
    """

    rounds: int
    noise_multiplier: float
    blocks: int
    error: float = 1e-13
    _known: dict[float, float] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def certificate(self) -> Certificate:
        """Every line is a proven promise."""
        return Certificate(
            proved="delta at every epsilon, for any data and adaptive queries",
            estimated="floating point",
            round_off=1e-13,
            safe=self,
        )

    @property
    def is_pair(self) -> bool:
        """Every threshold has a line of its own."""
        return False

    @cached_property
    def _plans(self) -> list[Clones]:
        """Clone probabilities with ``ln(1/p) = 2/s^2 + (2/s) z``: past the privacy loss's z-th deviation."""
        s = self.noise_multiplier
        losses = 2 / s**2 + 2 / s * np.linspace(2, 7, 16)
        return [Clones(self.rounds, s, float(np.exp(-loss)), self.blocks) for loss in losses] if self.rounds > 1 else []

    def delta(self, epsilon: float) -> float:
        """The smallest of the clone bounds and the deterministic one."""
        if epsilon not in self._known:
            best = gaussian_delta(epsilon, 1 / self.noise_multiplier)
            for plan in self._plans if epsilon < 30 else []:
                if (1 + np.exp(epsilon)) * plan.additive < best:
                    best = min(best, plan.delta(epsilon))
            self._known[epsilon] = max(best, 0.0)
        return self._known[epsilon]

    def tails(self, threshold: Array) -> Tails:
        """See the class: one line per threshold."""
        t = np.asarray(threshold, float)
        delta = np.array([self.delta(float(abs(v))) if abs(v) < 700 else 0.0 for v in t.ravel()]).reshape(t.shape)
        upper = t >= 0
        return Tails(
            without_above=np.where(upper, 0.0, 1 - delta),
            without_below=np.where(upper, 1.0, delta),
            with_above=np.where(upper, delta, 1.0),
            with_below=np.where(upper, 1 - delta, 0.0),
        )

    def threshold(self, alpha: Array) -> Array:
        """The best line at each level: a grid of epsilons, then golden sections. Any line would be valid."""
        level = np.asarray(alpha, float)
        found = [self._best(float(a)) if 0 < a < 1 else (np.inf if a <= 0 else -np.inf) for a in level.ravel()]
        return np.array(found, float).reshape(level.shape)

    def reversed_threshold(self, alpha: Array) -> Array:
        """The promise is symmetric."""
        return self.threshold(alpha)

    def _height(self, threshold: float, alpha: float) -> float:
        delta = self.delta(abs(threshold))
        if threshold >= 0:
            return float(1 - delta - np.exp(threshold) * alpha)
        return float(np.exp(threshold) * (1 - delta - alpha))

    def _best(self, alpha: float) -> float:
        scale = 1 / self.noise_multiplier
        grid = np.concatenate([[0.0], np.geomspace(0.002, 6 * scale + 3 * scale**2, 24)])
        grid = np.concatenate([-grid[:0:-1], grid])
        best = int(np.argmax([self._height(float(t), alpha) for t in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        for _ in range(12):
            left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
            if self._height(float(left), alpha) > self._height(float(right), alpha):
                high = right
            else:
                low = left
        return float((low + high) / 2)


def fixed_batch_upper(*, rounds: int, noise_multiplier: float, blocks: int = 32) -> Claim:
    """A guarantee for one shuffled epoch of fixed-size batches, any batch size, adaptive queries. (ours)

    ``delta(eps) <= min over p of E_C[D_C(eps)] + (1 + e^eps)(T-1) p eta(p)``, and never above the deterministic
    order's [chua2024, theorem 4.1]; the proof is in docs/shuffling-upper-bound.md. Gains nothing at noise multipliers
    up to about 1; between it and ``fixed_batch_shuffle`` the truth is unknown. The number of clones C is taken in
    ``blocks``, each at its worst; more (a few hundred) are slower and lower epsilon by up to 3%.
    """
    require("rounds", rounds >= 1, ">= 1", rounds)
    require("noise_multiplier", noise_multiplier > 0, "> 0", noise_multiplier)
    require("blocks", blocks >= 2, ">= 2", blocks)
    return Claim(
        curve=TradeOff(UpperLaw(rounds, noise_multiplier, blocks)),
        name="fixed_batch_upper",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "blocks": blocks},
        relation="zero_out",
        unit="epoch",
        observation="all batch sums of one shuffled epoch with noise, queries adaptive: a guarantee",
        source="docs/shuffling-upper-bound.md; chua2024, theorem 4.1; feldman2021",
    )
