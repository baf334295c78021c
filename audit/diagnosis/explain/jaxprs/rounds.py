"""The rounds of a run, what each of them cost, and those whose noise is too small, with the line that is the cause."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain import sentences
from audit.diagnosis.explain.dispatch import Stated, implied_bound
from audit.diagnosis.explain.findings import LARGEST_ERROR, Finding, Round
from audit.diagnosis.explain.handed_over import maker
from audit.diagnosis.explain.jaxprs.clipping import ALIKE, made_longer, pads, parts_apart, wrongly_measured
from audit.diagnosis.explain.jaxprs.facts import Release, Weight
from audit.diagnosis.explain.jaxprs.runs import Program, Run
from audit.diagnosis.explain.missing_noise import no_number, short_of_noise
from audit.diagnosis.explain.numbers_given import BOUNDS, holder, not_handed, own_bound, went_wrong
from audit.diagnosis.explain.places import NOWHERE, Place, Reader, among_records, called_in_turn, spelled

ROUNDS_TOGETHER = "the rounds of the transcript cannot be told apart"
SLACK = 0.02
"""By which a multiplier may fall short of the stated one: rounding, and the first digits of a stated number."""
GUESSED_SLACK = 0.06
ERRORS = 4.0
"""Standard errors by which an estimated deviation must fall short."""
FEWEST = 24
"""Numbers of an unknown law that are all zero before its deviation is called zero, too."""
TOO_FEW = "the few numbers of its noise are all zero"


def by_round(program: Program, run: Run) -> dict[tuple[Any, ...], list[Release]]:
    """The releases of a run, by the round that they belong to."""
    rounds: dict[tuple[Any, ...], list[Release]] = {}
    meetings = run.lockstep.meetings
    for release in meetings.together.charged(meetings.releases):
        rounds.setdefault(release.round, []).append(release)
    # a step of a loop that alone has releases is one round: the others have no noise
    together = len(rounds) == 1 < program.rounds and all(len(name) == 1 for name in rounds)
    return _unrolled(program.rounds, rounds) if together else rounds


def first_round(program: Program, run: Run) -> list[Release]:
    """The releases of the first round."""
    if not run.ended:
        return next(iter(by_round(program, run).values()), [])
    releases = run.lockstep.meetings.releases
    return [release for release in releases if release.round == releases[0].round]


def _unrolled(number: int, rounds: dict[tuple[Any, ...], list[Release]]) -> dict[tuple[Any, ...], list[Release]]:
    """The rounds of a loop in Python whose steps do not read one another; their releases come in the loop's order."""
    (name, releases), size = next(iter(rounds.items())), sum(map(len, rounds.values())) // number
    parts = [releases[start : start + size] for start in range(0, size * number, size)] if size else []
    shapes = {tuple(release.moved.shape for release in part) for part in parts}
    if size * number == len(releases) and len(shapes) == 1:
        return {(*name, step): part for step, part in enumerate(parts)}
    if all(release.moved.shape[:1] == (number,) and not release.blocks for release in releases):
        # noise was added to all rounds at once
        return {(*name, step): [_row(release, step) for release in releases] for step in range(number)}
    return {name: [dataclasses.replace(one, unknown=one.unknown or ROUNDS_TOGETHER) for one in releases]}


def _row(release: Release, step: int) -> Release:
    return dataclasses.replace(release, moved=release.moved[step], variance=release.variance[step], terms=None)


def is_judged(releases: Sequence[Release]) -> bool:
    """Whether what a round costs is known."""
    return not any(release.unknown for release in releases)


def cost(releases: Sequence[Release]) -> float:
    """Of a round: one over its multiplier."""
    return float(np.sqrt(sum(release.cost**2 for release in releases)))


def sensitivity(releases: Sequence[Release]) -> float:
    """How far the record moves all of a round."""
    return float(np.sqrt(sum(np.sum(np.square(one.moved)) for one in releases)))


