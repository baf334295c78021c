"""Whether there is noise: in every trial, on every coordinate, new each time, and not lost beside the record."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.coordinate_names import one_place, places
from audit.diagnosis.distribution import on_a_grid
from audit.diagnosis.noise import Array, Noise
from audit.record.diagnosis_answer import REPEATED, Diagnosis
from guarantees.numerics.distributions import binom, chi2, poisson
from guarantees.numerics.equal_rows import different_rows
from guarantees.numerics.rounding import at_most
from mechanisms.release import Layout

FARTHER = 1e5
"""A release this many times as large as all others is not that of a bounded record."""
ROUND_OFF = 1e-6
"""Share of the largest output up to which a variation is rounding."""
SAME = 3e-6
"""Noise of two trials is the same if it differs by less than this many deviations in every coordinate."""
SELDOM = 0.01
"""Share of trials in which coarse noise may be rounded to zero everywhere."""
FEW_VALUES = 8
"""Noise with fewer different values in a trial may be coarse."""
COARSE = 64
"""Number of different integers from which on they resemble normal numbers, at a deviation of about ten."""
SOME = 32
"""Trials of a side that show on which coordinates values repeat."""
ONCE = 0.05
"""Share of trials with a value of their own from which on some of them may have noise."""
ROOM = 8
"""A coordinate must have room for this many float32 numbers per trial for repeated values to be no rounding."""
RANK_SAMPLE = 64
"""Coordinates, and half the trials, from which the number of independent coordinates is estimated."""
MADE_OF = 1e-4
"""Share of the largest singular value below which a direction is rounding."""
ALL_DIFFERENT = 3
"""Expected number of equal pairs that is possible, with probability exp(-3), although none is found."""
UNEVEN = 1.15
"""Values are equally likely if they are at most this many times as many as equally likely ones would be."""
REPEATS = 8
"""Trials for each different release from which on they have no noise."""
BARE = 0.25
"""Share of the others' deviation below which a coordinate is called short of noise."""


def unbounded(without: Noise, with_record: Noise, *, finite: bool, risk: float) -> Diagnosis:
    """Whether the record makes outputs larger by orders of magnitude, so that float32 loses the noise beside them."""
    usual = float(np.quantile(np.abs(without.outputs).max(axis=1), 0.99))
    farthest = float(np.abs(with_record.outputs).max())
    wrong = usual > 0 and farthest > FARTHER * usual
    # the adapters of libraries replace values that are not finite by large ones
    either = "" if finite else "not finite, or "
    larger = at_most(farthest / max(usual, 1e-300), ".2g")
    return answer(
        "bounded",
        wrong=wrong,
        measured=f"with the record outputs are {either}up to {larger} times as large",
        causes=("not_clipped", "divided_by_little") if finite else ("not_a_number",),
        p_value=0.0 if wrong else 1.0,
        risk=risk,
        assumes=f"the bound is below {FARTHER:g} deviations of the noise",
        estimate=farthest / max(usual, 1e-300),
    )


def silent(without: Noise, with_record: Noise, *, empty: tuple[float, float] | None = None, risk: float) -> Diagnosis:
    """Whether trials have no noise outside the span of the gradients, as never happens with normal noise.

    Coarse noise may be zero on all these coordinates in many trials. ``empty`` is the probability of an empty batch on
    each side.
    """
    sides = (without, with_record)
    shares = [_share_silent(side) for side in sides]
    wrong, causes = min(shares) == 1 or (max(shares) > SELDOM and not is_coarse(*sides)), ()
    if min(shares) == 1:
        measured = _describe_silence(np.concatenate([side.outputs for side in sides]))
    elif 1 in shares and 0 in shares:
        measured = f"there is no noise in trials {'with' if shares[1] else 'without'} the record"
    elif wrong:
        measured = (
            f"no noise in {shares[0]:.1%} of the trials without the record and in {shares[1]:.1%} of those with it"
        )
        if empty is not None and all(map(_matches_probability, sides, shares, empty)):
            measured, causes = f"{measured}, which is how often batches are empty", ("empty_batch",)
    elif max(shares) > SELDOM:
        measured = "noise of few values is zero in some trials, as it may be"
    elif is_still(*sides):
        measured = "every trial has the same numbers where noise should be"
    else:
        measured = "every trial has noise"
    return answer(
        "silent",
        wrong=wrong,
        measured=measured,
        causes=causes,
        p_value=0.0 if wrong else 1.0,
        risk=risk,
        assumes="sums below a million deviations of the noise",
        estimate=max(shares),
    )


