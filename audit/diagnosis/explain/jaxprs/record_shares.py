"""Whether what the record adds to a value depends on who else is there: groups that are clipped together show so.

A sum of clipped records changes by the same amount whatever the other records hold. Two runs on the same draws, with
other records in the second, are compared equation by equation: where the record's share first changes, something that
is not linear took several records together.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.jaxprs.facts import Bent, Gain, Release, Slot
from audit.diagnosis.explain.jaxprs.value import COUNT, Value, host, rounding
from audit.diagnosis.explain.places import Place

WIDEST = 2**16
"""Entries of a picture's weights; longer arrays are folded."""
VIEWS = 3
SLACK = 0.02
"""Share of a picture that may change by rounding."""
CHANGED = 0.1
"""Share of a release that must change before it is called another one."""
ROUNDINGS = 4.0
REPLACED = "another record's place"
"""Where the record's share changes because it stands where another record stood (padding that repeats one)."""


@dataclasses.dataclass(frozen=True)
class Share:
    """A picture of what the record adds to one value."""

    picture: np.ndarray
    whole: np.ndarray
    """The same of all that stands there with the record."""
    slack: float
    length: float
    gain: Gain

    @property
    def size(self) -> float:
        """How much the record adds, in some unit."""
        return float(np.max(np.abs(self.picture)))

    def like(self, other: Share) -> bool:
        """Whether the record adds the same, but for rounding."""
        slack = SLACK * max(self.size, other.size) + self.slack + other.slack
        with np.errstate(invalid="ignore"):
            apart = float(np.max(np.abs(self.picture - other.picture)))
        return bool(apart <= slack or not np.isfinite(apart))

    def replaces(self, other: Share) -> bool:
        """Whether the same stands there with the record in both: only what it is compared with has changed.

        To the last digit, since it comes from the same operations: a long record in a group hides the others but for
        the last digits.
        """
        return bool(np.array_equal(self.whole, other.whole))


NOTHING = Share(np.zeros(VIEWS), np.zeros(VIEWS), 0.0, 0.0, Gain(None))


class Company:
    """The shares of one run, compared with those of a run among other records."""

    def __init__(self, reference: Mapping[Slot, Share] | None):
        self.shares: dict[Slot, Share] = {}
        self.coarse = False
        """Whether something was computed in half precision, whose rounding depends on the other records."""
        self._reference = reference

    def see(self, slot: Slot, out: Value, ins: Sequence[Value], at: Place) -> None:
        """Remember what the record adds to the result of an equation, and where that first changed."""
        differing = [value for value in ins if value.differs]
        out.bent = next((value.bent for value in differing if value.bent is not None), None)
        out.bends = frozenset().union(*(value.bends for value in differing))
        if not out.differs or np.shape(out.a) != np.shape(out.b) or not np.size(out.a):
            return
        self.coarse |= jnp.issubdtype(out.a.dtype, jnp.floating) and out.a.dtype.itemsize < 4
        share = self.shares[slot] = share_of(out)
        out.slot = slot
        if self._reference is None:
            return
        if share.like(self._reference.get(slot, NOTHING)):
            out.bent, out.bends = None, frozenset()
        elif out.bent is None and slot in self._reference and share.replaces(self._reference[slot]):
            out.bent = REPLACED
        elif out.bent is None:
            counted = any(not value.values for value in differing)
            slots = tuple(value.slot for value in differing if value.slot is not None)
            origin = next((value.origin for value in differing if isinstance(value.origin, Place)), at)
            out.bent, out.bends = COUNT if counted else Bent(at, origin, slots), frozenset(slots)


def share_of(value: Value) -> Share:
    """The picture of a value that differs and has one shape."""
    one, other = (host(side).ravel() for side in (value.a, value.b))
    with np.errstate(all="ignore"):
        added = other.astype(np.float64) - one
        moved = added != 0
        size = np.linalg.norm(np.maximum(np.abs(one[moved]), np.abs(other[moved])).astype(np.float64))
        picture, whole = _picture(added), _picture(np.where(moved, other, 0.0))
        length = float(np.linalg.norm(added))
    return Share(picture, whole, ROUNDINGS * rounding(value.a) * float(size), length, value.gain)


def _picture(entries: np.ndarray) -> np.ndarray:
    if len(entries) > WIDEST:
        entries = np.pad(entries, (0, -len(entries) % WIDEST)).reshape(-1, WIDEST).sum(axis=0)
    return _weights()[:, : len(entries)] @ entries


@functools.cache
def _weights() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(VIEWS, WIDEST))


def suspects(plain: Sequence[Release], apart: Sequence[Release]) -> list[tuple[Bent, frozenset[Slot]]]:
    """Where the record's share of a first release changed with the other records, and all that was read there."""
    if len(plain) != len(apart):
        return []
    found = []
    for one, other in zip(plain, apart, strict=True):
        if not (one.first and other.first and isinstance(other.bent, Bent)) or one.unknown or other.unknown:
            continue
        if one.doubled is not None:
            # rows that stand once more are others with the record
            continue
        size = max(np.linalg.norm(one.moved), np.linalg.norm(other.moved))
        if np.isfinite(size) and np.linalg.norm(one.moved - other.moved) > CHANGED * size:
            found.append((other.bent, other.bends))
    return found


def grows(bent: Bent, small: Mapping[Slot, Share], large: Mapping[Slot, Share], least: float) -> bool:
    """Whether the record enters there without a bound: a sum of clipped records may be bounded again."""
    pairs: list[tuple[Any, Any]] = [(small.get(slot), large.get(slot)) for slot in bent.before]
    return any(one and other and other.size > least * one.size > 0 for one, other in pairs)


def uncovered(bends: frozenset[Slot], shares: Mapping[Slot, Share], releases: Sequence[Release]) -> float:
    """What the record would cost if nothing bounded the sums it enters there; 0 where that is not known."""
    cost = 0.0
    for slot in bends:
        share = shares.get(slot)
        own = [one for one in releases if share is not None and one.gain.since is share.gain.since]
        # a number of 1 has clipped nothing
        clipped = [one for one in own if one.weighted is not None and one.weighted.by < 1 - SLACK]
        if share is None or len(own) > 1 or clipped:
            return 0.0
        if not own:
            # the number by which a sum is multiplied
            continue
        times = own[0].gain.times / share.gain.times
        cost += float(np.square(share.length * times) / np.mean(own[0].variance))
    return float(np.sqrt(cost))
