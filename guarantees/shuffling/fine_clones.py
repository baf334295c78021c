"""The clone bound without its three symbols: each clone keeps its whole output.

The proof is in docs/shuffling-upper-bound.md.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, lru_cache

import numpy as np

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.array import Array
from guarantees.shuffling.certified_sum import CertifiedSum
from guarantees.shuffling.stop_loss import LatticeLaw, clone_slot, lattice_law

FINENESS = 16.0
"""Lattice points per standard deviation of one clone's c."""
RAREST = 1e-15
"""Smallest clone probability tried: below it, the rounding in a thinned law, divided by p, exceeds 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineClones:
    """The bound for one clone probability p.

    ``delta(eps) <= E (b_1 c_1 + ... + b_T c_T)^+ / (T p) + (1 + e^eps) (T - 1) p eta(p)`` with independent coins b of
    probability p and ``c = (N(1) - e^eps N(0)) / m`` under ``m = (N(1) + N(0)) / 2``. Both directions are alike.
    """

    rounds: int
    noise_multiplier: float
    probability: float
    distance: float = 1.0
    """Distance of the record's two versions: 1 if one of them is zero, 2 for a replacement."""

    @property
    def additive(self) -> float:
        """``(T - 1) p eta(p)``: the additive cost of the clones, on each side."""
        far = gaussian_delta(-np.log(self.probability), 2 / self.noise_multiplier)
        near = gaussian_delta(-np.log(self.probability), self.distance / self.noise_multiplier)
        return float((self.rounds - 1) * self.probability * (far + near) / 2)

    def delta(self, epsilon: float) -> float:
        """Delta by the theorem, rounding and lattice included."""
        law = _clone(epsilon, self.distance, self.noise_multiplier).thinned(self.probability)
        found = CertifiedSum(law, self.rounds).positive(self.rounds) / (self.rounds * self.probability)
        return float(found + (1 + np.exp(epsilon)) * self.additive) * (1 + 1e-12)


@lru_cache(maxsize=4)
def _clone(epsilon: float, distance: float, noise_multiplier: float) -> LatticeLaw:
    """Law of one clone's c on a lattice; c lies in [-2 e^eps, 2]."""
    low, mean = -2 * np.exp(epsilon), -np.expm1(epsilon)

    def stop_loss(tau: Array) -> Array:
        return clone_slot(epsilon, distance, noise_multiplier, tau)

    grid = np.linspace(low, 2, 1001)
    spread = np.maximum(stop_loss(grid) - np.maximum(mean - grid, 0.0), 0.0)
    deviation = float(np.sqrt(2 * np.trapezoid(spread, grid)))
    return lattice_law(stop_loss, low=low, high=2.0, spacing=deviation / FINENESS)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CloneSearch:
    """Search over p for the best bound at one epsilon: ``ln(1/p)`` is the privacy loss's z-th deviation."""

    rounds: int
    noise_multiplier: float
    distance: float
    epsilon: float
    ceiling: float
    """Values of p whose clones alone cost more than this are skipped."""
    _known: dict[float, float] = dataclasses.field(default_factory=dict, repr=False)

    def _tried(self, p: float) -> float:
        plan = FineClones(
            rounds=self.rounds, noise_multiplier=self.noise_multiplier, probability=p, distance=self.distance
        )
        cost = (1 + np.exp(self.epsilon)) * plan.additive
        return plan.delta(self.epsilon) if cost < self.ceiling else cost

    def _bound(self, z: float) -> float:
        if z not in self._known:
            p = float(np.exp(-2 / self.noise_multiplier**2 - 2 / self.noise_multiplier * z))
            self._known[z] = self._tried(p) if p > RAREST else np.inf
        return self._known[z]

    @cached_property
    def _rough(self) -> float:
        return min(np.linspace(1.0, 7.0, 9).tolist(), key=self._bound)

    @property
    def rough(self) -> float:
        """Smallest bound over a few p, or the ceiling."""
        return min(self.ceiling, self._bound(self._rough))

    @cached_property
    def best(self) -> float:
        """Smallest bound after a search around the best of those p."""
        best = self._rough
        for width in (0.4, 0.2, 0.1, 0.05):
            best = min((best, best - width, best + width), key=self._bound)
        return min(self.ceiling, self._bound(best))