def _describe_silence(outputs: Array) -> str:
    """Say whether outputs without noise outside the span vary at all."""
    different = len(different_rows(outputs)[0])
    if different <= 2:
        return "there is no noise"
    if REPEATS * different <= len(outputs):
        return f"there is no noise: {different:,} different releases in {len(outputs):,} trials"
    return "there is no noise where no record moves the release"


def _matches_probability(side: Noise, share: float, probability: float) -> bool:
    """Whether the share of trials is this probability, within four standard errors and one trial."""
    trials = len(side.outputs)
    return abs(share - probability) * trials <= 1 + 4 * math.sqrt(trials * probability * (1 - probability))


def with_noise(side: Noise) -> Noise:
    """The trials that have noise or, if fewer than two do, all."""
    kept = ~_is_silent(side)
    if kept.all() or np.count_nonzero(kept) < 2:
        return side
    rows = {name: getattr(side, name)[kept] for name in ("outputs", "along", "beside", "rest")}
    return dataclasses.replace(side, **rows)


def is_still(without: Noise, with_record: Noise) -> bool:
    """Whether only rounding varies from trial to trial outside the span of the gradients, on both sides."""
    sides = (without, with_record)
    return all(float(side.beside.std(axis=0).max()) <= ROUND_OFF * float(np.abs(side.outputs).max()) for side in sides)


def is_coarse(without: Noise, with_record: Noise) -> bool:
    """Whether noise takes so few values, as integers do, that zeros and equal trials are expected."""
    sides = (without, with_record)
    rows = np.concatenate([side.outputs if side.rotated else side.beside for side in sides])
    values = len(np.unique(rows))
    if values > COARSE or FEW_VALUES * values >= rows.size:
        return False
    # few values may also come from one draw that is repeated
    return len(different_rows(rows)[0]) > (1 - SELDOM) * len(rows) or chance_of_equals(rows) >= 1


def _share_silent(side: Noise) -> float:
    """Share of the trials without noise outside the span of the gradients."""
    return float(np.mean(_is_silent(side)))


def _is_silent(side: Noise) -> Array:
    """Mask of the trials in which nothing but rounding lies outside the span of the gradients."""
    return np.abs(side.beside).max(axis=1) <= ROUND_OFF * np.abs(side.outputs).max(axis=1)


def bare(
    without: Noise, with_record: Noise, *, layout: Layout | None, continuous: bool = False, risk: float
) -> Diagnosis:
    """Whether coordinates have much less noise than others, or values that repeat; half of the risk each.

    Variances are compared with their mean outside the span. Whatever the batch adds, ``(trials - 1) variance_j / s^2``
    is at least chi-square; the smallest pays for all. Called wrong only below a quarter of the deviation, where the
    shape of the noise hardly matters.
    """
    repeating = bare_values(without.outputs, with_record.outputs, layout=layout, continuous=continuous, risk=risk)
    if repeating is not None:
        return repeating
    sides = {"without the record": without, "with the record": with_record}
    found, smallest, least_share = {}, 1.0, math.inf
    for name, side in sides.items():
        reference = float(np.mean(side.beside.var(axis=0, ddof=1)))
        if reference <= (ROUND_OFF * float(np.abs(side.outputs).max())) ** 2:
            continue
        shares = side.outputs.var(axis=0, ddof=1, dtype=np.float64) / reference
        degrees = len(side.outputs) - 1
        p_values = 2 * len(shares) * chi2.cdf(degrees * shares, degrees)
        short = (p_values < risk / 2) & (shares < BARE**2)
        smallest, least_share = min(smallest, float(p_values.min())), min(least_share, float(shares.min()))
        if short.any():
            found[name] = (short, math.sqrt(float(shares[short].max())))
    share = math.sqrt(max(0.0, least_share)) if least_share < math.inf else 0.0
    measured = "no coordinate varies from trial to trial"
    if least_share < math.inf:
        measured = f"the smallest deviation of a coordinate is {share:.3g} of theirs"
    return answer(
        "bare",
        wrong=bool(found),
        measured=_describe_bare(found, layout) if found else measured,
        p_value=min(1.0, 2 * smallest) if found or 2 * smallest >= risk else risk,
        risk=risk,
        assumes="independent trials",
        estimate=share,
    )