def deviation(releases: Sequence[Release]) -> float:
    """Of one coordinate of a round's noise; root mean square where coordinates differ."""
    return float(np.sqrt(np.mean(np.concatenate([one.variance.ravel() for one in releases]))))


def rounds_told(program: Program, runs: Sequence[Run]) -> tuple[Round, ...]:
    """Of every round the run in which it cost most, among those in which all of it was followed if there are any."""
    worst: dict[tuple[Any, ...], list[Release]] = {}

    def rank(releases: Sequence[Release]) -> tuple[bool, float]:
        return is_judged(releases), cost(releases)

    for run in runs:
        for number, releases in by_round(program, run).items():
            if number not in worst or rank(releases) > rank(worst[number]):
                worst[number] = releases
    told = []
    for number, releases in enumerate(worst.values(), start=1):
        top, paid = max(releases, key=lambda release: release.cost), cost(releases)
        far, multiplier = sensitivity(releases), 1 / paid if paid else float("inf")
        told.append(
            Round(
                number=number,
                sensitivity=far,
                noise_deviation=far * multiplier if far and paid else deviation(releases),
                multiplier=multiplier,
                lines=(*top.at.own[:1], *top.at.library),
                exact=all(one.exact for one in releases),
                error=max(1 / np.sqrt(2 * one.drawn) if one.drawn else 0.0 for one in releases),
                judged=is_judged(releases),
            )
        )
    return tuple(told)


def pool(runs: Sequence[Sequence[Release]]) -> None:
    """Deviations that no equation tells are estimated from the draws of all runs together."""
    if len({len(releases) for releases in runs}) != 1:
        return
    for same in zip(*runs, strict=True):
        for release, told in zip(same, [_pooled(release, same) for release in same], strict=True):
            release.variance, release.drawn, release.unknown = told.variance, told.drawn, told.unknown


def _pooled(release: Release, same: Sequence[Release]) -> Release:
    """One release with the deviation that all runs tell together, if no equation does."""
    if any(one.exact for one in same):
        return release
    variance, drawn = np.mean([np.mean(one.variance) for one in same]), sum(one.drawn for one in same)
    unknown = release.unknown or (TOO_FEW if variance == 0 and drawn < FEWEST else None)
    return dataclasses.replace(release, variance=np.full(release.moved.shape, variance), drawn=drawn, unknown=unknown)


def unsure(runs: Sequence[Sequence[Release]], due: float | None) -> bool:
    """Whether the deviation of some round is not told yet, or seems too small, but not by enough standard errors."""
    rounds: dict[Any, list[Release]] = {}
    for same in zip(*runs, strict=True) if due and len(set(map(len, runs))) == 1 else ():
        top = max(same, key=lambda release: float(np.linalg.norm(release.moved)))
        rounds.setdefault(top.round, []).append(_pooled(top, same))
    if any(release.unknown == TOO_FEW for own in rounds.values() for release in own):
        return True
    judged = [own for own in rounds.values() if not any(release.unknown for release in own)]
    if any(0 < 2 * LARGEST_ERROR**2 * release.drawn < 1 for own in judged for release in own):
        return True
    return any(falls_short(own, due, errors=1.0) and not falls_short(own, due) for own in judged)


def falls_short(releases: Sequence[Release], due: float | None, errors: float = ERRORS) -> bool:
    """Whether the noise of a round is too little, by so many standard errors where draws tell its deviation."""
    slack = SLACK if all(release.exact for release in releases) else GUESSED_SLACK
    costs = [one.cost / (_most_too_small(one.drawn, errors) if one.drawn else 1.0) for one in releases]
    return bool(due and np.linalg.norm(costs) * due > 1 + slack)


def _most_too_small(drawn: float, errors: float) -> float:
    """How many times too small an estimate from so many numbers may be: a quantile of chi, by Wilson and Hilferty."""
    root = 1 - 2 / (9 * drawn) - errors * np.sqrt(2 / (9 * drawn))
    return root**-1.5 if root > 0 else math.inf


