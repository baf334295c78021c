"""A guarantee for shuffled fixed-size batches whose weights need no cap: exponential moments, one level after another.

Theorem 3 of docs/shuffling-upper-bound.md, whose names are used here: b what the pool's own term may be worth, B where
a product of weight and slot is cut, ``K(x)`` the logarithm of a slot's exponential moment at weight x, times N.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from guarantees.numerics.array import Array
from guarantees.numerics.search import first
from guarantees.shuffling.barycentre import RATIOS
from guarantees.shuffling.displacement import Displacement, dominating_atoms

STRIDE = 5
"""Steps of the ratios from one speed to the next: so there are few products of speed and ratio."""
SPEEDS = 44
"""Number of speeds of exponential moments: the last is the best for equal weights."""
CUTS = np.geomspace(1.5, 1e6, 249)
"""Cuts B, in units of the variance over the drift."""
SHARES = np.array([0.0, 0.008, 0.025, 0.08, 0.2])
"""Shares of the drift ``N (E - 1)`` that the pool's own term may take."""
NARROW = 6
"""Cuts are halved until this few are left; then some near the best are tried."""
THRESHOLDS = 20
FAINT = 1e-13
"""Ratios at which the weights' excess is below this belong to the last piece, which reaches to infinity."""
CROWDED = 80
"""Number of levels above which those that cannot be the best next one are dropped."""
LARGEST = 200.0
"""Exponential moments above e to this power are not used."""
ROUNDING = 3e-12
"""Relative error of a sum of a few hundred exponentials of up to ``LARGEST``: each product may be off by 5e-15."""


@dataclasses.dataclass(frozen=True, eq=False)
class Convex:
    """Convex functions of a weight that are 0 at 0: values at the tabulated ratios and the slope after the last."""

    ratios: Array
    values: Array
    last: Array

    def risen(self, excess: Array) -> Array:
        """Bound of ``E (f(x) - x f(t)/t)^+`` for each tabulated t, from how far the weights exceed the ratios."""
        step = np.diff(self.ratios)
        slopes = np.concatenate([np.diff(self.values, axis=-1) / step, self.last[..., None]], axis=-1)
        turns = np.maximum(np.diff(slopes, axis=-1), 0.0) * excess[1:]
        after = np.concatenate([np.cumsum(turns[..., ::-1], axis=-1)[..., ::-1], 0 * self.last[..., None]], axis=-1)
        rounding = 1e-15 * np.max(np.abs(self.values[..., 1:]) / step) * np.sum(excess)
        return np.maximum(slopes - self.values / self.ratios, 0.0) * excess + after + rounding

    def mean(self, excess: Array) -> float:
        """Bound of ``E f(x)``: the line through f(1), and what rises above it."""
        return float(self.values[0] / self.ratios[0] + self.risen(excess)[0])


