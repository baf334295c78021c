"""Find the releases that break the claim, in the user's coordinates: a value, or what lies beyond the other side's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from audit.bounds.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper
from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.coordinate_names import one_place
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.rounding import at_most
from mechanisms.release import Layout

FEWEST = 20
"""Fewest trials of a side in each half."""
SIDES = ("without", "with")
MOST_NUMBERS = 16
"""Most numbers of a release that is compared as a whole."""
FEW = 16
"""Most values of a number that are counted one by one."""
MOST_PLACES = 256
"""Most numbers of a release that are examined one by one."""
MOST_VALUES = 4
"""Most releases that are counted together."""
MOST_LISTED = 4
"""Most numbers of such releases that are listed one by one."""
NEVER = 0.02
"""Share of the other side's count below which an event hardly ever happens."""
REPEATED = 0.5
"""Share of trials that must repeat another's release for whole releases to be compared."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Event:
    """An event that a release can be in, and how often it is."""

    words: str
    """What the release then is, in words."""
    side: int
    """Side on which it happens more often."""
    counts: tuple[int, int]
    """Counts on both sides, in the halves that judge."""
    discrete: bool


def telling_event(
    first: Array, second: Array, *, epsilon: float, delta: float, layout: Layout | None = None, risk: float
) -> Diagnosis | None:
    """Answer naming a release, or an end of a coordinate, that one side has more often than the claim allows; or None.

    One half of each side's trials chooses the event, by its excess over ``exp(epsilon)`` times the other side's and
    ``delta``; the other half counts it, with a Clopper-Pearson limit at half of the risk on each side. The answer says
    where the claim breaks, not why: its causes are those typical of such an event.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    if min(map(len, sides)) < 2 * FEWEST or not math.isfinite(epsilon):
        return None
    halves = [[side[start::2] for side in sides] for start in (0, 1)]
    event = _discrete(*halves, sides=sides, epsilon=epsilon, layout=layout) or _exceeding_end(*halves, layout=layout)
    if event is None:
        return None
    trials = [len(side) for side in halves[1]]
    more, less = event.side, 1 - event.side
    low = clopper_pearson_lower(event.counts[more], trials[more], risk=risk / 2)
    high = clopper_pearson_upper(event.counts[less], trials[less], risk=risk / 2)
    allowed = math.exp(epsilon) * float(high) + delta
    if not float(low) > allowed:
        return None
    often = f"{event.counts[more]:,} of {trials[more]:,} trials {SIDES[more]} the record"
    seldom = f"{event.counts[less]:,} of {trials[less]:,} {SIDES[less]} it"
    one_sided = event.counts[less] <= NEVER * event.counts[more]
    causes = ("cut", "less_noise") if one_sided else ("less_noise", "cut")
    if event.discrete:
        causes = ("bare_part", "sharp_choice") if one_sided else ("sharp_choice", "bare_part")
    beyond = f", and {delta:g} of all trials" if delta * trials[more] >= 1 else ""
    return answer(
        "telling_event",
        wrong=True,
        measured=f"{event.words} in {often} and in {seldom}; the claim allows at most "
        f"{at_most(math.exp(epsilon), '.3g')} times as many{beyond}",
        causes=(*causes, OTHERS),
        p_value=risk,
        risk=risk,
        assumes="independent trials",
    )


def takes_few_values(first: Array, second: Array) -> bool:
    """Whether whole releases repeat, or every number of them has few values."""
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    return _repeats(sides) or all(len(np.unique(column)) <= FEW for column in np.concatenate(sides).T)


def _repeats(sides: Sequence[Array]) -> bool:
    """Whether most releases repeat, so that each can be counted."""
    rows = np.concatenate(sides)
    if rows.shape[1] > MOST_NUMBERS:
        return False
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    return bool(np.sum(counts[counts > 1]) > REPEATED * len(rows))