APART = 1e-3
"""Relative difference of lengths that no chance makes alike."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cause:
    """Why noise is too small: the line to look at first, and what its sentence says of it."""

    lead: Place
    more: str = ""
    """A clause about what the record moves."""
    known: float | None = None
    """The right deviation, where the function of that line is given it or its factors."""
    after: str = ""
    """One more sentence."""
    weight: Weight | None = None
    """Where the record is clipped, if that is the fault."""


def too_little_noise(program: Program, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That the noise of some round is too small for the stated multiplier."""
    multiplier, due = stated.noise_multiplier, stated.due
    if multiplier is None or due is None:
        return []
    worst: tuple[float, list[Release], set[Reader]] = (0.0, [], set())
    for run in runs:
        for releases in by_round(program, run).values():
            if is_judged(releases) and cost(releases) > worst[0] and falls_short(releases, due):
                worst = cost(releases), releases, run.lockstep.meetings.readers
    most_cost, releases, readers = worst
    if not releases:
        return []
    top = max(releases, key=lambda release: release.cost)
    origin = top.origin if isinstance(top.origin, Place) else top.at
    if top.lost is not None:
        return [no_number(f"what is released at {spelled(top.at)}", origin=origin, made=top.lost)]
    least, most = (side(deviation([release]) for release in releases) for side in (min, max))
    uneven = most > (1 + SLACK) * least
    carried = top.carried is not None and _kept_before(program, runs, due)
    if late := [] if carried else _clipped_late(program, releases, stated, readers):
        return late
    cause = _earlier(program, top, readers) if carried else _cause(program, releases, readers, stated, uneven=uneven)
    noisy = top.variance[top.variance > 0]
    bare = (top.variance.size - noisy.size, top.variance.size) if 0 < noisy.size < top.variance.size else None
    moved, summed = sensitivity(releases), _summed(releases)
    return [
        sentences.too_little(
            known=cause.known,
            after=cause.after,
            lead=cause.lead,
            bare=bare,
            between=(least, most) if uneven else None,
            cancels=top.cost > (1 + SLACK) * top.cost_apart,
            summed=top.summed or origin is top.at,
            changed=bool(summed) and abs(moved - summed) > SLACK * moved,
            beside=[one for one in (cause.weight and cause.weight.at, top.carried) if one is not None],
            more=cause.more,
            at=top.at,
            draw=top.draw,
            origin=origin,
            sensitivity=moved,
            deviation=deviation([top] if uneven else releases) if bare is None else float(np.sqrt(np.mean(noisy))),
            multiplier=1 / most_cost,
            stated=multiplier,
            due=sentences.due_on_the_pair(multiplier, due),
        )
    ]


def _earlier(program: Program, top: Release, readers: set[Reader]) -> Cause:
    """Sums of earlier rounds without their noise.

    An optimiser that adds up and then adds noise, both in one call or by one line that calls its parts in turn, is
    wrong where it was put together.
    """
    carried = top.carried or NOWHERE
    lead = among_records(carried, readers)
    more = sentences.earlier_rounds(carried, lead)
    part = called_in_turn(carried, top.at)
    made = None if part is NOWHERE else maker(program.trace_again, part)
    put = "" if made is None else f"; {spelled(made)} puts that before the noise"
    return Cause(lead=made or lead, more=f"{more}{put}")


