"""Coordinates that show the record because no noise hides it there: constant ones, or ones that share a draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.bounds.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from mechanisms.release import Layout

FEW_VALUES = 16
"""A coordinate has few values if it takes at most so many on a side."""
ROUNDED = 1e-4
"""Share of a coordinate's deviation below which a difference is rounding, as when a draw is subtracted from itself."""
SMALLEST = 1e-300
SIDES = ("without the record", "with it")


def clear_coordinates(
    first: Array, second: Array, *, advantage: float, layout: Layout | None, risk: float
) -> Diagnosis | None:
    """Answer naming coordinates that are constant on a side, or take few values that the other side never has; or None.

    If there are none, each coordinate is subtracted from the one that the record moves most: one draw that is added to
    several coordinates hides nothing there. One half of a side's trials gives the values that it takes. In the other
    halves these must occur in every trial of that side, and on the other so rarely that the probabilities differ by
    more than ``advantage``, the most that the claim allows, by Clopper-Pearson limits whose risk all coordinates and
    both sides share. So noise that keeps the claim, discrete or not, is accused with probability at most ``risk``.
    """
    sides = [np.asarray(side).reshape(len(side), -1) for side in (first, second)]
    risk_each = risk / (8 * sides[0].shape[1])
    found = _telling_coordinates(sides, advantage=advantage, risk=risk_each)
    most_moved = None
    if not found.any() and len(found) > 1:
        most_moved, sides = _differences(sides)
        found = _telling_coordinates(sides, advantage=advantage, risk=risk_each)
    if not found.any():
        return None
    place = int(np.flatnonzero(found)[0])
    values = [f"{_values(side[:, place])} {words}" for side, words in zip(sides, SIDES, strict=True)]
    where = places(found, layout)
    example = "it is" if found.sum() == 1 else f"coordinate {place} is"
    if most_moved is not None:
        where = f"coordinate {most_moved} less coordinate {place}, which share a draw"
        example = "their difference is"
    return answer(
        "clear",
        wrong=True,
        measured=f"no noise hides the record on {where}: {example} {values[0]}, and {values[1]}",
        p_value=risk,
        risk=risk,
        assumes="independent trials",
    )


def _telling_coordinates(sides: Sequence[Array], *, advantage: float, risk: float) -> Array:
    """Mask of the coordinates that tell the sides apart, each at this risk on either side."""
    # a few trials exclude the coordinates with many values, which saves time where there are many coordinates
    samples = [np.sort(side[: 2 * FEW_VALUES], axis=0) for side in sides]
    few = [np.count_nonzero(np.diff(sample, axis=0), axis=0) < FEW_VALUES for sample in samples]
    found = np.zeros(sides[0].shape[1], bool)
    for place in np.flatnonzero(few[0] | few[1]):
        columns = [side[:, place] for side in sides]
        found[place] = any(_tells_apart(*pair, advantage=advantage, risk=risk) for pair in (columns, columns[::-1]))
    return found


def _differences(sides: Sequence[Array]) -> tuple[int, list[Array]]:
    """The coordinate that the record moves most, chosen by half of the trials, and its rounded differences to all."""
    halves = [side[::2].astype(float) for side in sides]
    spread = np.sqrt(sum(half.var(axis=0) for half in halves))
    apart = np.abs(halves[1].mean(axis=0) - halves[0].mean(axis=0))
    moved = int(np.argmax(np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)))
    step = 10.0 ** np.floor(np.log10(max(ROUNDED * spread[moved], SMALLEST)))
    return moved, [np.round((side[:, moved, None].astype(float) - side) / step) * step for side in sides]


def _tells_apart(constant_side: Array, other_side: Array, *, advantage: float, risk: float) -> bool:
    """Whether one side's values in its first half occur in all its other trials, and too rarely on the other side."""
    values = np.unique(constant_side[::2])
    if len(values) > FEW_VALUES:
        return False
    inside, other_inside = (np.isin(side[1::2], values) for side in (constant_side, other_side))
    if not inside.all() or (len(values) > 1 and other_inside.any()):
        # several values that occur on both sides may be discrete noise
        return False
    low = clopper_pearson_lower(len(inside), len(inside), risk=risk)
    high = clopper_pearson_upper(int(other_inside.sum()), len(other_inside), risk=risk)
    return float(low - high) > advantage


def _values(column: Array) -> str:
    """Describe the values of a coordinate in the trials of a side."""
    values = np.unique(column)
    if len(values) == 1:
        return f"{values[0]:.6g} in each of {len(column):,} trials"
    if len(values) == len(column):
        return f"a different number in each of {len(column):,} trials"
    return f"one of {len(values):,} values in {len(column):,} trials"