@dataclasses.dataclass(frozen=True, eq=False)
class Levels:
    """The bound of delta for a displacement's slots, pool, kind and epsilon."""

    plan: Displacement

    @cached_property
    def _atoms(self) -> tuple[Array, Array, float]:
        """A variable that dominates c*: fine near 0 and coarser farther out, as no transform needs a lattice."""
        deviation, low, high = self.plan.reach
        fine = np.arange(-4.0, 4.0, 1 / 12)
        points = deviation * np.concatenate([-np.geomspace(4.0, 1e4, 90)[::-1], fine, np.geomspace(4.0, 1e9, 240)])
        kept = points[np.searchsorted(points, low) : np.searchsorted(points, high) + 1]
        return dominating_atoms(kept, self.plan.stop_loss(kept))

    def _above(self, level: Array) -> Array:
        """``E (X - level)^+``."""
        atoms, masses, _ = self._atoms
        return np.maximum(atoms - np.asarray(level)[..., None], 0.0) @ masses * (1 + ROUNDING)

    @cached_property
    def _end(self) -> float:
        """``g(1)``: what remains when all levels fail."""
        return float(self._above(np.zeros(1))[0])

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        """Ratios, and how far the weights exceed them."""
        excess = self.plan.pool.weights(np.log(RATIOS))
        count = max(int(np.sum(excess > FAINT)), 2)
        return RATIOS[:count], excess[:count]

    def _cut(self, cut: float) -> float:
        """What products above B add, per slot: on each piece of the table with the cut of its upper end."""
        ratios, excess = self._weights
        lost = self._above(cut / ratios)
        # a weight on the piece below is cut where its upper end is
        upper = np.append(lost[1:], self._above(cut / (ratios[-1:] * RATIOS[1])))
        return Convex(ratios, ratios * upper, np.maximum(lost[-1], upper[-1])).mean(excess)

    @cached_property
    def _scale(self) -> tuple[float, float]:
        """Variance of a slot, and the drift per slot: how far the sum falls, or its deviation if that is more."""
        atoms, masses, _ = self._atoms
        variance = float(masses @ (atoms - masses @ atoms) ** 2)
        return variance, max(float(np.expm1(self.plan.epsilon)), float(np.sqrt(variance / self.plan.rest)))

    @cached_property
    def _speeds(self) -> Array:
        variance, drift = self._scale
        return drift * self.plan.rest / variance / RATIOS[STRIDE * np.arange(SPEEDS)[::-1]]

    @cached_property
    def _partial(self) -> tuple[Array, Array]:
        """Masses and exponential moments summed over the lowest atoms, for each product of speed and ratio."""
        atoms, masses, _ = self._atoms
        count = STRIDE * (SPEEDS - 1) + len(self._weights[0])
        products = self._speeds[0] / self.plan.rest * np.exp(np.log(RATIOS[-1]) / (len(RATIOS) - 1) * np.arange(count))
        terms = np.exp(np.minimum(products[:, None] * atoms, LARGEST + 1)) * masses
        # sums of none, of the first, and so on; and the mass of the atoms left
        sums = np.concatenate([np.zeros((count, 1)), np.cumsum(terms, axis=1)], axis=1)
        return sums, np.append(np.cumsum(masses[::-1])[::-1], 0.0)

    def _moments(self, speeds: int, cut: float) -> Convex:
        """Convex functions above K for the first speeds: within a piece the cut is fixed and K convex.

        Slopes may only grow.
        """
        ratios, rest, fast = self._weights[0], self.plan.rest, self._speeds[:speeds]
        (sums, left), below = self._partial, np.searchsorted(self._atoms[0], cut / ratios)
        products = STRIDE * np.arange(speeds)[:, None] + np.arange(len(ratios))
        held = sums[products, below] + np.exp(fast[:, None] * cut / rest) * left[below]
        values = rest * (np.log(held) + ROUNDING)
        step = np.diff(ratios)
        slopes = np.concatenate([values[:, :1] / ratios[0], np.diff(values, axis=1) / step], axis=1)
        slopes = np.maximum.accumulate(slopes, axis=1)
        grown = np.cumsum(np.concatenate([values[:, :1], slopes[:, 1:] * step], axis=1), axis=1)
        return Convex(ratios, grown, np.maximum(slopes[:, -1], fast * cut / ratios[-1]))

    def _levels(self, speeds: int, cut: float) -> tuple[Array, Array, Array]:
        """Speeds, thresholds u of W, and ``P(W > u)`` at most: Markov's inequality from the best level below.

        Without the speeds at which no threshold helps: the lowest level is above what is left when all fail.
        """
        moments = self._moments(speeds, cut)
        level, highest = moments.values / moments.ratios, np.log(np.e * self._speeds[:speeds] * self._end)
        helps = level[:, 0] < highest
        level, highest, risen = level[helps], highest[helps], moments.risen(self._weights[1])[helps]
        lowest = np.minimum(np.maximum(level[:, 0], highest - 30.0), highest - 1.0)
        thresholds = np.linspace(lowest, highest, THRESHOLDS, axis=1)
        inverse = (thresholds[:, :, None] - level[:, None, :]) * (1 / risen)[:, None, :]
        return self._speeds[:speeds][helps], thresholds, 1 / np.maximum(np.max(inverse, axis=2), 1.0)

    def _chain(self, speeds: int, cut: float, drawn: Array) -> Array:
        """The cheapest sequence of levels with falling speeds for each ``b/N``: each pays where the last failed."""
        end = (self._end + drawn)[:, None]
        fast, thresholds, failures = self._levels(speeds, cut)
        exponents = np.minimum(thresholds + (fast[:, None] * drawn[:, None, None]), 100.0)
        costs = np.exp(exponents) / (np.e * fast)[:, None]
        worth, later = end, 0 * end
        for cost, failed in zip(costs.swapaxes(0, 1), failures, strict=True):
            onward = np.min(failed[:, None] * worth[:, None, :] + later[:, None, :], axis=2)
            # a level that costs more than the end by itself gains nothing after another one either
            gains = np.any(cost + onward < end, axis=0)
            worth = np.concatenate([worth, cost[:, gains]], axis=1)
            later = np.concatenate([later, onward[:, gains]], axis=1)
            if worth.shape[1] > CROWDED:
                kept = _undominated(worth, later)
                worth, later = worth[:, kept], later[:, kept]
        return np.min(worth + later, axis=1)

    def delta(self, *, ceiling: float = np.inf) -> float:
        """The theorem at the best cuts, shares and levels tried; infinite if none gets below the ceiling.

        A larger cut loses less and makes levels dearer: if they are too dear at the first cut that loses less than the
        ceiling, no other cut helps. The best cut is near the one where both cost the same.
        """
        plan, excess = self.plan, self._atoms[2]
        scale = plan.rest / plan.rounds * (1 + 1e-12)
        low, high = 0, len(CUTS) - 1
        totals = dict[int, float]()
        if np.isfinite(ceiling):
            goal = ceiling / scale - excess
            low = first(lambda at: self._lost(at) < goal, -1, high)
            chain = self._chained(low)
            if chain >= goal:
                return np.inf
            totals[low] = chain + self._lost(low)
        while high - low >= NARROW:
            middle = (low + high) // 2
            lost = self._lost(middle)
            # levels only get dearer: those at a smaller cut that loses more than the least need not be known
            if lost >= min(totals.values(), default=np.inf):
                low = middle + 1
                continue
            chain = self._chained(middle)
            totals[middle] = chain + lost
            low, high = (middle + 1, high) if lost > chain else (low, middle - 1)
        if not totals:
            totals[low] = self._chained(low) + self._lost(low)
        best = min(totals, key=totals.__getitem__)
        for step in (NARROW, NARROW // 2, 1):
            for index in (best + step, best - step):
                # one in between is known to be worse
                between = range(min(best + 1, index), max(best, index + 1))
                if not 0 <= index < len(CUTS) or any(at in totals for at in between):
                    continue
                totals[index] = self._chained(index) + self._lost(index)
                if totals[index] < totals[best]:
                    best = index
                    break
        return float((totals[best] + excess) * scale)

    def _lost(self, index: int) -> float:
        return self._cut(self._cut_at(index))

    def _cut_at(self, index: int) -> float:
        variance, drift = self._scale
        return float(CUTS[index] * variance / drift)

    @cached_property
    def _own(self) -> Array:
        """The pool's own term, per slot of the rest, for each share."""
        plan, drift = self.plan, self._scale[1]
        return plan.pool.slots * plan.pool_stop_loss(SHARES * drift * plan.rest / plan.pool.slots) / plan.rest

    def _chained(self, index: int) -> float:
        """Levels and the pool's own term at one cut; infinite cost if no speed serves."""
        cut = self._cut_at(index)
        usable = int(np.sum(self._speeds * cut < LARGEST * self.plan.rest))
        return float(np.min(self._chain(usable, cut, SHARES * self._scale[1]) + self._own)) if usable else np.inf


def _undominated(worth: Array, later: Array) -> Array:
    """Which lines ``f worth + later`` may be lowest on [0, 1] in some row: the others lie above one at both ends."""
    order = np.argsort(later, axis=1, kind="stable")
    whole = np.take_along_axis(worth + later, order, axis=1)
    before = np.minimum.accumulate(whole, axis=1)[:, :-1]
    lower = np.concatenate([np.ones((len(whole), 1), bool), whole[:, 1:] < before], axis=1)
    kept = np.zeros_like(lower)
    np.put_along_axis(kept, order, lower, axis=1)
    return np.any(kept, axis=0)
