"""Releases that nobody sees one by one: sums of parts, each with a share of the noise, are one release."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from audit.diagnosis.explain.jaxprs.evaluate import RULES
from audit.diagnosis.explain.jaxprs.noise import SUMS
from audit.diagnosis.explain.jaxprs.value import Part, Release, Value, host
from mechanisms.adapters.noise_terms import total

SAME = frozenset({"copy", "copy_p", "convert_element_type", "stop_gradient", "device_put", "reduce_precision"})
MOVES = frozenset({"reshape", "squeeze", "transpose", "reduce_sum", "rev"})
"""Equations that only move or add numbers: what holds of a value and of its variance can be moved with it."""


@dataclasses.dataclass(eq=False)
class Together:
    """Which releases of one run were seen together; each is charged when it is first seen."""

    _groups: list[tuple[Part, ...]] = dataclasses.field(default_factory=list)
    _seen: set[int] = dataclasses.field(default_factory=set)

    def carry(self, name: str, params: dict[str, Any], out: Value, ins: Sequence[Value]) -> tuple[Part, ...]:
        """What is open in the result of an equation; what it cannot carry is seen here."""
        open_ins = [value for value in ins if value.open]
        if not open_ins:
            return ()
        parts = _carried(name, params, np.shape(out.a), ins)
        if parts is None:
            for value in open_ins:
                self.see(value.open)
            return ()
        return parts

    def see(self, parts: tuple[Part, ...]) -> None:
        """From here on this sum is known; what was known before is not charged again."""
        fresh = tuple(part for part in parts if part.release is None or id(part.release) not in self._seen)
        if any(part.release is not None for part in fresh):
            self._groups.append(fresh)
        self._seen.update(id(part.release) for part in fresh if part.release is not None)

    def charged(self, releases: Sequence[Release]) -> list[Release]:
        """What each sum costs by which the releases were seen, in the order of the releases."""
        place = {id(release): number for number, release in enumerate(releases)}
        charges = {place[id(release)]: release for release in releases if id(release) not in self._seen}
        for group in self._groups:
            last = max((part.release for part in group if part.release is not None), key=lambda one: place[id(one)])
            charges[place[id(last)]] = last if _is_alone(group) else _joint(last, group)
        return [charges[number] for number in sorted(charges)]


def _is_alone(group: tuple[Part, ...]) -> bool:
    """Whether one release was seen by itself, at most scaled: its numbers are told as the code has them."""
    (first, *more), own = group, group[0].release
    return not more and own is not None and np.shape(first.moved) == np.shape(own.moved)


def _carried(name: str, params: dict[str, Any], shape: tuple[int, ...], ins: Sequence[Value]) -> Any:
    """The parts of a result, or None."""
    if name in SUMS:
        signs = (1, -1) if name == "sub" else (1, 1)
        found = [part.scaled(sign) for value, sign in zip(ins, signs, strict=True) for part in value.open]
        releases = [id(part.release) for part in found if part.release is not None]
        fits = all(np.shape(value.a) == shape for value in ins if value.open)
        return tuple(found) if fits and len(releases) == len(set(releases)) else None
    first = ins[0]
    if name in SAME:
        return first.open
    if name == "neg":
        return tuple(part.scaled(-1) for part in first.open)
    if name in ("mul", "div"):
        other = ins[1] if first.open else first
        constant = not other.open and not other.data and not other.random
        if not constant or (name == "div" and other is first) or np.shape((first if first.open else ins[1]).a) != shape:
            return None
        by = host(other.a).astype(np.float64)
        factor = by if name == "mul" else 1 / by
        return tuple(part.scaled(factor) for part in (*first.open, *ins[1].open))
    if name == "dot_general":
        return _weighed(params, ins)
    if name in MOVES and len(ins) == 1:
        like = jax.ShapeDtypeStruct(shape, np.float64)
        summed = params["axes"] if name == "reduce_sum" else None
        moved = [part.through(lambda array: RULES[name](like, params, array), summed) for part in first.open]
        return None if any(part is None for part in moved) else tuple(moved)
    return None


def _weighed(params: dict[str, Any], ins: Sequence[Value]) -> Any:
    """The parts of a sum along one axis whose terms are multiplied by a row of constants, or None."""
    place = 0 if ins[0].open else 1
    row, value = ins[1 - place], ins[place]
    contracting, batch = params["dimension_numbers"]
    if row.open or row.data or row.random or np.ndim(row.a) != 1 or batch[0] or len(contracting[0]) != 1:
        return None
    (axis,) = contracting[place]
    by = np.expand_dims(host(row.a).astype(np.float64), [k for k in range(np.ndim(value.a)) if k != axis])
    by = np.broadcast_to(by, np.shape(value.a))
    return tuple(part.scaled(by).through(lambda array: np.sum(array, axis), [axis]) for part in value.open)


def _joint(last: Release, group: tuple[Part, ...]) -> Release:
    """One release of all that a sum holds, told at its last place."""
    own = [part.release for part in group if part.release is not None]
    terms = total([part.terms for part in group])
    return dataclasses.replace(
        last,
        moved=sum(part.moved for part in group),
        variance=sum(part.variance for part in group) if terms is None else terms.variance,
        blocks=() if terms is None or terms.plain else terms.covariance() or (),
        exact=all(release.exact for release in own),
        unknown=next((release.unknown for release in own if release.unknown), None),
    )
