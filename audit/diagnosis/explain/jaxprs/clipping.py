"""Records whose parts are clipped one by one, or wrongly, or not at all: larger ones move releases further."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.facts import Release, Weight
from audit.diagnosis.explain.jaxprs.runs import Program, Run, listed
from audit.diagnosis.explain.places import Frame, Place, function_around, handed_out, spelled, taken_apart
from audit.diagnosis.explain.sentences import after_sum, clipped_apart, clipped_sum_changed, found, led
from audit.diagnosis.explain.watched_code import tell_calls
from audit.diagnosis.explain.wrong_lengths import SLACK, mismeasured, near

SCALES = (50.0, 2500.0)
"""How much larger the record is made: what is clipped moves as far at both."""
GROWN = 3.0
"""Growth between the two scales that only an unbounded record shows."""
ALIKE = 1e-5
"""Relative difference of factors that are one number, computed leaf by leaf."""


def parts_apart(
    releases: Sequence[Release], bound: float | None, exceeds: bool, *, code: Callable[[], object]
) -> tuple[str, Place | None]:
    """That the record moves several parts, or coordinates, by the whole bound each, and the line that does it.

    Leaves that are multiplied by one number are one part. The line is None where no such numbers are known. Of a record
    that ``exceeds`` the stated bound it is enough that its parts have numbers of their own. ``code`` runs the user's
    Python once more.
    """
    entries = np.concatenate([np.abs(release.moved).ravel() for release in releases])
    most = float(entries.max())
    # multiplied by one number of its own, a record was not clipped coordinate by coordinate
    cut = any(one.weighted is not None and one.weighted.by < 1 - SLACK for one in releases)
    many = 1 if cut else int(np.sum(entries > (1 - SLACK) * most))
    parts = _parts(releases, bound)
    says = clipped_apart([length for length, _ in parts], most, many, bound=bound, slack=SLACK)
    made = [weight.factor for length, weight in parts if weight and bound and abs(length - bound) <= SLACK * bound]
    own = _numbers(weight for _, weight in parts if weight is not None)
    if exceeds and not says and len(own) > 1:
        made = [weight.factor for weight in own]
        says = f", in {len(made)} parts, each of them multiplied by a number of its own"
    cuts = dict.fromkeys(release.cut for release in releases)
    if says and len(made) < 2 and many > 1 and len(cuts) == 1 and (at := cuts.popitem()[0]) is not None:
        return f"{says} ({spelled(at)})", at
    if not says or len(made) < 2:
        return says, None
    at = not_a_part(code, taken_apart(made), [release.moved.size for release in releases])
    return f"{says} ({spelled(at)})", at


def _parts(releases: Sequence[Release], bound: float | None) -> list[tuple[float, Weight | None]]:
    """How far each part is moved, and by what it was multiplied.

    Two that are as long as one another have one number, too: together they are longer than the bound.
    """
    most = np.inf if bound is None else (1 + SLACK) * bound
    known: list[tuple[float, Weight]] = []
    rest: list[tuple[float, Weight | None]] = []
    for release in releases:
        moved = float(np.linalg.norm(release.moved))
        whole = float(np.linalg.norm([weight.after for weight in release.weights]))
        if not whole:
            rest.append((moved, None))
            continue
        for weight in release.weights:
            own = moved * weight.after / whole
            same = [
                place
                for place, (length, other) in enumerate(known)
                if abs(other.by - weight.by) <= ALIKE * weight.by and np.hypot(length, own) <= most
            ]
            if same:
                known[same[0]] = float(np.hypot(known[same[0]][0], own)), known[same[0]][1]
            else:
                known.append((own, weight))
    return [*known, *rest]


def _numbers(weights: Iterable[Weight]) -> list[Weight]:
    """One weight for every number: a tree that is multiplied by one number, leaf by leaf, has one."""
    found: list[Weight] = []
    for weight in weights:
        if not any(abs(weight.by - other.by) <= ALIKE * other.by for other in found):
            found.append(weight)
    return found


def wrongly_measured(
    releases: Sequence[Release], clip: float | None, *, code: Callable[[], object]
) -> tuple[Place, str] | None:
    """Where a record is measured wrongly by which all of it is clipped, and that as a clause.

    Where a helper measures all that it is given, it is the line that gives it a part. ``code`` runs the user's Python
    once more.
    """
    if any(release.doubled is not None for release in releases):
        # rows that stand there twice are clipped twice, and each is measured as a whole
        return None
    # one sum may be released twice
    weights = list(dict.fromkeys(weight for release in releases for weight in release.weights))
    numbers = weights[0].numbers if weights else ()
    if clip is None or not numbers or any(abs(one.by - weights[0].by) > ALIKE * weights[0].by for one in weights):
        return None
    whole = float(np.linalg.norm([one.before for one in weights]))
    if (part := _multiplied_in_part(releases, weights, whole)) is not None:
        return part
    wrong = mismeasured(numbers, weights[0].by, whole, clip)
    if wrong is None or not wrong.part:
        return None if wrong is None else (wrong.at, wrong.says)
    lead = given_all(code, wrong.at, sum(release.moved.size for release in releases))
    gives = "" if lead.nearest == wrong.at.nearest else f" ({spelled(lead)} gives it only a part)"
    return lead, f"{wrong.says}{gives}"


def _multiplied_in_part(
    releases: Sequence[Release], weights: Sequence[Weight], multiplied: float
) -> tuple[Place, str] | None:
    """Where a part of the record is summed as it is, beside what is clipped by the length of all of it: as a clause."""
    moved = sum(float(np.sum(np.square(release.moved))) for release in releases)
    rest = moved - sum(weight.after**2 for weight in weights)
    whole = float(np.sqrt(multiplied**2 + max(rest, 0.0)))
    lengths = [number.value for number in weights[0].numbers if near(number.value, whole)]
    if near(multiplied, whole) or not lengths:
        return None
    bare = [release.origin if not release.weights else release.unclipped for release in releases if release.cost]
    by = max(weights, key=lambda weight: weight.before).at
    lead = next((place for place in bare if isinstance(place, Place)), by)
    says = f", since {spelled(by)} multiplies only a part of it, of length {multiplied:.4g}, by a number made for all"
    sums = "" if lead.nearest == by.nearest else f"; {spelled(lead)} sums another part without that number"
    return lead, f"{says} of it, of length {lengths[-1]:.4g}{sums}"


def made_longer(releases: Sequence[Release], due: float) -> tuple[Place, str] | None:
    """Where a record is made longer after it was clipped to what the noise covers, and that as a clause."""
    top = max(releases, key=lambda release: release.cost)
    if top.longer is None or top.weighted is None or not all(release.weights for release in releases if release.cost):
        return None
    clipped = [[weight.after for weight in release.weights] for release in releases]
    cost = [np.linalg.norm(own) / np.sqrt(np.mean(one.variance)) for one, own in zip(releases, clipped, strict=True)]
    if np.linalg.norm(cost) * due > 1 + SLACK:
        return None
    whole = float(np.linalg.norm([own.after for own in {own for one in releases for own in one.weights}]))
    if top.filled is not None:
        return top.kept or top.filled, pads(top.filled, top.kept)
    longer, by = top.longer, top.weighted.at
    if longer.nearest == by.nearest and (called := handed_out(by, longer)).own:
        # one helper does both
        longer, by = called, handed_out(longer, by)
    passed = (place for place in (top.at, *top.way) if place.own != longer.own)
    if len(longer.own) > 1 and longer.nearest in {place.nearest for place in passed}:
        # a helper that the sum goes through elsewhere, too, as one that adds: who calls it adds the record again
        longer = Place(own=longer.own[1:])
    what = f"makes longer what {spelled(by)} clips to" if by.nearest != longer.nearest else "makes it longer than"
    return longer, f", since {spelled(longer)} {what} {whole:.4g}"


def pads(filled: Place, kept: Place | None) -> str:
    """That the record takes the place of padding that counts, by a mask that takes it if one does: a clause."""
    since = "" if kept is None else f", which the mask or weight of {spelled(kept)} takes"
    return f", since it takes the place of padding of {spelled(filled)} that counts in the sum{since}"


def given_all(code: Callable[[], object], place: Place, entries: int) -> Place:
    """The innermost line of a place whose function was given so many numbers in one of its arguments, or more.

    The place itself where there is no such function.
    """
    given = _given(code)
    return _innermost(place, lambda own: max(given[own]) >= entries)


def not_a_part(code: Callable[[], object], place: Place, parts: Sequence[int]) -> Place:
    """The innermost line of a place whose function was given all parts, of so many numbers each, or none of them."""
    given = _given(code)
    return _innermost(place, lambda own: max(given[own]) >= sum(parts) or given[own].isdisjoint(parts))


def _innermost(place: Place, fits: Callable[[Frame], bool]) -> Place:
    """From the first line on whose function fits; the place itself where there is none."""
    depths = (depth for depth, frame in enumerate(place.own) if fits(function_around(frame)))
    depth = next(depths, None)
    return place if depth is None else Place(own=place.own[depth:])


def _given(code: Callable[[], object]) -> dict[Frame, set[int]]:
    """How many numbers stood in the arguments of each function of the user's."""
    given: dict[Frame, set[int]] = collections.defaultdict(lambda: {0})

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            function = function_around((frame.f_code.co_filename, frame.f_code.co_firstlineno))
            given[function].update(map(_size, frame.f_locals.values()))

    tell_calls(code, watch)
    return given


