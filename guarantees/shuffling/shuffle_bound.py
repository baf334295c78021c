"""The smallest of the proven bounds for one shuffled epoch: fixed order, fine clones, displacement through pools."""

from __future__ import annotations

import dataclasses
from functools import cached_property, lru_cache

import numpy as np

from guarantees.laws.textbook import gaussian_delta
from guarantees.numerics.array import Array
from guarantees.shuffling.displacement import Displacement
from guarantees.shuffling.displacement_pools import DISTANCE, Pool, Profile, one_slot
from guarantees.shuffling.fine_clones import fine_clones
from guarantees.shuffling.levels import Levels
from guarantees.shuffling.stop_loss import Kind

POOL_EXPONENTS = (0.45, 0.7)
"""Pools of about these powers of the number of rounds, each built on the one before."""
SMALLEST_NOISE = 0.8
"""Below this noise multiplier displacement is not tried: at .7 and 1e4 rounds it gained .03 in epsilon."""
SMALLEST_POOLED_NOISE = 2.5
"""Below it only a single slot is tried as the pool: at 2 and 1e4 rounds larger ones gained nothing and cost seconds."""
SMALL_DELTA, POOLED = 2e-5, 5e5
"""Below this delta larger pools gained only where rounds times the noise multiplier's fourth power exceed the other."""
LARGEST_EPSILON = 12.0
"""Beyond it only the fixed order's delta is given."""
CLEAR = 0.02
"""Where levels bring the clones' delta down by this factor, the cap is not tried: it gained 12% there at most."""
SMALLEST_CAPPED_NOISE = 1.5
"""Below it the cap never gained on levels in the direction with_given_without, from 30 to 10^6 rounds."""
FAINT = 1e-14
"""A delta below this is left as it is: the rounding that the other bounds include is larger."""
TABLE_POINTS = 12
TABLE_END = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class ShuffleBound:
    """Bounds of delta for ``rounds`` shuffled slots, with the pools that may be used, smallest first."""

    rounds: int
    noise_multiplier: float
    pools: tuple[ShuffleBound, ...] = ()
    _known: dict[tuple[Kind, float], float] = dataclasses.field(default_factory=dict, repr=False)
    _found: dict[tuple[Kind, float, int], float] = dataclasses.field(default_factory=dict, repr=False)

    def delta(self, kind: Kind, epsilon: float) -> float:
        """The smallest bound at one epsilon >= 0; computed once."""
        key = (kind, _rounded_down(epsilon))
        if key not in self._known:
            self._known[key] = self._smallest(*key)
        return self._known[key]

    def _smallest(self, kind: Kind, epsilon: float) -> float:
        best = self._flat(kind, epsilon)
        if best <= FAINT or not self._displaces(epsilon):
            return best
        best = min(best, self._displaced(kind, epsilon, self._single))
        pooled = best > SMALL_DELTA or self.rounds * self.noise_multiplier**4 > POOLED
        for pool in self.pools if pooled and self._deep(kind, epsilon) else ():
            found, last = self._displaced(kind, epsilon, pool.pool), best
            best = min(best, found)
            if found > last:
                break
        return best

    def _displaces(self, epsilon: float) -> bool:
        return self.rounds > 1 and self.noise_multiplier >= SMALLEST_NOISE and epsilon <= LARGEST_EPSILON

    def _flat(self, kind: Kind, epsilon: float) -> float:
        """The bounds without a pool."""
        s, far = self.noise_multiplier, DISTANCE[kind]
        key: tuple[Kind, float, int] = (kind, epsilon, 0)
        if key not in self._found:
            best = float(gaussian_delta(epsilon, far / s))
            if self.rounds > 1 and epsilon <= LARGEST_EPSILON and best > FAINT:
                best = fine_clones(rounds=self.rounds, noise_multiplier=s, distance=far, epsilon=epsilon, ceiling=best)
            self._found[key] = best
        return self._found[key]

    def _deep(self, kind: Kind, epsilon: float) -> bool:
        """Whether larger pools are tried: where a single slot beats the clones in the worse direction."""
        if self.noise_multiplier < SMALLEST_POOLED_NOISE:
            return False
        kind = "with_given_without" if kind == "without_given_with" else kind
        return self._displaced(kind, epsilon, self._single) < self._flat(kind, epsilon)

    @cached_property
    def _single(self) -> Pool:
        return one_slot(self.noise_multiplier)

    def _displaced(self, kind: Kind, epsilon: float, pool: Pool) -> float:
        key = (kind, epsilon, pool.slots)
        if key not in self._found:
            plan = Displacement(
                kind=kind,
                rounds=self.rounds,
                noise_multiplier=self.noise_multiplier,
                pool=pool,
                epsilon=epsilon,
                negligible=float(np.clip(1e-4 * self._flat(kind, epsilon), 1e-12, 1e-6)),
            )
            best = Levels(plan).delta() if pool.slots == 1 else np.inf
            choice = plan.best(ceiling=best) if pool.slots > 1 or self._caps(kind, epsilon, best) else None
            self._found[key] = best if choice is None else min(best, choice.delta)
        return self._found[key]

    def _caps(self, kind: Kind, epsilon: float, found: float) -> bool:
        """Whether a cap may gain on what levels found."""
        small = self.noise_multiplier < SMALLEST_CAPPED_NOISE and kind == "with_given_without"
        return not small and found > CLEAR * self._flat(kind, epsilon)

    @cached_property
    def pool(self) -> Pool:
        """These slots as a pool for more of them."""
        return Pool(slots=self.rounds, profiles={kind: self.profile(kind) for kind in DISTANCE})

    def profile(self, kind: Kind) -> Profile:
        """Values at some epsilons, down to a delta of about 1e-8."""
        low, high = 0.0, (7 + 0.5 * DISTANCE[kind] / self.noise_multiplier) * DISTANCE[kind] / self.noise_multiplier
        for _ in range(5):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(kind, middle) > TABLE_END else (low, middle)
        for epsilon in (0.0, *np.geomspace(high / 40, high, TABLE_POINTS)):
            self.delta(kind, float(epsilon))
        epsilons = np.array(sorted({e for k, e in self._known if k == kind}))
        deltas: Array = np.array([self._known[kind, float(e)] for e in epsilons])
        return Profile(
            mu=DISTANCE[kind] / self.noise_multiplier, epsilons=epsilons, deltas=np.minimum.accumulate(deltas)
        )


def _rounded_down(epsilon: float) -> float:
    """To six digits: a delta at a smaller epsilon bounds it too, and a search asks for few different ones."""
    unit = 10.0 ** (np.floor(np.log10(epsilon)) - 5) if epsilon > 0 else 1.0
    return float(np.floor(epsilon / unit * (1 + 4e-16)) * unit) if epsilon > 0 else 0.0


@lru_cache(maxsize=16)
def shuffle_bound(rounds: int, noise_multiplier: float) -> ShuffleBound:
    """The bound with its pools; what is computed through it is kept."""
    pools: tuple[ShuffleBound, ...] = ()
    for exponent in POOL_EXPONENTS:
        size = int(rounds**exponent)
        if 1 < size < rounds / 2:
            pools += (ShuffleBound(size, noise_multiplier, pools),)
    return ShuffleBound(rounds, noise_multiplier, pools)