def _describe_bare(found: dict[str, tuple[Array, float]], layout: Layout | None) -> str:
    """Say which coordinates have how little noise, and on which side."""
    masks = [mask for mask, _ in found.values()]
    both = len(masks) == 2 and np.array_equal(masks[0], masks[1])
    (name, (mask, largest)) = next(iter(found.items()))
    amount = "no noise" if largest < 1e-3 else f"at most {at_most(largest, '.2g')} of the others' noise"
    return f"{amount} on {places(mask, layout)}{'' if both else f', {name}'}"


def bare_values(
    first: Array, second: Array, *, layout: Layout | None, continuous: bool = False, risk: float
) -> Diagnosis | None:
    """Answer naming coordinates of few values, which the record changes, beside others that never repeat one; or None.

    Sums over batches repeat if nothing hides them, however much they vary. If the record changes nothing, a value that
    only one side takes is as likely to be on either side: a sign test at half of the risk, shared by the coordinates
    that both sides together choose. If ``continuous`` noise is stated no value repeats, except on a fine grid.
    """
    count = min(len(first), len(second))
    sides = [np.asarray(side)[:count].reshape(count, -1) for side in (first, second)]
    sample = np.sort(np.concatenate([side[:SOME] for side in sides]).astype(np.float32), axis=0)
    repeating = np.any(sample[1:] == sample[:-1], axis=0)
    if not repeating.any() or 2 * np.count_nonzero(repeating) > len(repeating):
        return None
    few = [place for place in np.flatnonzero(repeating) if all(_takes_few_values(side[:, place]) for side in sides)]
    p_values = np.ones(len(repeating))
    for place in few:
        without, with_record = (np.unique(side[:, place].astype(np.float32)) for side in sides)
        on_one_side = [len(np.setdiff1d(without, with_record)), len(np.setdiff1d(with_record, without))]
        values = np.union1d(without, with_record)
        certain = continuous and not (len(values) > COARSE and on_a_grid(values))
        chance = 0.0 if certain else float(binom.sf(max(on_one_side) - 1, sum(on_one_side), 0.5))
        p_values[place] = min(1.0, 4 * len(few) * chance)
    found = p_values < risk
    if not found.any():
        return None
    place = int(np.flatnonzero(found)[0])
    counts = [f"{len(np.unique(side[:, place].astype(np.float32))):,}" for side in sides]
    where = places(found, layout)
    example = "it takes" if found.sum() == 1 else f"{one_place(place, layout)} takes"
    return answer(
        "bare",
        wrong=True,
        measured=f"no noise hides what the batch adds on {where}: {example} {counts[0]} different values in {count:,} "
        f"trials without the record, and {counts[1]} with it",
        p_value=float(p_values[found].min()),
        risk=risk,
        assumes="independent trials",
        estimate=0.0,
    )


def _takes_few_values(column: Array) -> bool:
    """Whether nearly all trials share their value with another, though float32 has room for all to differ."""
    values = column.astype(np.float32)
    room = float(np.ptp(values)) / float(np.spacing(np.abs(values).max()))
    single = np.count_nonzero(np.unique(values, return_counts=True)[1] == 1)
    return bool(single < ONCE * len(values) and room > ROOM * len(values))


def repeated(without: Noise, with_record: Noise, *, risk: float) -> Diagnosis:
    """Whether noise of a trial is used again: equal in two trials, or correlated in successive ones.

    Two trials agree in one coordinate within h deviations with probability at most .6 h (a normal density of
    differences is below .3), and in all of them less often: the number of pairs that do is at most about Poisson with
    mean ``.3 n^2 h``, even if all coordinates are the same. Successive trials are tested by ``order_tells``.
    """
    noisy = [side.beside[~_is_silent(side)] for side in (without, with_record)]
    rows = np.concatenate(noisy)
    draws, draws_by_side = _repetitions(rows), [len(_repetitions(side)) for side in noisy]
    distinct = len(draws)
    p_equal = float(poisson.sf(len(rows) - distinct - 1, 0.3 * len(rows) ** 2 * SAME))
    p = min(1.0, 2 * min(p_equal, order_tells(without.beside, with_record.beside)[1]))
    wrong = p < risk
    measured, causes = "no trial repeats the noise of another", ()
    if wrong and p_equal < risk / 2:
        described = "one draw" if distinct == 1 else f"{distinct:,} different draws"
        measured, causes = f"trials repeat: {described} of noise in {len(rows):,} trials", ("seed_again",)
        if draws_by_side == [1, 1] and distinct == 2:
            measured, causes = f"{measured}, one for each dataset", ("seed_again", "seed_of_dataset")
        # a rotation hides the grid of coarse noise; a few seeds would repeat most trials
        hidden = without.rotated and (2 * distinct > len(rows) or not equally_likely(draws))
        causes += ("coarse_noise",) if hidden or chance_of_equals(rows) >= risk else ()
    elif wrong:
        measured, causes = "successive trials have correlated noise", ("seed_again", "kept_state")
    return answer(
        REPEATED,
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes="independent trials of one scale",
        estimate=float(distinct),
    )