def _size(value: Any) -> int:
    """Numbers in the arrays of a tree that JAX traces, or that it holds already."""
    if not isinstance(value, Tracer | jax.Array | dict | list | tuple):
        return 0
    return sum(leaf.size for leaf in jax.tree.leaves(value) if isinstance(leaf, Tracer | jax.Array))


def clipped_alone(small: Release, large: Release) -> bool:
    """Whether the record, multiplied by a number of its own, is no longer when it is larger: what grows is not it.

    A number of 1 has clipped nothing: then its gradient does not grow with it.
    """
    one, other = small.weighted, large.weighted
    if one is None or other is None or min(one.by, other.by) > 1 - SLACK:
        return False
    return other.after <= GROWN * one.after


def unbounded_releases(program: Program, plain: Run, grown: Sequence[Run], stated: Stated) -> list[Finding]:
    """Releases that move further with every larger record, and sums that do but are bounded after the sum.

    A gradient may vanish at one size of a record and not at a larger one, so each is compared with the record as it is,
    too, and what stays within the promise is bounded.
    """
    if len(grown) < len(SCALES):
        return []
    known, less, more = (run.lockstep.meetings.releases for run in (plain, *grown))
    if not len(known) == len(less) == len(more):
        return []
    allowed = (1 + SLACK) / stated.due if stated.due else 0.0
    usual = max((release.cost for release in known), default=0.0)
    after: dict[Place, Place] = {}
    scaled: dict[Place, Place] = {}
    bounded: list[tuple[Release, Release]] = []
    unbounded: dict[tuple[Place, Place], list[tuple[Release, Release]]] = {}
    for base, small, large in zip(known, less, more, strict=True):
        if small.unknown or not small.cost or not np.isfinite(large.cost):
            continue
        origin = small.origin if isinstance(small.origin, Place) else small.at
        if large.cost > max(GROWN * small.cost, GROWN * usual, allowed):
            unbounded.setdefault((origin, small.at), []).append((small, large))
            continue
        bounded.append((small, large))
        grows = large.summed_by > GROWN * max(small.summed_by, base.summed_by) > 0
        if small.nonlinear is not None and grows:
            # a sum of clipped records may be multiplied by a number that grows
            (scaled if clipped_alone(small, large) else after).setdefault(small.nonlinear, origin)
    readers = plain.lockstep.meetings.readers
    findings = [after_sum(at=at, origin=origin, readers=readers) for at, origin in after.items()]
    findings += [clipped_sum_changed(at=at, origin=origin) for at, origin in scaled.items()]
    for (origin, at), own in unbounded.items():
        rounds = {small.round for small, _ in own}
        # a record is as long as all of its parts
        whole = [one for one in less if one.round in rounds]
        measured = wrongly_measured(whole, stated.clip, code=program.trace_again)
        entries = sum(one.moved.size for one in whole) // len(rounds)
        giver = functools.partial(given_all, program.trace_again, entries=entries)
        findings.append(_not_clipped(own, bounded, measured, origin=origin, at=at, giver=giver))
    return findings


