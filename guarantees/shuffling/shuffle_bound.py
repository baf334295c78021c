"""The smallest proven bound for one shuffled epoch: fixed order, fine clones, displacement through pools."""

from __future__ import annotations

import dataclasses
from functools import cached_property, lru_cache

import numpy as np

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.array import Array
from guarantees.numerics.search import halved
from guarantees.shuffling.displacement import Displacement
from guarantees.shuffling.displacement_pools import DISTANCE, Pool, Profile, one_slot
from guarantees.shuffling.fine_clones import CloneSearch
from guarantees.shuffling.moments_by_level import Levels
from guarantees.shuffling.stop_loss import Kind

POOL_EXPONENTS, ONE_POOL_EXPONENT = (0.45, 0.7), 0.75
"""Pools of about these powers of the number of rounds, each built on the one before; or a single one."""
TWO_POOLS = 25e3
"""Two pools gained on one where rounds times the square of the noise multiplier exceed this."""
SMALLEST_NOISE = 0.8
"""Below this noise multiplier displacement is not tried: at .7 and 1e4 rounds it gained .03 in epsilon."""
SMALLEST_POOLED_NOISE = 2.5
"""Below it only a single slot is tried as the pool: at 2 and 1e4 rounds larger ones gained nothing and cost seconds."""
LARGEST_EPSILON = 12.0
"""Epsilons beyond this get only the fixed order's delta."""
CLEAR = 0.02
"""Where levels bring the clones' delta down by this factor, the single slot's cap is not tried: it gained 12% there at
most, in the settings compared."""
CLEAR_POOLED = 5e-9
"""Where levels are at most this, the pool's cap is not tried: its profiles end at ``TABLE_END``, and in the settings
compared it was the smaller one only where levels gave more than 9e-9 (or both less than 2e-11)."""
CAPPED_FIRST, CAPPED_FIRST_POOLED = 5e-3, 1e-4
"""Where the clones' delta is above this, the cap is tried before levels: it was mostly the smaller one there, and then
a single cut shows that levels are not."""
SMALLEST_CAPPED_NOISE = 1.5
"""Below it the cap never gained on levels in the direction with_given_without, from 30 to 10^6 rounds."""
FEW_SLOTS = 256
"""Below it the single slot's cap is tried beside the pool's: it was smaller by up to a third at 30 to 200 slots."""
NEAR = 2.0
"""Clones this many times above another bound are not searched for their best number."""
ROUNDING = 1e-10
"""Below this, clones are searched in any case: a rough delta is mostly rounding, which the search lowers."""
FAINT = 1e-14
"""A delta below this is not improved: the rounding that the other bounds include is larger."""
TABLE_POINTS = 12
TABLE_END = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class ShuffleBound:
    """Bounds of delta for ``rounds`` shuffled slots, with the pools that may be used, smallest first."""

    rounds: int
    noise_multiplier: float
    pools: tuple[ShuffleBound, ...] = ()
    _known: dict[tuple[Kind, float], float] = dataclasses.field(default_factory=dict, repr=False)
    _clones: dict[tuple[float, float], CloneSearch] = dataclasses.field(default_factory=dict, repr=False)

    def delta(self, kind: Kind, epsilon: float) -> float:
        """The smallest bound at one epsilon >= 0, cached."""
        key = (kind, _rounded_down(epsilon))
        if key not in self._known:
            self._known[key] = self._smallest(*key)
        return self._known[key]

    def _smallest(self, kind: Kind, epsilon: float) -> float:
        order = float(gaussian_delta(epsilon, DISTANCE[kind] / self.noise_multiplier))
        if self.rounds == 1 or epsilon > LARGEST_EPSILON or order <= FAINT:
            return order
        clones = self._cloned(DISTANCE[kind], epsilon, order)
        displaces = self.noise_multiplier >= SMALLEST_NOISE and clones.rough > FAINT
        best = self._displaced(kind, epsilon, clones.rough) if displaces else np.inf
        far = clones.rough > max(NEAR * best, ROUNDING)
        return min(best, clones.rough if far else clones.best)

    def _cloned(self, distance: float, epsilon: float, ceiling: float) -> CloneSearch:
        """The search over clones, which both directions share."""
        key = (distance, epsilon)
        if key not in self._clones:
            self._clones[key] = CloneSearch(
                rounds=self.rounds,
                noise_multiplier=self.noise_multiplier,
                distance=distance,
                epsilon=epsilon,
                ceiling=ceiling,
            )
        return self._clones[key]

    def _displaced(self, kind: Kind, epsilon: float, clones: float) -> float:
        """Displacement by levels through one slot, or by a cap through the largest pool, one slot, or both.

        Every choice is valid. Which ones are left out follows comparisons at noise multipliers 2.5 to 10 and 10 to
        10^5 slots: one that is left out may be smaller elsewhere.
        """

        def plan(pool: Pool, known: float = 0.0) -> Displacement:
            return Displacement(
                kind=kind,
                rounds=self.rounds,
                noise_multiplier=self.noise_multiplier,
                pool=pool,
                epsilon=epsilon,
                # the cap has a lattice: the fewer values of a slot count, the finer and faster it is
                negligible=float(np.clip(8e-5 * known, 1e-12, 1e-6)),
            )

        def capped(pool: Pool, ceiling: float) -> float:
            choice = plan(pool, clones).best(ceiling=ceiling)
            return ceiling if choice is None else min(choice.delta, ceiling)

        pool, levels = self._pool, Levels(plan(self._single))
        if pool is None and self.noise_multiplier < SMALLEST_CAPPED_NOISE and kind == "with_given_without":
            return levels.delta()
        if clones > (CAPPED_FIRST if pool is None else CAPPED_FIRST_POOLED):
            best = capped(pool or self._single, clones)
            best = min(best, levels.delta(ceiling=best))
        else:
            best = levels.delta()
            if best > (CLEAR * clones if pool is None else CLEAR_POOLED):
                best = capped(pool or self._single, best)
        both = pool is not None and self.rounds < FEW_SLOTS and best > CLEAR * clones
        return capped(self._single, best) if both else best

    @property
    def _pool(self) -> Pool | None:
        """The largest pool, if pools are used."""
        return self.pools[-1].pool if self.pools and self.noise_multiplier >= SMALLEST_POOLED_NOISE else None

    @cached_property
    def _single(self) -> Pool:
        return one_slot(self.noise_multiplier)

    @cached_property
    def pool(self) -> Pool:
        """These slots as a pool for more slots."""
        return Pool(slots=self.rounds, profiles={kind: self.profile(kind) for kind in DISTANCE})

    def profile(self, kind: Kind) -> Profile:
        """The bound at some epsilons, down to a delta of about 1e-8."""
        high = (7 + 0.5 * DISTANCE[kind] / self.noise_multiplier) * DISTANCE[kind] / self.noise_multiplier
        _, high = halved(lambda epsilon: self.delta(kind, epsilon) <= TABLE_END, 0.0, high, rounds=5)
        for epsilon in (0.0, *np.geomspace(high / 40, high, TABLE_POINTS)):
            self.delta(kind, float(epsilon))
        epsilons = np.array(sorted({e for k, e in self._known if k == kind}))
        deltas: Array = np.array([self._known[kind, float(e)] for e in epsilons])
        return Profile(
            mu=DISTANCE[kind] / self.noise_multiplier, epsilons=epsilons, deltas=np.minimum.accumulate(deltas)
        )


def _rounded_down(epsilon: float) -> float:
    """Epsilon rounded down to six digits: its delta is still a bound, and a search then asks for few different ones."""
    unit = 10.0 ** (np.floor(np.log10(epsilon)) - 5) if epsilon > 0 else 1.0
    return float(np.floor(epsilon / unit * (1 + 4e-16)) * unit) if epsilon > 0 else 0.0


@lru_cache(maxsize=16)
def shuffle_bound(rounds: int, noise_multiplier: float) -> ShuffleBound:
    """The cached bound with its pools."""
    pools: tuple[ShuffleBound, ...] = ()
    two = rounds * noise_multiplier**2 > TWO_POOLS
    for exponent in POOL_EXPONENTS if two else (ONE_POOL_EXPONENT,):
        size = int(rounds**exponent)
        if 1 < size < rounds / 2:
            pools += (ShuffleBound(size, noise_multiplier, pools),)
    return ShuffleBound(rounds, noise_multiplier, pools)
