"""Whether there is noise: in every trial, on every coordinate, new each time, and not drowned by the record."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.distribution import on_a_grid
from audit.diagnosis.noise import Array, Noise
from audit.record.diagnosis_answer import REPEATED, Diagnosis
from guarantees.numerics.distributions import binom, chi2, poisson
from guarantees.numerics.equal_rows import different_rows
from guarantees.numerics.rounding import at_most
from mechanisms.release import Layout

FARTHER = 1e5
"""A release this many times as large as all others is not one of a bounded record."""
ROUND_OFF = 1e-6
SAME = 3e-6
"""Noise of two trials that differs by less than this many deviations, in every coordinate, is the same."""
SELDOM = 0.01
"""Share of trials without noise that coarse noise, rounded to zero everywhere, may have."""
FEW_VALUES = 8
"""Noise of fewer different values in a trial may be coarse."""
COARSE = 64
"""Different values of integers whose deviation is about ten, from which on they are like normal numbers."""
SOME = 32
"""Trials of a side that say on which coordinates values come again."""
ONCE = 0.05
"""Share of trials whose value no other has, from which on there may be noise in some of them."""
ROOM = 8
"""Numbers of float32 for each trial that a coordinate could take, for values that come again to be no rounding."""
MOST_TOLD = 64
"""Coordinates, and half of the trials, that tell how many coordinates are made of others."""
MADE_OF = 1e-4
"""Share of the largest spread below which there is none."""
ALL_DIFFERENT = 3
"""Equal pairs that may be due where none is found, at a probability of exp(-3)."""
UNEVEN = 1.15
"""Times the different values that equally likely ones give, up to which they are."""
REPEATS = 8
"""Trials for each different release from which on they have no noise."""
BARE = 0.25
"""Share of the others' deviation below which a coordinate is called short of noise."""


def unbounded(without: Noise, with_record: Noise, *, finite: bool, risk: float) -> Diagnosis:
    """Whether the record makes outputs larger by orders of magnitude, so that float32 loses the noise beside them."""
    usual = float(np.quantile(np.abs(without.outputs).max(axis=1), 0.99))
    farthest = float(np.abs(with_record.outputs).max())
    wrong = usual > 0 and farthest > FARTHER * usual
    # what is no number was replaced by a large one where a library's releases are audited
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
    """Whether trials have no noise outside the span of the gradients, which normal noise never has.

    Coarse noise may be zero on all these coordinates in many a trial. ``empty``: how often a batch is so, on each side.
    """
    sides = (without, with_record)
    shares = [_silent_share(side) for side in sides]
    wrong, causes = min(shares) == 1 or (max(shares) > SELDOM and not is_coarse(*sides)), ()
    if min(shares) == 1:
        measured = _no_noise(np.concatenate([side.outputs for side in sides]))
    elif 1 in shares and 0 in shares:
        measured = f"there is no noise in trials {'with' if shares[1] else 'without'} the record"
    elif wrong:
        measured = (
            f"no noise in {shares[0]:.1%} of the trials without the record and in {shares[1]:.1%} of those with it"
        )
        if empty is not None and all(map(_is_share, sides, shares, empty)):
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


def _no_noise(outputs: Array) -> str:
    """What to say where no noise lies outside the span: whether there is none in it either."""
    different = len(different_rows(outputs)[0])
    if different <= 2:
        return "there is no noise"
    if REPEATS * different <= len(outputs):
        return f"there is no noise: {different:,} different releases in {len(outputs):,} trials"
    return "there is no noise where no record moves the release"


def _is_share(side: Noise, share: float, due: float) -> bool:
    """Whether trials come out as often as with this probability, within four standard errors and one trial."""
    trials = len(side.outputs)
    return abs(share - due) * trials <= 1 + 4 * math.sqrt(trials * due * (1 - due))


def with_noise(side: Noise) -> Noise:
    """The trials that have noise, where there are two or more."""
    kept = ~_is_silent(side)
    if kept.all() or np.count_nonzero(kept) < 2:
        return side
    rows = {name: getattr(side, name)[kept] for name in ("outputs", "along", "beside", "rest")}
    return dataclasses.replace(side, **rows)


def is_still(without: Noise, with_record: Noise) -> bool:
    """Whether nothing but rounding varies from trial to trial outside the span of the gradients, on either side."""
    sides = (without, with_record)
    return all(float(side.beside.std(axis=0).max()) <= ROUND_OFF * float(np.abs(side.outputs).max()) for side in sides)


def is_coarse(without: Noise, with_record: Noise) -> bool:
    """Whether noise takes so few values, as integers do, that zeros and equal trials are nothing unusual."""
    sides = (without, with_record)
    rows = np.concatenate([side.outputs if side.rotated else side.beside for side in sides])
    values = len(np.unique(rows))
    if values > COARSE or FEW_VALUES * values >= rows.size:
        return False
    # few values may also be one draw, again and again
    return len(different_rows(rows)[0]) > (1 - SELDOM) * len(rows) or chance_of_equals(rows) >= 1


def _silent_share(side: Noise) -> float:
    return float(np.mean(_is_silent(side)))


