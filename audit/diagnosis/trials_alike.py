"""Whether trials are independent and different, as an audit assumes."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.cut_noise import ALONE, PILE, ROUNDED, is_far
from audit.diagnosis.noise import Array
from audit.diagnosis.presence import chance_of_equals, equally_likely, order_tells
from audit.record.diagnosis_answer import DEPENDENT, REPEATED, Diagnosis
from guarantees.numerics.equal_rows import different_rows

OFTEN = 0.1
"""Fewest equal pairs for each trial: from fewer nobody can see what makes them."""
AROUND, NEAR, ON_A_GRID = 20, 1.5, 0.15
"""For grids: a distance is like the smallest of the AROUND ones near it up to NEAR times that. Of random values a
share of 0.07 is, of that many rounded ones at least 0.2."""
DISTINCT = 0.9
"""Share of different releases, beside one that is frequent, below which all of them take few values."""
IN_RUNS = 0.1
"""Share of trials that repeat the release before, beyond chance, from which on a clock makes their seeds."""
INNER, LEAST_INNER, ERRORS = 0.66, 0.42, 5.0
"""Share of the equal pairs in the inner half of rounded normal noise (0.75 for Laplace noise), and half less error."""


def trials_alike(
    first: Array, second: Array, *, continuous: bool, cut: bool, plus_noise: bool, risk: float
) -> Diagnosis | None:
    """Answer that releases repeat, or that trials depend on the one before, half of the risk each; or None.

    ``continuous`` noise never repeats a release; if coordinates are rounded it does as often as they show, unless
    something ``cut`` them. If the release is a number of the data ``plus_noise``, few seeds are distinguished from
    rounding, and no batch is empty.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    rows = np.concatenate(sides)
    _, counts = different_rows(rows)
    chance = chance_of_equals(rows) if counts.max() > 1 and not cut else 1.0
    repeated = chance < risk / 2
    frequent = _frequent_release(sides) if continuous and not repeated else ()
    if continuous and (repeated or frequent or (plus_noise and _from_few_seeds(sides))):
        measured = f"trials repeat: {len(counts):,} different releases in {len(rows):,} trials"
        causes = ("seed_again",) if repeated else ("seed_again", "coarse_noise")
        if _in_runs(sides):
            causes = ("clock_seed", *causes)
        elif frequent:
            described = [f"{often:,} of {len(side):,} trials" for often, side in zip(frequent, sides, strict=True)]
            causes = ("seed_again", OTHERS)
            measured += f", one of them in {described[0]} without the record, and one in {described[1]} with it"
        elif np.count_nonzero(counts > 1) == 1:
            measured = f"one release, number by number, comes in {counts.max():,} of {len(rows):,} trials"
            # or many outputs are mapped to one after the noise
            causes = (*(() if plus_noise else ("empty_batch",)), *causes, "cut")
        return answer(
            REPEATED,
            wrong=True,
            measured=measured,
            causes=causes,
            # the other repetitions are found by rules, not tests
            p_value=chance if repeated else None,
            risk=risk / 2 if repeated else 0.0,
            assumes="continuous noise, as the claim has it",
            estimate=float(len(counts)),
        )
    z, p = order_tells(*sides)
    if p >= risk / 2:
        return None
    return answer(
        DEPENDENT,
        wrong=True,
        measured="trials depend on each other. Verdict, p-value and bounds assume independent trials, and may be wrong "
        f"here. Releases of successive trials are {'more' if z < 0 else 'less'} alike than those of "
        "trials far apart",
        causes=("clock_seed", "kept_state") if _in_runs(sides) else ("kept_state",),
        p_value=p,
        risk=risk / 2,
        assumes="that the order of the trials means nothing",
    )


def _frequent_release(sides: list[Array]) -> tuple[int, ...]:
    """Count each side's most frequent release, if it is a draw that is used again; otherwise nothing.

    Continuous noise, cut or not, has other releases near an end, and what is done to it afterwards gives the same
    values with the record and without it. Releases of few values all repeat.
    """
    heights, found = [], []
    for side in sides:
        first, counts = different_rows(side)
        height, row = int(counts.max()), side[first[int(np.argmax(counts))]]
        others = np.sort(side[np.any(side != row, axis=1)], axis=0)
        alone = height >= max(PILE * len(side), ALONE * np.partition(counts, -2)[-2] if len(counts) > 1 else 0)
        if not alone or len(counts) - 1 < max(AROUND, DISTINCT * len(others)):
            return ()
        inside = (others[0] < row) & (row < others[-1])
        if np.any(others == row) or not any(
            inside[at] or is_far(others[:, at], row[at], height) for at in range(len(row))
        ):
            return ()
        heights.append(height)
        found.append(row)
    spread = np.maximum(*(np.ptp(side, axis=0) for side in sides))
    return tuple(heights) if np.any(np.abs(found[0] - found[1]) > ROUNDED * spread) else ()


def _in_runs(sides: list[Array]) -> bool:
    """Whether successive trials share a release more often than trials in arbitrary order would."""
    shares = []
    for side in sides:
        _, counts = different_rows(side)
        shares.append(float(np.mean(np.all(side[1:] == side[:-1], axis=1)) - np.sum((counts / len(side)) ** 2)))
    return min(shares) > IN_RUNS


def _from_few_seeds(sides: list[Array]) -> bool:
    """Whether values repeat like those of few seeds, and not like rounded noise.

    Values of few seeds are equally likely and lie anywhere. Rounded values lie at multiples of the smallest distance
    around them, and repeat most in the middle. The number of a release with the most values represents it.
    """
    place = int(np.argmax(np.count_nonzero(np.diff(np.sort(sides[0], axis=0), axis=0), axis=0)))
    equal, inner = 0.0, 0.0
    for column in (side[:, place] for side in sides):
        values, counts = np.unique(column, return_counts=True)
        pairs = counts * (counts - 1) / 2
        if len(values) < AROUND or pairs.sum() < OFTEN * len(column):
            return False
        gaps = np.diff(values)
        smallest = sliding_window_view(np.pad(gaps, AROUND // 2, mode="edge"), AROUND + 1).min(axis=1)
        if not equally_likely(counts) or np.mean(gaps <= NEAR * smallest) > ON_A_GRID:
            return False
        low, high = np.quantile(column, (0.25, 0.75))
        equal += float(pairs.sum())
        inner += float(pairs[(low <= values) & (values <= high)].sum())
    return LEAST_INNER < inner / equal < INNER - ERRORS * 0.5 / math.sqrt(equal)
