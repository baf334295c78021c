"""A guarantee for shuffled fixed-size batches: the record displaces another one into a pool of the first slots.

The theorem and its proof are in docs/shuffling-upper-bound.md, whose names are used here: N slots outside a pool of m,
weights capped at r, n0 equal weights, ``cbar_n`` the mean of n copies of the worst slot's c*, ``g(n) = E cbar_n^+``.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from guarantees.numerics.array import Array
from guarantees.shuffling.certified_sum import CertifiedSum
from guarantees.shuffling.displacement_pools import Pool
from guarantees.shuffling.stop_loss import ROUNDING, Kind, LatticeLaw, lattice_law, worst_slot

FINENESS = 12.0
"""Lattice points in an upper deviation of one slot: the rounding adds about a thousandth to its variance."""
WHOLE_FINENESS = 48.0
"""Most lattice points in a deviation of one slot; if it is mostly downward, sums hide the upper part."""
WIDEST, DEEPEST = 2**15, 2**13
"""Most lattice points of one slot, above and below 0: four times as many below lowered no delta by a thousandth."""
TRIES = 5
"""Numbers n0 for which the main term is computed."""
FEW = (32, 512)
"""Numbers of copies up to which a smaller circle suffices."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The theorem's free numbers at their best, and what each of its terms adds to delta."""

    delta: float
    cap: float
    copies: int
    main: float
    layers: float
    short: float
    pool: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Displacement:
    """The bound of delta at one epsilon and for one kind of divergence, given a pool."""

    kind: Kind
    rounds: int
    noise_multiplier: float
    pool: Pool
    epsilon: float
    negligible: float = 1e-11
    """What one slot's losses above the lattice may add to delta; decides how far the lattice reaches."""

    @property
    def rest(self) -> int:
        """``N``: the number of slots outside the pool."""
        return self.rounds - self.pool.slots

    def stop_loss(self, tau: Array) -> Array:
        """``H``: the stop-loss function of the worst slot."""
        return worst_slot(self.kind, self.epsilon, self.noise_multiplier, tau)

    @cached_property
    def reach(self) -> tuple[float, float, float]:
        """Upper deviation of c*, and the lowest and highest of its values that matter."""
        return self._reach[:3]

    @cached_property
    def _reach(self) -> tuple[float, float, float, float]:
        """Deviation to both sides, and the lowest and highest values of c* that matter."""
        mean, grid = -np.expm1(self.epsilon), np.geomspace(1e-4, 1e9, 1301)
        points = np.concatenate([-grid[::-1], [0.0], grid])
        spread = self.stop_loss(points) - np.maximum(mean - points, 0.0)
        # far out the difference is rounding
        spread = np.where(spread > 1e-13 * (1 + np.abs(points)), spread, 0.0)
        upper = float(np.sqrt(2 * np.trapezoid(np.where(points >= mean, spread, 0.0), points)))
        whole = float(np.sqrt(2 * np.trapezoid(spread, points)))
        above, below = spread[len(grid) + 1 :], spread[len(grid) - 1 :: -1]
        high = grid[np.argmax(above <= self.negligible)] if above[-1] <= self.negligible else grid[-1]
        low = -grid[np.argmax((below <= 1e-8 * upper) & (grid > -mean))]
        return upper, float(low), float(high), whole

    @cached_property
    def _law(self) -> LatticeLaw:
        """The law of c* on a lattice as wide as matters."""
        upper, low, high, whole = self._reach
        spacing = max(upper / FINENESS, whole / WHOLE_FINENESS, 1.25 * high / WIDEST)
        # clamping at a higher value is just as valid
        return lattice_law(self.stop_loss, low=max(low, -spacing * DEEPEST), high=high, spacing=spacing)

    @cached_property
    def _sum(self) -> CertifiedSum:
        return CertifiedSum(self._law, self.rest)

    @cached_property
    def _means(self) -> tuple[Array, Array]:
        """Some numbers n, and ``g`` at each."""
        counts = np.unique(np.geomspace(1, self.rest, 2 + int(4 * np.log(self.rest))).astype(int))
        sums = [CertifiedSum(self._law, most) for most in FEW if 4 * most < self.rest] + [self._sum]
        values = [next(one for one in sums if n <= one.most).positive(n) / n for n in counts.tolist()]
        values[0] = min(values[0], float(self.stop_loss(np.zeros(1))[0]) + ROUNDING)
        return counts, np.minimum.accumulate(values)

    def _mean(self, counts: Array) -> Array:
        """Upper bound of ``g`` at each count: it falls, so the nearest smaller number bounds it."""
        known, values = self._means
        return values[np.searchsorted(known, np.maximum(counts, 1), side="right") - 1]

    @cached_property
    def _majorant(self) -> tuple[Array, Array]:
        """Corners of a non-decreasing concave function above ``G(n) = n g(n)``."""
        counts, values = self._means
        # up to the next known number G is at most n times the last known g
        x = np.concatenate([[0], counts, counts[1:]]).astype(float)
        y = np.concatenate([[0], counts * values, counts[1:] * values[:-1]])
        order = np.lexsort((y, x))
        return upper_hull(x[order], np.maximum.accumulate(y[order]))

    def _layers(self, caps: Array) -> Array:
        """``U`` for each cap: the contribution of weights above it, per slot of the rest."""
        edges = caps[:, None] * np.geomspace(1.0, 1e3, 60)
        mass, width, (x, y) = self.pool.weights(np.log(edges)), np.diff(edges), self._majorant
        single = float(self._means[1][0])
        grouped = width * np.interp(self.rest * mass[:, :-1] / width, x, y) / self.rest
        layers = np.cumsum(np.minimum(grouped, mass[:, :-1] * single), axis=1)
        # any of the layers may be the last, which reaches to infinity
        return np.min(np.concatenate([0 * mass[:, :1], layers], axis=1) + mass * single, axis=1)

    def pool_stop_loss(self, tau: Array) -> Array:
        """``S_a``: upper bound of ``int (H_0 - E H_0' - tau h)^+``, smallest over rho."""
        if self.pool.slots == 1:
            return self.stop_loss(tau)
        e = np.exp(self.epsilon)
        loss = np.concatenate([[0.0], np.geomspace(1e-3, 12.0, 40)])[:, None]
        share = np.abs(tau) * np.exp(-loss)
        ratio = np.where(tau >= 0, e + share, e - share)
        pair = np.where(ratio > 0, self.pool.pair(self.kind, ratio), 1 - ratio)
        rest = np.where(tau >= 0, 0.0, np.abs(tau) - share)
        return np.min(pair + rest + share * self.pool.replaced(loss), axis=0)

    @cached_property
    def _displaced(self) -> tuple[Array, Array, float]:
        """Atoms and masses of ``a*``, and the mass above the last atom."""
        if self.pool.slots == 1:
            return self._law.values, self._law.masses, self._law.excess
        far = np.geomspace(1e-3, 60.0, 80) * self._law.deviation
        points = np.concatenate([-far[::-1], [0.0], far])
        return dominating_atoms(points, self.pool_stop_loss(points))

    def _main(self, copies: int) -> float:
        """The main term, ``E (m a* + N cbar_n)^+``."""
        (values, masses, excess), m, scale = self._displaced, self.pool.slots, self.rest / copies
        return float(scale * (masses @ self._sum.excess(copies, -m * values / scale))) + m * excess

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        """Last number of each interval on which the known ``g`` is constant, the known numbers, and ``g`` there."""
        known = self._means[0]
        ends = np.concatenate([[0], known, known - 1])
        return ends, self._mean(ends)

    def _short(self, cap: float, copies: int) -> float:
        """``K``: its supremum is reached at the right ends of the intervals on which ``floor(sN/r)`` is constant."""
        ends, means = self._ends
        count = np.minimum(ends, copies - 1)
        share = (count + 1) * cap / self.rest
        # a number beyond the last copy stands for the last one, whose g is at least its own
        values = np.where(ends < copies, means, self._mean(np.array(copies - 1)))
        return float(np.max(share * values / (1 - share)))

    def _candidates(self) -> list[Choice]:
        """Caps r and numbers n0 with the best cut alpha for each, most promising first; ``main`` is only a guess."""
        caps = np.unique(np.exp(self.pool.weights.inverse(np.geomspace(0.2, 1e-7, 25))))
        alphas = np.append(0.0, np.geomspace(1e-3, 30.0, 30) * self._law.deviation)
        tails, found = self.pool_stop_loss(alphas), []
        caps = caps[caps < self.rest / 2]
        every = zip(caps.tolist(), self.pool.weights(np.log(caps)).tolist(), self._layers(caps).tolist(), strict=True)
        for cap, lost, above in every:
            layers = self.rest * above
            for share in (0.7, 0.92, 0.98):
                copies = _round_number(share * self.rest / cap)
                held = copies * cap / self.rest
                short = self.rest * self._short(cap, copies) * lost
                pool = self.pool.slots * float(np.min(alphas * lost / (1 - held) + tails))
                guess = self.rest * float(self._mean(np.array(copies)))
                parts = np.array([guess, layers, short, pool]) / self.rounds
                found.append(Choice(float(parts.sum()), cap, copies, *parts.tolist()))
        return sorted(found, key=lambda choice: choice.delta)

    def best(self, *, ceiling: float = np.inf) -> Choice | None:
        """The theorem at the best caps, numbers and cuts that were tried; None if it does not get below the ceiling."""
        found, mains = None, dict[int, float]()
        for guess in self._candidates():
            # the cheap terms alone are too much
            if guess.layers + guess.short + guess.pool >= ceiling:
                continue
            if guess.copies not in mains:
                if len(mains) == TRIES:
                    continue
                mains[guess.copies] = self._main(guess.copies) / self.rounds
            main = mains[guess.copies]
            total = (main + guess.layers + guess.short + guess.pool) * (1 + 1e-12)
            if found is None or total < found.delta:
                found = dataclasses.replace(guess, delta=total, main=main)
        return found


