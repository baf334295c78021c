"""Rounds whose noise is too small, with the line that is the cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain import sentences
from audit.diagnosis.explain.dispatch import Stated, implied_bound
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.handed_over import maker
from audit.diagnosis.explain.jaxprs.clipping import ALIKE, made_longer, pads, parts_apart, wrongly_measured
from audit.diagnosis.explain.jaxprs.facts import Release, Weight
from audit.diagnosis.explain.jaxprs.rounds import (
    SLACK,
    by_round,
    cost,
    deviation,
    due_of,
    falls_short,
    is_judged,
    sensitivity,
)
from audit.diagnosis.explain.jaxprs.runs import Program, Run
from audit.diagnosis.explain.missing_noise import no_number, short_of_noise
from audit.diagnosis.explain.numbers_given import BOUNDS, holder, not_handed, own_bound, went_wrong
from audit.diagnosis.explain.places import NOWHERE, Place, Reader, among_records, called_in_turn, spelled

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
            if is_judged(releases) and cost(releases) > worst[0] and falls_short(releases, due_of(program, releases)):
                worst = cost(releases), releases, run.lockstep.meetings.readers
    most_cost, releases, readers = worst
    if not releases:
        return []
    if any(one.shares for one in releases) and stated.mu_of_all is not None:
        multiplier = due = due_of(program, releases) or due
    if not any(len(one.shares) > 1 or one.moved.ndim > 1 for one in releases):
        # coordinates of one vector alone share noise
        releases = [one.shares[0] if one.shares else one for one in releases]
    shared = any(one.shares for one in releases)
    top = max(releases, key=lambda release: release.cost)
    origin = top.origin if isinstance(top.origin, Place) else top.at
    if top.lost is not None:
        return [no_number(f"what is released at {spelled(top.at)}", origin=origin, made=top.lost)]
    least, most = (side(deviation([release]) for release in releases) for side in (min, max))
    uneven = most > (1 + SLACK) * least and not shared
    carried = top.carried is not None and _kept_before(program, runs, due)
    if late := [] if carried else _clipped_late(program, releases, stated, readers):
        return late
    if (null := _no_zero_out(program, top, due)) is not None:
        return [null]
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
            cancels=most_cost > (1 + SLACK) * float(np.linalg.norm([one.cost_apart for one in releases])),
            shared=shared,
            summed=top.summed or origin is top.at,
            changed=bool(summed) and abs(moved - summed) > SLACK * moved,
            beside=[one for one in (cause.weight and cause.weight.at, top.carried) if one is not None],
            more=cause.more,
            at=top.at,
            draw=top.draw,
            origin=origin,
            sensitivity=moved,
            deviation=moved / most_cost
            if shared
            else deviation([top] if uneven else releases)
            if bare is None
            else float(np.sqrt(np.mean(noisy))),
            multiplier=1 / most_cost,
            stated=multiplier,
            due=sentences.due_on_the_pair(multiplier, due),
        )
    ]


def _no_zero_out(program: Program, top: Release, due: float) -> Finding | None:
    """That the place of a zeroed record has a gradient, which is what moves a release too far: no pair for a claim."""
    weight, zeroed = top.weighted, program.counts[0] == program.counts[1] and program.reach == program.group
    if weight is None or not zeroed or top.longer is not None or weight.instead <= SLACK * weight.after:
        return None
    moved = sensitivity([top])
    if not (1 + SLACK) * weight.after < moved <= (1 + SLACK) * (weight.after + weight.instead):
        return None
    if top.cost * weight.after / moved * due > 1 + SLACK:
        # its noise is too little for the record alone, too
        return None
    return sentences.not_followed(
        f"this is no zero_out pair for this code: without the record its place still has a gradient, clipped at "
        f"{spelled(weight.at)} to {weight.instead:.4g}, so the sum moves by {moved:.4g} and not by {weight.after:.4g}. "
        "Build the pair with a null record whose gradient is zero (mechanisms.zero_out, null=), or use add_remove",
        weight.at,
    )


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
    if any(one.shares for one in releases):
        scaled = top.at if top.resized is None or not top.resized.times else top.resized.at
        return Cause(lead=among_records(scaled, readers))
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
    if exceeds and top.weighted is None and top.longer is not None:
        adds = f", since {spelled(top.longer)} adds up parts of the record that are as long as one another"
        return Cause(lead=top.longer, more=f"{far}{adds}")
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
    # truncated numbers, and others of one draw and no known law, are as large as that makes them
    scaled = top.draw if last is None and not top.exact and len(top.covering) == 1 else top.at
    scaled = last.at if last is not None and last.times else scaled
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
    leaves = {release.output for release in releases if not release.shares}
    if any(weight is None for weight in weights) or "" in leaves or len(leaves) < len(releases):
        # what is released in several steps has the units of its step
        return False
    by = [weight.by for weight in weights if weight is not None]
    before = [weight.before for weight in weights if weight is not None]
    cuts = 0 < max(by) < 1 - APART
    return cuts and bool(np.ptp(by) <= ALIKE * max(by) and np.ptp(before) > APART * max(before))