def _is_silent(side: Noise) -> Array:
    """Trials in which nothing but rounding lies outside the span of the gradients."""
    return np.abs(side.beside).max(axis=1) <= ROUND_OFF * np.abs(side.outputs).max(axis=1)


def bare(
    without: Noise, with_record: Noise, *, layout: Layout | None, continuous: bool = False, risk: float
) -> Diagnosis:
    """Whether coordinates have much less noise than others: variances against their mean outside the span.

    Or values that come again (``bare_values``), half of the risk each. Whatever the batch adds,
    ``(trials - 1) variance_j / s^2`` is at least chi-square; the smallest pays for all. Called wrong only
    below a quarter of the deviation, where the shape of the noise hardly matters.
    """
    repeating = bare_values(without.outputs, with_record.outputs, layout=layout, continuous=continuous, risk=risk)
    if repeating is not None:
        return repeating
    sides = {"without the record": without, "with the record": with_record}
    found, smallest, least = {}, 1.0, math.inf
    for name, side in sides.items():
        reference = float(np.mean(side.beside.var(axis=0, ddof=1)))
        if reference <= (ROUND_OFF * float(np.abs(side.outputs).max())) ** 2:
            continue
        shares = side.outputs.var(axis=0, ddof=1, dtype=np.float64) / reference
        degrees = len(side.outputs) - 1
        p_values = 2 * len(shares) * chi2.cdf(degrees * shares, degrees)
        low = (p_values < risk / 2) & (shares < BARE**2)
        smallest, least = min(smallest, float(p_values.min())), min(least, float(shares.min()))
        if low.any():
            found[name] = (low, math.sqrt(float(shares[low].max())))
    share = math.sqrt(max(0.0, least)) if least < math.inf else 0.0
    measured = "no coordinate varies from trial to trial"
    if least < math.inf:
        measured = f"the smallest deviation of a coordinate is {share:.3g} of theirs"
    return answer(
        "bare",
        wrong=bool(found),
        measured=_bare(found, layout) if found else measured,
        p_value=min(1.0, 2 * smallest) if found or 2 * smallest >= risk else risk,
        risk=risk,
        assumes="independent trials",
        estimate=share,
    )


def _bare(found: dict[str, tuple[Array, float]], layout: Layout | None) -> str:
    masks = [mask for mask, _ in found.values()]
    both = len(masks) == 2 and np.array_equal(masks[0], masks[1])
    (name, (mask, largest)) = next(iter(found.items()))
    amount = "no noise" if largest < 1e-3 else f"at most {at_most(largest, '.2g')} of the others' noise"
    return f"{amount} on {places(mask, layout)}{'' if both else f', {name}'}"


def bare_values(
    first: Array, second: Array, *, layout: Layout | None, continuous: bool = False, risk: float
) -> Diagnosis | None:
    """Coordinates of few values, the record's own among them, beside others that never take one twice; or None.

    Sums of batches come again where nothing hides them, however much they vary. A value that one side alone takes is
    as likely to be the other's where the record changes nothing: a sign test of these at half of the risk, shared by
    the coordinates that both sides together choose. Where ``continuous`` noise is stated no value comes again, unless
    it is drawn on a fine grid.
    """
    count = min(len(first), len(second))
    sides = [np.asarray(side)[:count].reshape(count, -1) for side in (first, second)]
    some = np.sort(np.concatenate([side[:SOME] for side in sides]).astype(np.float32), axis=0)
    again = np.any(some[1:] == some[:-1], axis=0)
    if not again.any() or 2 * np.count_nonzero(again) > len(again):
        return None
    few = [place for place in np.flatnonzero(again) if all(_takes_few_values(side[:, place]) for side in sides)]
    p_values = np.ones(len(again))
    for place in few:
        without, with_record = (np.unique(side[:, place].astype(np.float32)) for side in sides)
        alone = [len(np.setdiff1d(without, with_record)), len(np.setdiff1d(with_record, without))]
        both = np.union1d(without, with_record)
        surely = continuous and not (len(both) > COARSE and on_a_grid(both))
        chance = 0.0 if surely else float(binom.sf(max(alone) - 1, sum(alone), 0.5))
        p_values[place] = min(1.0, 4 * len(few) * chance)
    found = p_values < risk
    if not found.any():
        return None
    place = int(np.flatnonzero(found)[0])
    counts = [f"{len(np.unique(side[:, place].astype(np.float32))):,}" for side in sides]
    where = places(found, layout)
    example = "it takes" if found.sum() == 1 else f"coordinate {place} takes"
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
    """Whether nearly all trials repeat another's value, where float32 has room for each to have its own."""
    values = column.astype(np.float32)
    room = float(np.ptp(values)) / float(np.spacing(np.abs(values).max()))
    once = np.count_nonzero(np.unique(values, return_counts=True)[1] == 1)
    return bool(once < ONCE * len(values) and room > ROOM * len(values))