def order_tells(*sides: Array) -> tuple[float, float]:
    """How much less a trial resembles the next than a later one, in deviations (negative: more), and its p-value.

    Without dependence the order of trials is arbitrary: exchanging the last two of three changes the sign of the
    difference of the squared distances from the first, so ``P(|sum| > z root(sum of squares)) <= 2 exp(-z^2 / 2)`` for
    every law. [hoeffding1963] The later trials are the last third of a side, so that a total that drifts away shows.
    """
    spread = np.concatenate(sides).std(axis=0)
    farther = np.concatenate([_distance_differences(side / np.where(spread > 0, spread, 1)) for side in sides])
    z = float(farther.sum()) / max(math.sqrt(float(np.sum(farther**2))), 1e-300)
    return z, min(1.0, 2 * math.exp(-(z**2) / 2))


def _distance_differences(rows: Array) -> Array:
    """Squared distance of a trial from the next, less that from a trial of the last third."""
    third = len(rows) // 3
    trial, following, later = rows[: 2 * third : 2], rows[1 : 2 * third : 2], rows[2 * third : 3 * third]
    return np.sum((trial - following) ** 2, axis=1) - np.sum((trial - later) ** 2, axis=1)


def chance_of_equals(rows: Array) -> float:
    """Upper bound on the expected number of equal pairs of trials if their coordinates were independent coarse draws.

    Coordinates that are functions of one another, as when a number is released twice, count only once.
    """
    different = rows[different_rows(rows)[0]]
    pairs = len(different) * (len(different) - 1) / 2
    if pairs == 0:
        # one draw in all trials: many different values in it say that it is not coarse
        return 1.0 if len(np.unique(rows[0])) < min(rows.shape[1], FEW_VALUES) else 0.0
    equal = [float(np.sum((counts := np.unique(own, return_counts=True)[1]) * (counts - 1) / 2)) for own in different.T]
    equal = sorted(equal, reverse=True)[: _independent_coordinates(different)]
    each = float(np.sum(np.log(np.maximum(equal, 1.0) / pairs)))
    # a product of chances is at most the power of their mean, which all coordinates together estimate
    mean = (sum(equal) + ALL_DIFFERENT) / (pairs * len(equal))
    return len(rows) ** 2 / 2 * math.exp(min(each, len(equal) * math.log(min(mean, 1.0))))


def _independent_coordinates(rows: Array) -> int:
    """Number of coordinates that are not sums or monotone functions of others; all, if no relation is found."""
    sample = rows[: 2 * RANK_SAMPLE, :RANK_SAMPLE].astype(np.float64)
    orders = np.argsort(np.argsort(sample, axis=0), axis=0)
    ranks = [np.linalg.matrix_rank(_standardised(values), rtol=MADE_OF) for values in (sample, orders)]
    most = min(len(sample) - 1, sample.shape[1])
    return rows.shape[1] if min(ranks) >= most else max(1, min(ranks))


def _standardised(rows: Array) -> Array:
    """Columns with mean 0 and deviation 1."""
    centred = rows - rows.mean(axis=0)
    return centred / np.maximum(centred.std(axis=0), 1e-300)


def _repetitions(rows: Array) -> Array:
    """How often each different row occurs, where rows within SAME deviations are the same; sorted by first column."""
    if len(rows) < 2:
        return np.ones(len(rows), int)
    scale = SAME * max(float(np.sqrt(np.mean(rows**2))), 1e-300)
    ordered = rows[np.lexsort(np.round(rows[:, :2].T[::-1] / scale))]
    others = np.abs(np.diff(ordered, axis=0)).max(axis=1) > scale
    return np.diff(np.flatnonzero(np.concatenate([[True], others, [True]])))


def equally_likely(counts: Array) -> bool:
    """Whether values with these counts may be equally likely, as those of a few seeds are and coarse noise is not."""
    trials, pairs = int(counts.sum()), float(np.sum(counts * (counts - 1) / 2))
    likely = trials * (trials - 1) / (2 * pairs)
    return len(counts) <= UNEVEN * likely * (1 - (1 - 1 / likely) ** trials)
