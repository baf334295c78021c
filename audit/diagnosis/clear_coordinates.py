"""Coordinates that show the record because nothing hides it there: clear beside noisy ones, or all that is released."""

from __future__ import annotations

import numpy as np

from audit.bounds.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from mechanisms.release import Layout

FEW_VALUES = 16
"""More different values on a side are not called few."""
SIDES = ("without the record", "with it")


def clear_coordinates(
    first: Array, second: Array, *, advantage: float, layout: Layout | None, risk: float
) -> Diagnosis | None:
    """Which coordinates are constant on one side, or take few values that the other never does; None where none is.

    One half of a side's trials says which values it takes there. In the other halves these must come in every trial of
    that side, and in so few of the other that the probabilities differ by more than ``advantage``, the most that the
    claim allows: by Clopper-Pearson limits, whose risk is shared by both sides of all coordinates. So noise that keeps
    the claim, discrete or not, is accused with probability at most ``risk``.
    """
    sides = tuple(np.asarray(side).reshape(len(side), -1) for side in (first, second))
    share = risk / (4 * sides[0].shape[1])
    # some trials say where noise has many values, however many coordinates there are
    some = [np.sort(side[: 2 * FEW_VALUES], axis=0) for side in sides]
    few = [np.count_nonzero(np.diff(own, axis=0), axis=0) < FEW_VALUES for own in some]
    found = np.zeros(sides[0].shape[1], bool)
    for place in np.flatnonzero(few[0] | few[1]):
        columns = [side[:, place] for side in sides]
        found[place] = any(_shows(*pair, advantage=advantage, risk=share) for pair in (columns, columns[::-1]))
    if not found.any():
        return None
    place = int(np.flatnonzero(found)[0])
    told = [f"{_values(side[:, place])} {words}" for side, words in zip(sides, SIDES, strict=True)]
    where = places(found, layout)
    example = "it is" if found.sum() == 1 else f"coordinate {place} is"
    return answer(
        "clear",
        wrong=True,
        measured=f"no noise hides the record on {where}: {example} {told[0]}, and {told[1]}",
        p_value=risk,
        risk=risk,
        assumes="independent trials",
    )


def _shows(own: Array, other: Array, *, advantage: float, risk: float) -> bool:
    """Whether the values of one side's first half come in all its other trials, and too seldom on the other side."""
    values = np.unique(own[::2])
    if len(values) > FEW_VALUES:
        return False
    own_in, other_in = (np.isin(side[1::2], values) for side in (own, other))
    if not own_in.all() or (len(values) > 1 and other_in.any()):
        # several values that both sides take may be discrete noise
        return False
    low = clopper_pearson_lower(len(own_in), len(own_in), risk=risk)
    high = clopper_pearson_upper(int(other_in.sum()), len(other_in), risk=risk)
    return float(low - high) > advantage


def _values(column: Array) -> str:
    """What a coordinate is in the trials of a side."""
    values = np.unique(column)
    if len(values) == 1:
        return f"{values[0]:.6g} in each of {len(column):,} trials"
    return f"one of {len(values):,} values in {len(column):,} trials"