def _cause(
    program: Program, releases: Sequence[Release], readers: set[Reader], stated: Stated, *, uneven: bool
) -> Cause:
    """A record that moves more than it may, or else noise that is too small."""
    top = max(releases, key=lambda release: release.cost)
    measured = {"deviation": deviation(releases), "sensitivity": sensitivity(releases)}
    own = None if uneven else own_bound(program.trace_again, stated, **measured)
    clip = stated.clip if own is None else own
    exceeds = _exceeds(releases, program, clip)
    longest = max(deviation([release]) for release in releases)
    bound = own or implied_bound(stated, None if uneven else longest)
    apart, parts = parts_apart(releases, bound, exceeds, code=program.trace_again)
    far = sentences.too_far(clip, own=own is not None) if exceeds else ""
    within = exceeds and _each_within(releases, clip)
    if len(releases) > 1 and all(_is_one_sum(one, releases[0]) for one in releases[1:]):
        apart = sum(len(one.covering) for one in releases) == len(
            frozenset().union(*(one.covering for one in releases))
        )
        more = f", since it is released {len(releases)} times{', each with noise of its own' if apart else ''}"
        return Cause(lead=top.at, more=more, weight=top.weighted)
    if within and top.doubled is not None:
        return Cause(lead=top.doubled, more=f"{far}{sentences.held_again(top.doubled)}", weight=top.weighted)
    if (again := made_longer(releases, (stated.due or 1.0) * program.reach)) is not None:
        return Cause(lead=again[0], more=f"{far}{again[1]}", weight=top.weighted)
    if within and top.filled is not None:
        return Cause(lead=top.kept or top.filled, more=f"{far}{pads(top.filled, top.kept)}")
    if exceeds or apart:
        weight = top.weighted
        origin = top.origin if isinstance(top.origin, Place) else top.at
        where = "" if weight is None else f" ({spelled(weight.at)})"
        more, lead = f"{far}{where if exceeds else ''}{apart}", parts or (origin if weight is None else weight.factor)
        if (wrong := wrongly_measured(releases, clip, code=program.trace_again)) is not None:
            lead, more = wrong[0], more + wrong[1]
        if weight is not None and weight.by < 1 and lead.nearest in (weight.factor.nearest, weight.at.nearest):
            passed = not_handed(program.trace_again, lead, sensitivity(releases) / program.reach, named=BOUNDS)
            if passed != lead:
                lead, more = passed, f"{more} ({spelled(passed)} hands that bound over)"
                weight = dataclasses.replace(weight, at=weight.factor)
        return Cause(lead=lead, more=more, weight=weight)
    moved, summed = sensitivity(releases), _summed(releases)
    # a sum that is divided before its noise needs less of it
    right = (stated.noise_multiplier or 1.0) * (
        moved if stated.clip is None else stated.clip * moved / (summed or moved)
    )
    last = top.resized
    if last is not None and last.again and abs(last.before - right) <= SLACK * right and abs(last.times or 0) < 1:
        # before that it was as large as it should be
        lead = not_handed(program.trace_again, last.at, last.times) if last.times else last.at
        does = f"multiplies it by {last.times:.4g}" if last.times else "changes it"
        return Cause(lead=lead, after=f" It has the right one, {right:.4g}, until {spelled(last.at)} {does}.")
    places = [top.draw if last is None else last.at, top.draw, top.at]
    for own in dict.fromkeys((right, (stated.due or 1.0) * moved)):
        inner = went_wrong(program.trace_again, places, own, deviation([top]))
        if inner is not None:
            return Cause(lead=inner, known=own)
    made = holder(program.trace_again, top.draw, deviation([top]))
    scaled = last.at if last is not None and last.times else top.at
    lead = among_records(scaled, readers)
    if made is None and lead == scaled:
        # a loop over records hides who holds them
        lead = not_handed(program.trace_again, scaled, deviation([top]))
    handed = made is not None and made.nearest not in top.draw.own
    after = f" {spelled(made)} hands this deviation over." if handed and made is not None else ""
    return Cause(lead=made or lead, after=after)


def _is_one_sum(one: Release, other: Release) -> bool:
    """Whether the same sum was released before: it moves as far in every coordinate, and was made at one line."""
    same = one.origin == other.origin and one.at == other.at and one.moved.shape == other.moved.shape
    return same and np.allclose(one.moved, other.moved, rtol=ALIKE, atol=0) and bool(np.any(one.moved))