def _discrete(
    chosen_by: Sequence[Array],
    judged_by: Sequence[Array],
    *,
    sides: Sequence[Array],
    epsilon: float,
    layout: Layout | None,
) -> _Event | None:
    """The most exceeding event among whole releases and numbers of few values; None if there are none."""
    width = sides[0].shape[1]
    found = [_most_exceeding(chosen_by, epsilon=epsilon)] if _repeats(sides) else []
    places: list[int | None] = [None] * len(found)
    for place in range(min(width, MOST_PLACES)) if width > 1 else ():
        columns = [side[:, place, None] for side in chosen_by]
        if len(np.unique(np.concatenate(columns))) <= FEW:
            found.append(_most_exceeding(columns, epsilon=epsilon))
            places.append(place)
    if not found:
        return None
    at = max(range(len(found)), key=lambda one: found[one][0])
    (_, side, rows), place = found[at], places[at]
    judged = judged_by if place is None else [columns[:, place, None] for columns in judged_by]
    counts = [int(np.any(np.all(columns[:, None] == rows[None], axis=2), axis=1).sum()) for columns in judged]
    words = f"{'the release' if place is None else one_place(place, layout)} is {_one_of(rows)}"
    return _Event(words=words, side=side, counts=(counts[0], counts[1]), discrete=True)


def _one_of(rows: Array) -> str:
    """One of these values, in words; of many numbers the first value stands for all."""
    listed = [f"{row[0]:.6g}" if len(row) == 1 else f"({', '.join(f'{number:.4g}' for number in row)})" for row in rows]
    if rows.size > MOST_LISTED and len(rows) > 1:
        return f"one of {len(rows)} values such as {listed[0]}"
    return " or ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))


def _most_exceeding(chosen_by: Sequence[Array], *, epsilon: float) -> tuple[float, int, Array]:
    """The few values whose share of one side exceeds what the other allows by most standard errors."""
    all_rows = np.concatenate(chosen_by)
    values, places = np.unique(all_rows, axis=0, return_inverse=True)
    places = places.ravel()
    sizes = [len(side) for side in chosen_by]
    shares = [
        np.bincount(on_side, minlength=len(values)) / size
        for on_side, size in zip(np.split(places, [sizes[0]]), sizes, strict=True)
    ]
    best: tuple[float, int, Array] = -math.inf, 0, values[:0]
    for side in (0, 1):
        share, other_share = shares[side], shares[1 - side]
        order = np.argsort(math.exp(epsilon) * other_share - share)[:MOST_VALUES]
        # a value that came once would not come again
        again = order[share[order] * sizes[side] > 1.5]
        order = again if again.size else order[:1]
        # count one trial more, so that a share of zero has an error too
        error = [np.sqrt((np.cumsum(part[order]) + 1 / size) / size) for part, size in zip(shares, sizes, strict=True)]
        beyond = np.cumsum((share - math.exp(epsilon) * other_share)[order])
        beyond /= np.hypot(error[side], math.exp(epsilon) * error[1 - side])
        count = int(np.argmax(beyond)) + 1
        if beyond[count - 1] > best[0]:
            best = float(beyond[count - 1]), side, values[order[:count]]
    return best


def _exceeding_end(chosen_by: Sequence[Array], judged_by: Sequence[Array], *, layout: Layout | None) -> _Event | None:
    """The coordinate that lies most often beyond the other side's largest or smallest number; None if none does."""
    best: tuple[int, int, int, int] | None = None
    for side in (0, 1):
        values, other_values = chosen_by[side], chosen_by[1 - side]
        for sign in (1, -1):
            beyond = np.sum(sign * values > np.max(sign * other_values, axis=0), axis=0)
            place = int(np.argmax(beyond))
            if best is None or beyond[place] > best[0]:
                best = int(beyond[place]), side, sign, place
    assert best is not None
    exceeding, side, sign, place = best
    if not exceeding:
        return None
    end = float(np.max(sign * chosen_by[1 - side][:, place])) * sign
    counts = [int(np.sum(sign * values[:, place] > sign * end)) for values in judged_by]
    subject = "the release" if chosen_by[0].shape[1] == 1 else one_place(place, layout)
    words = f"{subject} is {'above' if sign > 0 else 'below'} {end:.6g}"
    return _Event(words=words, side=side, counts=(counts[0], counts[1]), discrete=False)
