"""The releases that break the claim, in the user's own coordinates: a value, or what lies beyond the other side's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from audit.bounds.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.rounding import at_most

FEWEST = 20
"""Trials of a side in each half."""
SIDES = ("without the record", "with it")
MOST_NUMBERS = 16
"""Numbers of a release that is compared as a whole."""
FEW = 16
"""Values of a number that are counted one by one."""
MOST_PLACES = 256
"""Numbers of a release that are looked at one by one."""
MOST_VALUES = 4
"""Releases that are counted together."""
NEVER = 0.02
"""Times the other side's trials below which an event hardly ever comes."""
REPEATED = 0.5
"""Share of trials that must repeat another's release for releases to be compared as they are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Event:
    """Something that a release can be, and how often it is."""

    words: str
    """What the release is, or does, then."""
    side: int
    """The one on which it comes more often."""
    counts: tuple[int, int]
    """In the halves that judge, of both sides."""
    discrete: bool


def telling_event(first: Array, second: Array, *, epsilon: float, delta: float, risk: float) -> Diagnosis | None:
    """One release, or one end of a coordinate, that comes more often on a side than a pure claim allows; or None.

    One half of each side's trials chooses it, by how often it comes there beyond ``exp(epsilon)`` times and ``delta``;
    the other half counts, by a Clopper-Pearson limit at half of the risk on each side. It says where the claim breaks
    and not why: the causes are those that such an event is typical of.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    if min(map(len, sides)) < 2 * FEWEST or not math.isfinite(epsilon):
        return None
    halves = [[side[start::2] for side in sides] for start in (0, 1)]
    found = _discrete(*halves, sides=sides, epsilon=epsilon) or _end(*halves)
    if found is None:
        return None
    trials = [len(side) for side in halves[1]]
    more, less = found.side, 1 - found.side
    low = clopper_pearson_lower(found.counts[more], trials[more], risk=risk / 2)
    high = clopper_pearson_upper(found.counts[less], trials[less], risk=risk / 2)
    allowed = math.exp(epsilon) * float(high) + delta
    if not float(low) > allowed:
        return None
    told = [f"{found.counts[side]:,} of {trials[side]:,} trials {SIDES[side]}" for side in (more, less)]
    never = found.counts[less] <= NEVER * found.counts[more]
    causes = ("cut", "less_noise") if never else ("less_noise", "cut")
    if found.discrete:
        causes = ("bare_part", "sharp_choice") if never else ("sharp_choice", "bare_part")
    beyond = f", and {delta:g} of all trials" if delta * trials[more] >= 1 else ""
    return answer(
        "telling_event",
        wrong=True,
        measured=f"{found.words} in {told[0]}, and in {told[1]}; the claim allows at most "
        f"{at_most(math.exp(epsilon), '.3g')} times as many{beyond}",
        causes=(*causes, OTHERS),
        p_value=risk,
        risk=risk,
        assumes="independent trials",
    )


def takes_few_values(first: Array, second: Array) -> bool:
    """Whether whole releases come again, or every number of them is one of few."""
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    return _repeats(sides) or all(len(np.unique(column)) <= FEW for column in np.concatenate(sides).T)


def _repeats(sides: Sequence[Array]) -> bool:
    """Whether most releases come again, so that each can be counted."""
    rows = np.concatenate(sides)
    if rows.shape[1] > MOST_NUMBERS:
        return False
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    return bool(np.sum(counts[counts > 1]) > REPEATED * len(rows))


def _discrete(
    chosen_by: Sequence[Array], judged_by: Sequence[Array], *, sides: Sequence[Array], epsilon: float
) -> _Event | None:
    """Of the whole release, and of each of its numbers that is one of few, what exceeds most; None where none is."""
    width = sides[0].shape[1]
    found = [_most(chosen_by, epsilon=epsilon)] if _repeats(sides) else []
    places: list[int | None] = [None] * len(found)
    for place in range(min(width, MOST_PLACES)) if width > 1 else ():
        own = [side[:, place, None] for side in chosen_by]
        if len(np.unique(np.concatenate(own))) <= FEW:
            found.append(_most(own, epsilon=epsilon))
            places.append(place)
    if not found:
        return None
    at = max(range(len(found)), key=lambda one: found[one][0])
    (_, side, rows), place = found[at], places[at]
    judged = judged_by if place is None else [own[:, place, None] for own in judged_by]
    counts = [int(np.any(np.all(own[:, None] == rows[None], axis=2), axis=1).sum()) for own in judged]
    listed = [f"{row[0]:.6g}" if len(row) == 1 else f"({', '.join(f'{number:.6g}' for number in row)})" for row in rows]
    what = "the release" if place is None else f"coordinate {place}"
    words = f"{what} is {listed[0]}" if len(listed) == 1 else f"{what} is one of {', '.join(listed)}"
    return _Event(words=words, side=side, counts=(counts[0], counts[1]), discrete=True)


def _most(chosen_by: Sequence[Array], *, epsilon: float) -> tuple[float, int, Array]:
    """The few values whose share of one side exceeds what the other's allows by most standard errors."""
    both = np.concatenate(chosen_by)
    values, places = np.unique(both, axis=0, return_inverse=True)
    places = places.ravel()
    sizes = [len(side) for side in chosen_by]
    shares = [
        np.bincount(own, minlength=len(values)) / size
        for own, size in zip(np.split(places, [sizes[0]]), sizes, strict=True)
    ]
    best: tuple[float, int, Array] = -math.inf, 0, values[:0]
    for side in (0, 1):
        own, other = shares[side], shares[1 - side]
        order = np.argsort(math.exp(epsilon) * other - own)[:MOST_VALUES]
        # a share that no trial had may be that of one trial
        error = [np.sqrt((np.cumsum(part[order]) + 1 / size) / size) for part, size in zip(shares, sizes, strict=True)]
        beyond = np.cumsum((own - math.exp(epsilon) * other)[order])
        beyond /= np.hypot(error[side], math.exp(epsilon) * error[1 - side])
        count = int(np.argmax(beyond)) + 1
        if beyond[count - 1] > best[0]:
            best = float(beyond[count - 1]), side, values[order[:count]]
    return best


def _end(chosen_by: Sequence[Array], judged_by: Sequence[Array]) -> _Event | None:
    """What lies beyond the other side's largest or smallest number, of the coordinate where it does so most often."""
    best: tuple[int, int, int, int] | None = None
    for side in (0, 1):
        own, other = chosen_by[side], chosen_by[1 - side]
        for sign in (1, -1):
            beyond = np.sum(sign * own > np.max(sign * other, axis=0), axis=0)
            place = int(np.argmax(beyond))
            if best is None or beyond[place] > best[0]:
                best = int(beyond[place]), side, sign, place
    assert best is not None
    most, side, sign, place = best
    if not most:
        return None
    end = float(np.max(sign * chosen_by[1 - side][:, place])) * sign
    counts = [int(np.sum(sign * own[:, place] > sign * end)) for own in judged_by]
    what = "the release" if chosen_by[0].shape[1] == 1 else f"coordinate {place}"
    words = f"{what} is {'above' if sign > 0 else 'below'} {end:.6g}"
    return _Event(words=words, side=side, counts=(counts[0], counts[1]), discrete=False)
