"""Noise that ends: values that pile up at the ends of a coordinate, where the record moves these ends."""

from __future__ import annotations

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis

MOST_COORDINATES = 4096
"""Evenly spread ones that are looked at."""
PILE = 0.03
"""Share of a side's trials from which on equal values at an end are a pile."""
ALONE = 4
"""Times that it must be as high as any value between the ends: noise of few values has piles everywhere."""
ROUNDED = 1e-6
"""Of a side's range: ends that differ by no more are one."""
NEAR, FEW = 0.25, 0.01
"""Deviations of the others within which a cut leaves values beside its pile, and how many for each in the pile."""


def cut_noise(first: Array, second: Array, *, risk: float) -> Diagnosis | None:
    """Whether a coordinate often is exactly its smallest or largest value, and the record makes that another; or None.

    Bounds that were chosen beforehand cut a release at the same ends with the record and without it, which leaks
    nothing. Continuous noise has no equal values: where there are such ends, they are no chance. Where noise is cut
    other values lie beside the end; one far from all others is a draw that is used again.
    """
    sides = [np.asarray(side).reshape(len(side), -1) for side in (first, second)]
    width = sides[0].shape[1]
    chosen = np.linspace(0, width - 1, min(MOST_COORDINATES, width)).astype(int)
    ordered = [np.sort(side[:, chosen].astype(float), axis=0) for side in sides]
    for name, mirrored in (("smallest", False), ("largest", True)):
        ends = [-own[::-1] if mirrored else own for own in ordered]
        heights = [_heights(own) for own in ends]
        reach = ROUNDED * np.maximum(*(own[-1] - own[0] for own in ends))
        found = np.flatnonzero((heights[0] > 0) & (heights[1] > 0) & (np.abs(ends[0][0] - ends[1][0]) > reach))
        if len(found):
            place = int(found[np.argmax(np.minimum(*heights)[found])])
            values = [float(own[-1 if mirrored else 0, place]) for own in ordered]
            told = [f"{value:.6g} in {int(own[place]):,}" for value, own in zip(values, heights, strict=True)]
            return answer(
                "tails",
                wrong=True,
                measured=f"values pile up at an end that the record moves: coordinate {chosen[place]} is exactly its "
                f"{name} value, {told[0]} of {len(sides[0]):,} trials without the record, and {told[1]} of "
                f"{len(sides[1]):,} with it",
                causes=("cut",),
                p_value=risk,
                risk=risk,
                assumes="independent trials",
            )
    return None


def _heights(ordered: Array) -> Array:
    """Of every sorted column how often its first value comes; 0 where that is no pile of its own."""
    trials = len(ordered)
    first = np.sum(ordered == ordered[0], axis=0)
    # equal neighbours between the ends, of which runs of k have k - 1
    inside = (ordered[1:] == ordered[:-1]) & (ordered[1:] != ordered[0]) & (ordered[1:] != ordered[-1])
    longest = np.zeros(ordered.shape[1], int)
    run = np.zeros(ordered.shape[1], int)
    for equal in inside if inside.any() else inside[:0]:
        run = np.where(equal, run + 1, 0)
        longest = np.maximum(longest, run)
    whole = ordered[0] == ordered[-1]
    pile = (first >= PILE * trials) & (first >= ALONE * (longest + 1)) & ~whole
    for place in np.flatnonzero(pile):
        pile[place] = not is_far(ordered[first[place] :, place], ordered[0, place], int(first[place]))
    return np.where(pile, first, 0)


def is_far(others: Array, value: float, height: int) -> bool:
    """Whether nearly none of the other values lie beside one that comes so often, and they have no pile of their own.

    ``others`` are sorted, and all on one side of it.
    """
    both_ends = max(np.sum(others == others[0]), np.sum(others == others[-1])) >= PILE * (len(others) + height)
    beside = np.sum(np.abs(others - value) < NEAR * others.std())
    return not both_ends and bool(beside < FEW * height)