Grown = Sequence[tuple[Release, Release]]
"""Releases of a record that was made larger, and still larger."""


def _not_clipped(
    grown: Grown,
    bounded: Grown,
    wrong: tuple[Place, str] | None,
    *,
    origin: Place,
    at: Place,
    giver: Callable[[Place], Place],
) -> Finding:
    """Where the rest of the record is bounded, what bounds it has left these out: its line stands first.

    Or else the line that gives it no more than the rest: ``giver`` finds it.

    Where these are multiplied by a number that bounds nothing, the line that computes it does, or the one that is
    ``wrong`` about their length, which comes with a clause.
    """
    names = [one.output for one, _ in grown if one.output] if bounded else []
    leaves = f" for {listed(names)}" if names else ""
    times = max(large.cost / small.cost for small, large in grown)
    certain = all(one.summed for one, _ in grown)
    made = "summed" if certain else "made of the records"
    words = {"leaves": leaves, "scale": SCALES[1] / SCALES[0], "times": times, "made": made}
    clips = {weight.at for weight in _weights(bounded, bounds=True)}
    clips -= {one.weighted.at for one, _ in grown if one.weighted}
    if len(clips) == 1:
        (bounds,) = clips
        told = found(Kind.NOT_CLIPPED, clip=bounds, origin=origin, at=at, **words)
        told = dataclasses.replace(told, says=f"{told.says} The rest of the record is bounded at {spelled(bounds)}.")
        return led(told, giver(bounds))
    failed = {(weight.factor, weight.at) for weight in _weights(grown, bounds=False)}
    if len(failed) == 1:
        factor, weighed = next(iter(failed))
        told = found(Kind.NOT_CLIPPED, factor=factor, weighed=weighed, origin=origin, at=at, **words)
        where = f"The number of {spelled(factor)}, by which the record is multiplied at {spelled(weighed)},"
        since = "" if wrong is None else wrong[1]
        told = dataclasses.replace(told, says=f"{told.says} {where} does not bound it{since}.")
        return told if wrong is None else led(told, wrong[0])
    told = found(Kind.NOT_CLIPPED, origin=origin, at=at, **words)
    added = {one.unclipped for one, _ in grown}
    if len(added) == 1 and (joins := added.pop()) is not None and grown[0][0].weighted is not None:
        lead = handed_out(grown[0][0].weighted.at, joins)
        more = f"{spelled(lead if lead.own else joins)} adds something of the record to what is clipped."
        return led(dataclasses.replace(told, says=f"{told.says} {more}"), lead if lead.own else joins)
    return told if certain else led(told, at)


def _weights(grown: Grown, *, bounds: bool) -> list[Weight]:
    """Where these were multiplied by a number of the record's own that bounds it, or that does not."""
    own = [(small.weighted, large.weighted) for small, large in grown]
    both = [(small, large) for small, large in own if small is not None and large is not None]
    long = [(small, large) for small, large in both if large.before > GROWN * small.before > 0]
    return [small for small, large in long if (large.after <= GROWN * small.after) == bounds]
