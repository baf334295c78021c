"""A program run on one dataset at a time: what all of its noise is there, however it was made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.equations import CannotFollowError
from audit.diagnosis.explain.jaxprs.interpreter import Lockstep
from audit.diagnosis.explain.jaxprs.value import Value, settled
from audit.diagnosis.explain.places import Place, spelled
from audit.diagnosis.explain.sentences import not_followed

TOLD_APART = 1e-4
"""Relative difference of variances that is no rounding."""
NOT_COMPARED = "scales noise by a number that depends on the number of records, and how large all of it is on each"
NOT_COMPARED += " dataset could not be told"


@dataclasses.dataclass(frozen=True)
class Alone:
    """The program of one side, which stands in for both sides of a run."""

    jaxpr: Any
    counts: tuple[int, int]
    group: int

    def run(self, arguments: Sequence[Any], labels: Sequence[Value]) -> tuple[Lockstep, list[Value]]:
        """The run, and its outputs, on arrays of which the ``labels`` say what they hold."""
        values = [
            Value(a=one, b=one, values=label.values, random=label.random)
            for one, label in zip(arguments, labels, strict=True)
        ]
        lockstep = Lockstep(counts=self.counts, group=self.group)
        return lockstep, lockstep.run(self.jaxpr, self.jaxpr, values)


def places_do_not_matter(smaller: Alone, arguments: Sequence[Value], outs: Sequence[Value]) -> bool:
    """Whether side a gives the same with its rows in the order that its program has them."""
    _, own = smaller.run([value.a for value in arguments], arguments)
    return all(settled(known.a, out.a, None)[0] is known.a for known, out in zip(own, outs, strict=True))


def of_another_size(
    finding: Finding, at: Place, sides: tuple[Alone, Alone], arguments: Sequence[Value]
) -> list[Finding]:
    """What is left of a finding that the number of records scales noise: nothing if the noise is as large in all.

    A sum of k numbers over the square root of k is as large whatever k is. ``at`` is where it is scaled.
    """
    noise = []
    for side, own in zip(sides, ([value.a for value in arguments], [value.b for value in arguments]), strict=True):
        try:
            lockstep, outs = side.run(own, arguments)
        except CannotFollowError:
            return [not_followed(f"{spelled(at)} {NOT_COMPARED}", at)]
        for out in outs:
            lockstep.meetings.together.see(out.open)
        noise.append((_variances(lockstep), _numbers(lockstep)))
    (variances, numbers), (variances_b, numbers_b) = noise
    if variances is None or variances_b is None or len(variances) != len(variances_b):
        return [finding] if numbers == numbers_b else [not_followed(f"{spelled(at)} {NOT_COMPARED}", at)]
    pairs = zip(variances, variances_b, strict=True)
    alike = all(np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=TOLD_APART, atol=0) for a, b in pairs)
    return [] if alike else [finding]


def _variances(lockstep: Lockstep) -> list[np.ndarray] | None:
    """Of all noise that covers each release; None where it is not known of every one."""
    meetings = lockstep.meetings
    charged = meetings.together.charged(meetings.releases)
    known = charged and all(one.exact and not one.unknown for one in charged)
    return [one.variance for one in charged] if known else None


def _numbers(lockstep: Lockstep) -> int:
    """How many random numbers the noise of all releases is made of."""
    covering = frozenset().union(*(release.covering for release in lockstep.meetings.releases))
    return sum(math.prod(lockstep.keys.draws[number].shape) for number in covering)
