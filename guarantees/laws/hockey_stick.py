"""The privacy profile of a law, and the search for the epsilon at which it reaches a delta."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from guarantees.laws.large_losses import FAR, LARGE, integrated_delta
from guarantees.laws.law import LossLaw, Tails
from guarantees.numerics.array import Array
from guarantees.numerics.search import crossing

SMALL = 1e-9
"""Deltas below this come from a closed form if there is one: the difference of tails has lost seven digits."""
TINY = 1e-6
"""An epsilon below this is searched for again on its own scale, until that is at most 1 / FINE times too large."""
FINE = 0.01


def hockey_stick(law: LossLaw, epsilon: Array, tails: Tails | None = None) -> Array:
    """``P_with(L > eps) - e^eps P_without(L > eps)``, from tails at these epsilons where they are known."""
    large = (epsilon > LARGE) & (epsilon < FAR)
    value = np.zeros(epsilon.shape)
    if not large.all():
        # no tail beyond LARGE is read, and some take long
        near = epsilon[~large]
        found = law.tails(near) if tails is None else tails
        above, without = (side if tails is None else side[~large] for side in (found.with_above, found.without_above))
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(without > 0, np.exp(near) * without, 0.0)
            value[~large] = np.clip(above - scaled, 0.0, 1.0)
        small = (value < SMALL) & (epsilon >= 0) & (epsilon <= LARGE)
        if law.closed and small.any():
            value[small] = law.far_delta(epsilon[small])
    if large.any():
        far = law.far_delta(epsilon[large])
        value[large] = _integrated(law, epsilon[large]) if far is None else far
    return value


def _integrated(law: LossLaw, epsilon: Array) -> Array:
    return integrated_delta(lambda t: law.tails(t).with_above, epsilon, law.error)


def first_within(profile: Callable[[Array], Array], goal: Array, *, first: float = 1.0) -> Array:
    """Smallest argument at which a decreasing profile is at most each goal, searched in log delta.

    ``first`` is the upper end that is tried first.
    """
    low, high = np.zeros(goal.shape), np.full(goal.shape, first)
    for _ in range(30):
        short = profile(high) > goal
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 4 * high, high)

    def excess(x: Array, bound: Array) -> Array:
        found = profile(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(found) - np.log(bound)
        # A few rounding errors of slack, so that a plateau at exactly delta counts as reached.
        gap = np.where(found <= bound * (1 + 1e-15), np.minimum(gap, 0.0), gap)
        return np.clip(np.nan_to_num(gap, nan=0.0, posinf=1e3, neginf=-1e3), -1e3, 1e3)

    found = crossing(excess, low, high, goal) if goal.size else goal
    return _on_its_own_scale(excess, found, goal)


def _on_its_own_scale(excess: Callable[[Array, Array], Array], found: Array, goal: Array) -> Array:
    """The crossings, with tiny ones refined to as many digits as the others: a search ends at an absolute width."""
    found, coarse = found.copy(), (found > 0) & (found < TINY)
    while coarse.any():
        places = np.flatnonzero(coarse)

        def shrunk(share: Array, at: Array) -> Array:
            index = at.astype(int)
            return excess(share * found[index], goal[index])

        shares = crossing(shrunk, np.zeros(len(places)), np.ones(len(places)), places.astype(float))
        found[places] *= shares
        coarse[places] = (shares > 0) & (shares < FINE)
    return found