def _kept_before(program: Program, runs: Sequence[Run], due: float) -> bool:
    """Whether rounds keep the promise in which the record is not both in the batch and in what earlier ones left."""
    rounds = [releases for run in runs for releases in by_round(program, run).values()]
    fresh = [own for own in rounds if cost(own) > 0 and not any(release.joined_again for release in own)]
    return bool(fresh) and not any(falls_short(own, due) for own in fresh)


def _clipped_late(program: Program, releases: Sequence[Release], stated: Stated, readers: set[Reader]) -> list[Finding]:
    """That the record moves a sum by more than it may, where nothing has clipped it and the sum is changed later on."""
    top = max(releases, key=lambda release: release.cost)
    other = (top.carried, top.doubled, top.filled)
    cut = any(weight.by < 1 - SLACK for release in releases for weight in release.weights)
    moved, summed = sensitivity(releases), _summed(releases)
    if top.nonlinear is None or cut or any(other) or abs(moved - summed) <= SLACK * moved:
        return []
    if stated.clip is None or not isinstance(top.origin, Place) or not _exceeds(releases, program, stated.clip):
        return []
    bounds = summed, program.reach * stated.clip
    return [sentences.after_sum(at=top.nonlinear, origin=top.origin, readers=readers, grows=False, bounds=bounds)]


def _summed(releases: Sequence[Release]) -> float:
    """How far the record moves the sums over records that a round is made of; 0 where that is not known."""
    moved = [release.summed_by for release in releases if release.cost]
    return float(np.linalg.norm(moved)) if all(moved) else 0.0


def _exceeds(releases: Sequence[Release], program: Program, clip: float | None) -> bool:
    """Whether the record moves a sum over records by more than the clipping norm, and not only what is made of it."""
    if clip is None:
        return False
    moved, summed = sensitivity(releases), _summed(releases)
    return min(moved, summed or moved) > program.reach * clip * (1 + SLACK)


def _each_within(releases: Sequence[Release], clip: float | None) -> bool:
    """Whether one copy of the record, as far as it was multiplied by a number of its own, is within the bound."""
    lengths = [weight.after for release in releases if release.cost for weight in release.weights]
    return clip is None or float(np.linalg.norm(lengths)) <= clip * (1 + SLACK)


def short_leaves(rounds: Iterable[Sequence[Release]], due: float | None) -> list[Finding]:
    """Leaves whose noise is less than is due to a record whose whole gradient lies in them.

    Leaves that are multiplied by one number, which cuts the record, are clipped together: one of them alone may be as
    long as all of them are now. Leaves with bounds of their own may have noise of their own.
    """
    if due is None:
        return []
    found: dict[Place, Finding] = {}
    for releases in rounds:
        if not _clipped_together(releases):
            continue
        length = float(np.sqrt(sum(np.sum(np.square(release.moved)) for release in releases)))
        deviations = [float(np.sqrt(np.min(release.variance))) for release in releases]
        if max(deviations) * (1 + SLACK) < due * length:
            # all of them are short: nothing is said of one
            continue
        for release, least in zip(releases, deviations, strict=True):
            if least * (1 + SLACK) < due * length:
                words: dict[str, Any] = {"deviation": least, "others": max(deviations), "length": length, "due": due}
                told = short_of_noise(release.output, at=release.at, draw=release.draw, **words)
                found.setdefault(release.at, told)
    return list(found.values())


def _clipped_together(releases: Sequence[Release]) -> bool:
    weights = [release.weighted for release in releases]
    if len(releases) < 2 or not all(release.exact and not release.unknown for release in releases):
        return False
    leaves = {release.output for release in releases}
    if any(weight is None for weight in weights) or "" in leaves or len(leaves) < len(releases):
        # what is released in several steps has the units of its step
        return False
    by = [weight.by for weight in weights if weight is not None]
    before = [weight.before for weight in weights if weight is not None]
    cuts = 0 < max(by) < 1 - APART
    return cuts and bool(np.ptp(by) <= ALIKE * max(by) and np.ptp(before) > APART * max(before))