def repeated(without: Noise, with_record: Noise, *, risk: float) -> Diagnosis:
    """Whether noise of a trial is used again: equal in two trials, or correlated in successive ones.

    Two trials agree in one coordinate within h deviations with probability at most .6 h (a normal density of
    differences is below .3), and in all of them more rarely: the number of pairs that do is at most about Poisson with
    mean ``.3 n^2 h``, even where all coordinates are one. Successive trials: ``order_tells``.
    """
    noisy = [side.beside[~_is_silent(side)] for side in (without, with_record)]
    rows = np.concatenate(noisy)
    draws, own = _draws(rows), [len(_draws(side)) for side in noisy]
    distinct = len(draws)
    p_equal = float(poisson.sf(len(rows) - distinct - 1, 0.3 * len(rows) ** 2 * SAME))
    p = min(1.0, 2 * min(p_equal, order_tells(without.beside, with_record.beside)[1]))
    wrong = p < risk
    measured, causes = "no trial repeats the noise of another", ()
    if wrong and p_equal < risk / 2:
        told = "one draw" if distinct == 1 else f"{distinct:,} different draws"
        measured, causes = f"trials repeat: {told} of noise in {len(rows):,} trials", ("seed_again",)
        if own == [1, 1] and distinct == 2:
            measured, causes = f"{measured}, one for each dataset", ("seed_again", "seed_of_dataset")
        # a rotation hides the grid that coarse noise has, and a few seeds would repeat most trials
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
    """How much trials are like the next rather than like a later one, in deviations (below 0: more), and its p-value.

    Trials in any order are alike: of three, exchanging the last two changes the sign of the difference of the squared
    distances from the first, so ``P(|sum| > z root(sum of squares)) <= 2 exp(-z^2 / 2)``, whatever the law.
    [hoeffding1963] The last third of a side has the later ones, so that a total that drifts away shows.
    """
    spread = np.concatenate(sides).std(axis=0)
    farther = np.concatenate([_farther(side / np.where(spread > 0, spread, 1)) for side in sides])
    z = float(farther.sum()) / max(math.sqrt(float(np.sum(farther**2))), 1e-300)
    return z, min(1.0, 2 * math.exp(-(z**2) / 2))


def _farther(rows: Array) -> Array:
    """By how much the next trial is farther from a trial than one of the last third."""
    third = len(rows) // 3
    one, following, later = rows[: 2 * third : 2], rows[1 : 2 * third : 2], rows[2 * third : 3 * third]
    return np.sum((one - following) ** 2, axis=1) - np.sum((one - later) ** 2, axis=1)


def chance_of_equals(rows: Array) -> float:
    """At most how many pairs of trials coarse noise makes equal, were its coordinates independent draws.

    Of coordinates that are made of one another, as where a number is released twice, as many as there are draws.
    """
    different = rows[different_rows(rows)[0]]
    pairs = len(different) * (len(different) - 1) / 2
    if pairs == 0:
        # one draw in all trials: as many values as coordinates say that it is not coarse
        return 1.0 if len(np.unique(rows[0])) < min(rows.shape[1], FEW_VALUES) else 0.0
    equal = [float(np.sum((counts := np.unique(own, return_counts=True)[1]) * (counts - 1) / 2)) for own in different.T]
    equal = sorted(equal, reverse=True)[: _independent(different)]
    each = float(np.sum(np.log(np.maximum(equal, 1.0) / pairs)))
    # a product of chances is at most that of their mean, which few draws tell by all coordinates together
    mean = (sum(equal) + ALL_DIFFERENT) / (pairs * len(equal))
    return len(rows) ** 2 / 2 * math.exp(min(each, len(equal) * math.log(min(mean, 1.0))))


def _independent(rows: Array) -> int:
    """How many coordinates are not made of others, as their sums or in their order; all where so many are not."""
    few = rows[: 2 * MOST_TOLD, :MOST_TOLD].astype(np.float64)
    orders = np.argsort(np.argsort(few, axis=0), axis=0)
    ranks = [np.linalg.matrix_rank(_standard(own), rtol=MADE_OF) for own in (few, orders)]
    most = min(len(few) - 1, few.shape[1])
    return rows.shape[1] if min(ranks) >= most else max(1, min(ranks))


def _standard(rows: Array) -> Array:
    centred = rows - rows.mean(axis=0)
    return centred / np.maximum(centred.std(axis=0), 1e-300)


def _draws(rows: Array) -> Array:
    """How often each draw comes, rows that agree within SAME deviations being one: in order of the first column."""
    if len(rows) < 2:
        return np.ones(len(rows), int)
    scale = SAME * max(float(np.sqrt(np.mean(rows**2))), 1e-300)
    ordered = rows[np.lexsort(np.round(rows[:, :2].T[::-1] / scale))]
    others = np.abs(np.diff(ordered, axis=0)).max(axis=1) > scale
    return np.diff(np.flatnonzero(np.concatenate([[True], others, [True]])))


def equally_likely(counts: Array) -> bool:
    """Whether what comes so often may be equally likely draws, which few seeds give and coarse noise does not."""
    trials, pairs = int(counts.sum()), float(np.sum(counts * (counts - 1) / 2))
    likely = trials * (trials - 1) / (2 * pairs)
    return len(counts) <= UNEVEN * likely * (1 - (1 - 1 / likely) ** trials)
