"""Releases that move further with every larger record."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.clipped_parts import given_all, wrongly_measured
from audit.diagnosis.explain.jaxprs.facts import Release, Weight
from audit.diagnosis.explain.jaxprs.group_clipping import GROWN, SCALES, clipped_alone
from audit.diagnosis.explain.jaxprs.runs import Program, Run, listed
from audit.diagnosis.explain.places import Place, handed_out, spelled
from audit.diagnosis.explain.sentences import after_sum, clipped_sum_changed, found, led
from audit.diagnosis.explain.wrong_lengths import SLACK


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
