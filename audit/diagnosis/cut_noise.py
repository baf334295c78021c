"""Noise that is cut: values pile up at the ends of a coordinate, and the record moves these ends."""

from __future__ import annotations

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.coordinate_names import one_place
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from mechanisms.release import Layout

MOST_COORDINATES = 4096
"""Most coordinates that are examined, evenly spread."""
PILE = 0.03
"""Share of a side's trials from which on equal values at an end are a pile."""
ALONE = 4
"""How many times as high as any value between the ends a pile must be: noise of few values piles up everywhere."""
ROUNDED = 1e-6
"""Share of a side's range up to which two ends are the same."""
NEAR, FEW = 0.25, 0.01
"""A cut leaves other values near its pile: within NEAR of their deviations, at least FEW for each value in the pile."""


def cut_noise(first: Array, second: Array, *, layout: Layout | None = None, risk: float) -> Diagnosis | None:
    """Answer naming a coordinate that often equals its smallest or largest value, which the record changes; or None.

    Bounds that were chosen beforehand cut a release at the same ends with the record and without it, which leaks
    nothing. Continuous noise has no equal values, so that ends which repeat are no chance. Cut noise has other values
    near the end; an end far from all others is a draw that is used again.
    """
    sides = [np.asarray(side).reshape(len(side), -1) for side in (first, second)]
    width = sides[0].shape[1]
    chosen = np.linspace(0, width - 1, min(MOST_COORDINATES, width)).astype(int)
    ordered = [np.sort(side[:, chosen].astype(float), axis=0) for side in sides]
    for name, mirrored in (("smallest", False), ("largest", True)):
        ends = [-side[::-1] if mirrored else side for side in ordered]
        heights = [_pile_heights(side) for side in ends]
        reach = ROUNDED * np.maximum(*(side[-1] - side[0] for side in ends))
        found = np.flatnonzero((heights[0] > 0) & (heights[1] > 0) & (np.abs(ends[0][0] - ends[1][0]) > reach))
        if len(found):
            place = int(found[np.argmax(np.minimum(*heights)[found])])
            values = [float(side[-1 if mirrored else 0, place]) for side in ordered]
            where = one_place(int(chosen[place]), layout)
            piles = [f"{value:.6g} in {int(height[place]):,}" for value, height in zip(values, heights, strict=True)]
            return answer(
                "tails",
                wrong=True,
                measured=f"values pile up at an end that the record moves: {where} is exactly its "
                f"{name} value, {piles[0]} of {len(sides[0]):,} trials without the record, and {piles[1]} of "
                f"{len(sides[1]):,} with it",
                causes=("cut",),
                p_value=risk,
                risk=risk,
                assumes="independent trials",
            )
    return None


def _pile_heights(ordered: Array) -> Array:
    """How often the first value of every sorted column occurs; 0 where that is no pile of its own."""
    trials = len(ordered)
    first = np.sum(ordered == ordered[0], axis=0)
    # equal neighbours between the ends: a run of k equal values has k - 1
    inside = (ordered[1:] == ordered[:-1]) & (ordered[1:] != ordered[0]) & (ordered[1:] != ordered[-1])
    longest = np.zeros(ordered.shape[1], int)
    run = np.zeros(ordered.shape[1], int)
    for equal in inside if inside.any() else inside[:0]:
        run = np.where(equal, run + 1, 0)
        longest = np.maximum(longest, run)
    constant = ordered[0] == ordered[-1]
    pile = (first >= PILE * trials) & (first >= ALONE * (longest + 1)) & ~constant
    for place in np.flatnonzero(pile):
        pile[place] = not is_far(ordered[first[place] :, place], ordered[0, place], int(first[place]))
    return np.where(pile, first, 0)


def is_far(others: Array, value: float, height: int) -> bool:
    """Whether hardly any other value lies near one that occurs this often, and the others do not pile up themselves.

    ``others`` are sorted, and all on one side of ``value``.
    """
    highest_pile = max(np.sum(others == others[0]), np.sum(others == others[-1]))
    nearby = np.sum(np.abs(others - value) < NEAR * others.std())
    return bool(highest_pile < PILE * (len(others) + height) and nearby < FEW * height)
