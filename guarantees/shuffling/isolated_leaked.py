"""A proven lower bound on the leak of the 0/1 pair: deltas of its lattice windows less their proven gaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.profile import HalfProfile, law_from_halves
from guarantees.numerics.array import Array
from guarantees.shuffling.lognormal_lattice import Window

POINTS = 1024
"""Points at which a window is read; its chords are then less than a per cent of delta above its tangents."""
BLOCK = 16
"""Neighbouring cells that share one gap."""
SMALLEST = 1e-12
"""Deltas below this are treated as no leak."""

Reading = tuple[Window, float, float]
"""A window with the two ratios between which it is read, the one nearer to 1 first."""


def leaked_law(above: Iterable[Reading], below: Iterable[Reading]) -> DiscreteLaw:
    """Law of a pair whose deltas join points below the truth, from the windows above and below a ratio of 1.

    On each cell the truth is at least the window's convex profile less its gap there. The profile lies above its two
    tangents, so both ends are lowered by the height of the chord over these, and by the gap.
    """
    upper, lower = _half(above, upper=True), _half(below, upper=False)
    start = min(upper.delta[0], lower.delta[0])
    return law_from_halves(upper.starting_at(start), lower.starting_at(start))


def _half(readings: Iterable[Reading], *, upper: bool) -> HalfProfile:
    """Epsilons and deltas of one direction: epsilon is ln(ratio) above 1 and ln(1/ratio) below."""
    epsilon, delta = np.zeros(1), np.ones(1)
    for window, begin, end in readings:
        near = begin == 1
        ratio = np.linspace(begin, end, POINTS + 1) if near else np.geomspace(begin, end, POINTS + 1)
        value = _lowered(window, ratio, upper=upper)
        epsilon = np.append(epsilon, np.abs(np.log(ratio[1:])))
        # where two windows meet both lower bounds hold, and each chord needs its own
        delta = np.concatenate([delta[:-1], [min(delta[-1], value[0])], value[1:]])
        if value[-1] < SMALLEST:
            break
    # The chord down to nothing must lie below the one that would end at a positive value.
    last = max(int(np.argmax(delta < SMALLEST)) - 1, 0) if (delta < SMALLEST).any() else len(delta) - 1
    return HalfProfile(epsilon=epsilon[: last + 1], delta=np.append(delta[:last], 0.0))


def _lowered(window: Window, ratio: Array, *, upper: bool) -> Array:
    """Deltas at these ratios, lowered so that no chord lies above the truth."""
    without, with_record = window.above(ratio) if upper else window.below(ratio)
    x = ratio if upper else 1 / ratio
    value, rate = (with_record - x * without, without) if upper else (without - x * with_record, with_record)
    width, chord = np.diff(x), -np.diff(value) / np.diff(x)
    left, right = np.maximum(rate[:-1] - chord, 0.0), np.maximum(chord - rate[1:], 0.0)
    height = np.where(left * right > 0, left * right * width / np.maximum(left + right, 1e-300), 0.0)
    ends = ratio[::BLOCK].tolist()
    gap = [window.gap(min(a, b), max(a, b)) for a, b in itertools.pairwise(ends)]
    cost = height + np.repeat(gap, BLOCK) * (1.0 if upper else x[1:])
    return value - np.maximum(np.append(cost, 0.0), np.append(0.0, cost)) - 2 * window.roundoff(float(ratio[0]))
