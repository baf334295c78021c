"""Coordinates that show the record because nothing hides it there: clear beside noisy ones, or all that is released."""

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
"""More different values on a side are not called few."""
ROUNDED = 1e-4
"""Of a coordinate's deviation: what float32 leaves of a draw that is taken from itself is less."""
SMALLEST = 1e-300
SIDES = ("without the record", "with it")


def clear_coordinates(
    first: Array, second: Array, *, advantage: float, layout: Layout | None, risk: float
) -> Diagnosis | None:
    """Which coordinates are constant on one side, or take few values that the other never does; None where none is.

    Where no coordinate is, the one that the record moves most is asked less each of the others: one draw that is added
    to several of them hides nothing there.
    One half of a side's trials says which values it takes there. In the other halves these must come in every trial of
    that side, and in so few of the other that the probabilities differ by more than ``advantage``, the most that the
    claim allows: by Clopper-Pearson limits, whose risk is shared by both sides of all coordinates. So noise that keeps
    the claim, discrete or not, is accused with probability at most ``risk``.
    """
    sides = [np.asarray(side).reshape(len(side), -1) for side in (first, second)]
    share = risk / (8 * sides[0].shape[1])
    found = _shown(sides, advantage=advantage, risk=share)
    moved = None
    if not found.any() and len(found) > 1:
        moved, sides = _less_the_others(sides)
        found = _shown(sides, advantage=advantage, risk=share)
    if not found.any():
        return None
    place = int(np.flatnonzero(found)[0])
    told = [f"{_values(side[:, place])} {words}" for side, words in zip(sides, SIDES, strict=True)]
    where = places(found, layout)
    example = "it is" if found.sum() == 1 else f"coordinate {place} is"
    if moved is not None:
        where = f"coordinate {moved} less coordinate {place}, which share a draw"
        example = "their difference is"
    return answer(
        "clear",
        wrong=True,
        measured=f"no noise hides the record on {where}: {example} {told[0]}, and {told[1]}",
        p_value=risk,
        risk=risk,
        assumes="independent trials",
    )


def _shown(sides: Sequence[Array], *, advantage: float, risk: float) -> Array:
    """Which coordinates tell the sides apart, each at this risk on either side."""
    # some trials say where noise has many values, however many coordinates there are
    some = [np.sort(side[: 2 * FEW_VALUES], axis=0) for side in sides]
    few = [np.count_nonzero(np.diff(own, axis=0), axis=0) < FEW_VALUES for own in some]
    found = np.zeros(sides[0].shape[1], bool)
    for place in np.flatnonzero(few[0] | few[1]):
        columns = [side[:, place] for side in sides]
        found[place] = any(_shows(*pair, advantage=advantage, risk=risk) for pair in (columns, columns[::-1]))
    return found


def _less_the_others(sides: Sequence[Array]) -> tuple[int, list[Array]]:
    """The coordinate that the record moves most, by the halves that choose, and it less each, rounded to its spread."""
    halves = [side[::2].astype(float) for side in sides]
    spread = np.sqrt(sum(half.var(axis=0) for half in halves))
    apart = np.abs(halves[1].mean(axis=0) - halves[0].mean(axis=0))
    moved = int(np.argmax(np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)))
    step = 10.0 ** np.floor(np.log10(max(ROUNDED * spread[moved], SMALLEST)))
    return moved, [np.round((side[:, moved, None].astype(float) - side) / step) * step for side in sides]


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
