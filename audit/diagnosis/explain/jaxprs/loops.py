"""Loops of a program, step by step with both sides in lockstep."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from audit.diagnosis.explain.jaxprs import pairing
from audit.diagnosis.explain.jaxprs.equations import CannotFollowError, Within, inside, loop_parts, place_of
from audit.diagnosis.explain.jaxprs.keys import Keys
from audit.diagnosis.explain.jaxprs.noise_meets_data import Meetings
from audit.diagnosis.explain.jaxprs.packing import out_of_line
from audit.diagnosis.explain.jaxprs.value import Value, host
from audit.diagnosis.explain.places import Place
from mechanisms.adapters.watched_calls import replaced


class Lockstep(Protocol):
    """What a loop asks of the run that it is in."""

    counts: tuple[int, int]
    group: int
    path: tuple[int, ...]
    """Steps of the loops that are under way, the outermost first."""
    keys: Keys
    meetings: Meetings

    def run(
        self, a: Any, b: Any, ins: Sequence[Value], ins_b: Sequence[Value] | None = None, within: Within | None = None
    ) -> list[Value]:
        """The outputs of a jaxpr of both sides."""
        ...

    def apart(self, one: Any, other: Any, ins: Sequence[Value], ins_b: Sequence[Value], place: Place) -> list[Value]:
        """One equation run on each side by itself."""
        ...


def follow_while(
    lockstep: Lockstep, one: Any, other: Any, ins: list[Value], ins_b: list[Value], within: Within | None
) -> list[Value]:
    """A loop that runs until its test fails, which must not depend on the data."""
    params, params_b, place = one.params, other.params, place_of(one, within)
    # what its test holds, what its body holds, and what it carries
    (tests, held), (tests_b, held_b) = (
        (own["cond_nconsts"], own["cond_nconsts"] + own["body_nconsts"]) for own in (params, params_b)
    )
    carry = pairing.together(ins[held:], ins_b[held_b:], place)
    lockstep.keys.begins(carry, place)
    inner = inside(params["body_jaxpr"], one, within)
    outer, number = lockstep.path, 0
    try:
        while True:
            lockstep.path = (*outer, number)
            asked = [*ins[:tests], *carry], [*ins_b[:tests_b], *carry]
            (more,) = lockstep.run(params["cond_jaxpr"], params_b["cond_jaxpr"], *asked, inner)
            if more.differs:
                raise CannotFollowError("the number of steps of a loop depends on the data", place)
            if np.ndim(more.a):
                raise CannotFollowError("a loop under vmap, of which each part ends by itself, is not followed", place)
            if not bool(host(more.a)):
                return carry
            turns = [*ins[tests:held], *carry], [*ins_b[tests_b:held_b], *carry]
            carry = lockstep.run(params["body_jaxpr"], params_b["body_jaxpr"], *turns, inner)
            number += 1
    finally:
        lockstep.path = outer


def follow_scan(
    lockstep: Lockstep, one: Any, other: Any, ins: list[Value], ins_b: list[Value], within: Within | None
) -> list[Value]:
    """A loop over rows; the side with more records may take a step more."""
    params, params_b, place = one.params, other.params, place_of(one, within)
    (fixed, carried), (fixed_b, _) = loop_parts(one), loop_parts(other)
    length, length_b = params["length"], params_b["length"]
    consts, consts_b = ins[:fixed], ins_b[:fixed_b]
    moving = pairing.together(ins[fixed:], ins_b[fixed_b:], place)
    carry, columns = moving[:carried], moving[carried:]
    lockstep.keys.begins(carry, place)
    held = frozenset().union(*(value.drawn for value in consts if value.noise))
    held = lockstep.meetings.held | held.difference(*(value.drawn for value in carry))
    if out_of_line(columns):
        columns = [column if column.values else dataclasses.replace(column, uncoupled=place) for column in columns]
    inner = inside(params["jaxpr"], one, within)
    order = range(max(length, length_b))
    outer, rows = lockstep.path, []
    for step in reversed(order) if params["reverse"] else order:
        lockstep.path = (*outer, step)
        own = [pairing.row_of(value, step, length) for value in columns]
        # a step for each record has no padding beside it, whatever zeros the record has
        own = own if step < length or length == lockstep.counts[0] else pairing.beside_padding(own, lockstep.group)
        alone = lockstep.meetings.larger_alone or step >= length
        with replaced(lockstep.meetings, "larger_alone", alone), replaced(lockstep.meetings, "held", held):
            turns = [*consts, *carry, *own], [*consts_b, *carry, *own]
            outs = lockstep.run(params["jaxpr"], params_b["jaxpr"], *turns, inner)
        if step >= length:  # the other side keeps what it has
            stayed = [pairing.unmoved(old, new, place) for old, new in zip(carry, outs[:carried], strict=True)]
            outs = [*stayed, *outs[carried:]]
        carry = [value if value.alone is None else dataclasses.replace(value, alone=None) for value in outs[:carried]]
        rows = [*rows, outs[carried:]]
    lockstep.path = outer
    rows = rows[::-1] if params["reverse"] else rows
    records = any(value.tag is not None and value.tag.axis == 0 for value in columns)
    own = {"counts": lockstep.counts, "group": lockstep.group, "records": records}
    outs = []
    for column in zip(*rows, strict=True):
        outs.append(pairing.stacked_steps(column, (length, length_b), place, **own))
        outs[-1].open = lockstep.meetings.together.stacked(column, length)
    return [*carry, *outs] if rows else [*carry, *lockstep.apart(one, other, ins, ins_b, place)[carried:]]