def _round_number(value: float) -> int:
    """The value rounded to a power of 1.03, so that few different numbers occur."""
    return max(1, int(1.03 ** np.floor(np.log(value) / np.log(1.03)))) if value > 1 else 1


def upper_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Corners of the least concave function above the points; of points with equal x the last counts."""
    keep: list[int] = []
    for i in range(len(x)):
        while keep and x[keep[-1]] == x[i]:
            keep.pop()
        while len(keep) > 1 and _turns_up(x[[*keep[-2:], i]], y[[*keep[-2:], i]]):
            keep.pop()
        keep.append(i)
    return x[keep], y[keep]


def _turns_up(x: Array, y: Array) -> bool:
    return bool((y[1] - y[0]) * (x[2] - x[1]) <= (y[2] - y[1]) * (x[1] - x[0]))


def dominating_atoms(points: Array, bound: Array) -> tuple[Array, Array, float]:
    """Atoms and masses of a variable that dominates all with at most this stop-loss function, and its excess.

    Its stop-loss function is the largest convex one below the bound with slopes in [-1, 0]: the truth is such a one.
    """
    # the truth falls, and not faster than at slope -1
    lowered = np.minimum.accumulate((bound + points)[::-1])[::-1] - points
    x, y = upper_hull(points, -np.minimum.accumulate(lowered))
    slopes = np.concatenate([[-1.0], np.clip(np.diff(-y) / np.diff(x), -1.0, 0.0), [0.0]])
    # slopes of a hull rise but for rounding, which the excess pays
    return x, np.maximum(np.diff(slopes), 0.0), float(-y[-1]) + 1e-13 * (1 + float(np.max(np.abs(y))))
