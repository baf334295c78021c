"""Whether trials are what an audit takes them for: independent of each other, and none of them drawn twice."""

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
"""Equal pairs for each trial, at least: of fewer nobody can tell what makes them."""
AROUND, NEAR, ON_A_GRID = 20, 1.5, 0.15
"""Distances around one, and times the smallest of these up to which another is the same. Of random values 0.07 are, and
of so many rounded ones at least 0.2."""
DISTINCT = 0.9
"""Share of different releases, beside one that comes often, below which all of them take few values."""
IN_RUNS = 0.1
"""Share of trials that release what the one before did, beyond what their order has to do with, that a clock makes."""
INNER, LEAST_INNER, ERRORS = 0.66, 0.42, 5.0
"""Share of the equal pairs in the inner half of rounded normal noise (Laplace noise has 0.75), and half less error."""


def trials_alike(
    first: Array, second: Array, *, continuous: bool, cut: bool, plus_noise: bool, risk: float
) -> Diagnosis | None:
    """Releases that are equal in several trials, or trials that depend on the one before; half of the risk each.

    ``continuous`` noise never gives a release twice; where coordinates are rounded, as often as they say by chance,
    unless something ``cut`` them. Of a number of the data ``plus_noise`` alone, few seeds are told from rounding, and
    no batch is empty.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    rows = np.concatenate(sides)
    _, counts = different_rows(rows)
    chance = chance_of_equals(rows) if counts.max() > 1 and not cut else 1.0
    again = chance < risk / 2
    one = _one_release(sides) if continuous and not again else ()
    if continuous and (again or one or (plus_noise and _few_draws(sides))):
        measured = f"trials repeat: {len(counts):,} different releases in {len(rows):,} trials"
        causes = ("seed_again",) if again else ("seed_again", "coarse_noise")
        if _in_runs(sides):
            causes = ("clock_seed", *causes)
        elif one:
            told = [f"{often:,} of {len(side):,} trials" for often, side in zip(one, sides, strict=True)]
            causes = ("seed_again", OTHERS)
            measured += f", one of them in {told[0]} without the record, and one in {told[1]} with it"
        elif np.count_nonzero(counts > 1) == 1:
            measured = f"one release, number by number, comes in {counts.max():,} of {len(rows):,} trials"
            causes = causes if plus_noise else ("empty_batch", *causes)
        return answer(
            REPEATED,
            wrong=True,
            measured=measured,
            causes=causes,
            # what else is looked for is no test
            p_value=chance if again else None,
            risk=risk / 2 if again else 0.0,
            assumes="continuous noise, as the claim has it",
            estimate=float(len(counts)),
        )
    z, p = order_tells(*sides)
    if p >= risk / 2:
        return None
    return answer(
        DEPENDENT,
        wrong=True,
        measured="trials depend on each other. Verdict, p-value and bounds take them for independent, and without that "
        f"they need not hold. Releases of successive trials are {'more' if z < 0 else 'less'} alike than those of "
        "trials far apart",
        causes=("clock_seed", "kept_state") if _in_runs(sides) else ("kept_state",),
        p_value=p,
        risk=risk / 2,
        assumes="nothing but trials in an order that says nothing",
    )


def _one_release(sides: list[Array]) -> tuple[int, ...]:
    """How often the most frequent release of each side comes, if that is a draw that is used again; or else nothing.

    Continuous noise, cut or not, gives other releases beside one at an end, and what is done to it afterwards gives the
    same values with the record and without it. Few values come again each.
    """
    often, found = [], []
    for own in sides:
        first, counts = different_rows(own)
        height, row = int(counts.max()), own[first[int(np.argmax(counts))]]
        others = np.sort(own[np.any(own != row, axis=1)], axis=0)
        alone = height >= max(PILE * len(own), ALONE * np.partition(counts, -2)[-2] if len(counts) > 1 else 0)
        if not alone or len(counts) - 1 < max(AROUND, DISTINCT * len(others)):
            return ()
        inside = (others[0] < row) & (row < others[-1])
        if np.any(others == row) or not any(
            inside[at] or is_far(others[:, at], row[at], height) for at in range(len(row))
        ):
            return ()
        often.append(height)
        found.append(row)
    spread = np.maximum(*(np.ptp(own, axis=0) for own in sides))
    return tuple(often) if np.any(np.abs(found[0] - found[1]) > ROUNDED * spread) else ()


def _in_runs(sides: list[Array]) -> bool:
    """Whether successive trials often have one release, more often than trials in any order."""
    shares = []
    for own in sides:
        _, counts = different_rows(own)
        shares.append(float(np.mean(np.all(own[1:] == own[:-1], axis=1)) - np.sum((counts / len(own)) ** 2)))
    return min(shares) > IN_RUNS


def _few_draws(sides: list[Array]) -> bool:
    """Whether values come again as those of few seeds do, and not as rounded noise does.

    Those are equally likely and lie anywhere. Rounded values lie at multiples of what the smallest distance around
    them is, and come again most in the middle. The number of a release that takes most values stands for it.
    """
    at = int(np.argmax(np.count_nonzero(np.diff(np.sort(sides[0], axis=0), axis=0), axis=0)))
    equal, inner = 0.0, 0.0
    for own in (side[:, at] for side in sides):
        values, counts = np.unique(own, return_counts=True)
        pairs = counts * (counts - 1) / 2
        if len(values) < AROUND or pairs.sum() < OFTEN * len(own):
            return False
        gaps = np.diff(values)
        smallest = sliding_window_view(np.pad(gaps, AROUND // 2, mode="edge"), AROUND + 1).min(axis=1)
        if not equally_likely(counts) or np.mean(gaps <= NEAR * smallest) > ON_A_GRID:
            return False
        low, high = np.quantile(own, (0.25, 0.75))
        equal += float(pairs.sum())
        inner += float(pairs[(low <= values) & (values <= high)].sum())
    return LEAST_INNER < inner / equal < INNER - ERRORS * 0.5 / math.sqrt(equal)
