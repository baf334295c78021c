"""Equations, constants and draws of the two sides in pairs, where their programs differ, and steps of their loops."""

from __future__ import annotations

import bisect
import dataclasses
import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.extend.core as jax_core
import numpy as np

from audit.diagnosis.explain.jaxprs import axes
from audit.diagnosis.explain.jaxprs.equations import CannotFollowError, Within, place_of
from audit.diagnosis.explain.jaxprs.evaluate import live, stacked
from audit.diagnosis.explain.jaxprs.key_words import OF_NUMPY, is_key
from audit.diagnosis.explain.jaxprs.labels import combined, labelled
from audit.diagnosis.explain.jaxprs.value import COUNT, Tag, Value, host, lost_at, settled
from audit.diagnosis.explain.places import Place
from mechanisms.adapters.noise_terms import side_by_side


def coupled(a: Any, b: Any, group: int) -> Any:
    """Independent draws or keys of N + 1 records, those of the first N made the ones of the smaller side.

    Where they are numbered through several axes N and N + 1 do not begin alike, and any of the law serve.
    """
    tag = axes.by_size(a, b, group)
    if tag is None or a is b or (is_key(b) and not isinstance(b, OF_NUMPY)):
        return b
    joined = np.moveaxis(np.array(b), tag.axis, 0)
    joined[: a.shape[tag.axis]] = np.moveaxis(np.asarray(a), tag.axis, 0)
    return np.moveaxis(joined, 0, tag.axis)


# a replay runs one program dozens of times, and the inside of a loop in each of its turns
@functools.lru_cache(maxsize=1024)
def aligned(a: Any, b: Any, within: Within | None) -> list[tuple[Any, Any, Place]]:
    """Live equations of two jaxprs in pairs, and where they stand; None beside those that one side alone has."""
    return [(one, other, place_of(one or other, within)) for one, other in _pairs(live(a), live(b), within)]


def _pairs(one: Sequence[Any], other: Sequence[Any], within: Within | None) -> list[tuple[Any, Any]]:
    left, right = ([_signature(equation, within) for equation in side] for side in (one, other))
    if left == right:
        return list(zip(one, other, strict=True))
    exact = [[*zip(own, map(_taken, side), strict=True)] for own, side in ((left, one), (right, other))]
    numbers = _longest(left, right), _from_the_first(left, right), _from_the_first(*exact)
    found = [[(a and one[a - 1], b and other[b - 1]) for a, b in own] for own in numbers]
    return min(found, key=_crossed)


def _longest(left: Sequence[Any], right: Sequence[Any]) -> Iterator[tuple[int | None, int | None]]:
    """Numbers from 1 of like items, the longest run of them first, with those that are on one side alone."""
    for kind, a, a_end, b, b_end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        numbers = range(a + 1, a_end + 1), range(b + 1, b_end + 1)
        if kind == "equal":
            yield from zip(*numbers, strict=True)
        else:
            yield from ((own, None) for own in numbers[0])
            yield from ((None, own) for own in numbers[1])


def _from_the_first(left: Sequence[Any], right: Sequence[Any]) -> Iterator[tuple[int | None, int | None]]:
    """The same from the first ones on: the last turn of a loop that Python runs is then the one that is added."""
    places: dict[Any, list[int]] = {}
    for number, item in enumerate(right, 1):
        places.setdefault(item, []).append(number)
    seen = 0
    for number, item in enumerate(left, 1):
        own = places.get(item, [])
        later = next(iter(own[bisect.bisect(own, seen) :]), None)
        yield from ((None, passed) for passed in range(seen + 1, later or 0))
        yield number, later
        seen = later or seen
    yield from ((None, passed) for passed in range(seen + 1, len(right) + 1))


def _crossed(pairs: Sequence[tuple[Any, Any]]) -> int:
    """How many operands of equations in pairs are not such in pairs, and how many rows are others."""
    partner: dict[Any, Any] = {}
    crossed = 0
    for one, other in pairs:
        if one is None or other is None:
            continue
        crossed += one.primitive.name == "slice" and _start(one) != _start(other)
        for left, right in zip(one.invars, other.invars, strict=False):
            if isinstance(left, jax_core.Literal) and isinstance(right, jax_core.Literal):
                crossed += bool(np.any(left.val != right.val))
            elif not isinstance(left, jax_core.Literal) and not isinstance(right, jax_core.Literal):
                crossed += partner.get(left) is not partner.get(right)
        for left, right in zip(one.outvars, other.outvars, strict=True):
            partner[left] = partner[right] = right
    return crossed


def _signature(equation: Any, within: Within | None) -> tuple[Any, ...]:
    avals = [variable.aval for variable in equation.outvars]
    return (
        equation.primitive.name,
        place_of(equation, within).nearest,
        tuple((len(getattr(aval, "shape", ())), getattr(aval, "dtype", None)) for aval in avals),
    )


def _taken(equation: Any) -> Any:
    """Which of several keys it takes."""
    return _start(equation) if equation.primitive.name == "slice" and is_key(equation.invars[0].aval) else None


def _start(cut: Any) -> Any:
    return cut.params["start_indices"]


LOOPS = frozenset({"scan", "while", "cond"})
ONE_SIDE = "with the record a loop takes more steps, each with noise of its own, and all that is not compared"


@functools.lru_cache(maxsize=1024)
def _row_numbers(a: Any, b: Any) -> dict[Any, frozenset[Any]]:
    """Variables that say which of all records to take, each with those that it is computed from.

    JAX counts negative ones from the end, and so compares them with 0 and adds the number of records.
    """
    pairs = [(one, other) for one, other, _ in aligned(a, b, None) if one is not None and other is not None]
    compared = [one for one, _ in pairs if one.primitive.name == "lt" and _is_number(one, 0)]
    negative = {own: one.outvars[0] for one in compared for own in _variables(one.invars)}
    wrapped = []
    for one, other in pairs:
        if one.primitive.name != "add" or not negative.keys() & _variables(one.invars[:1]):
            continue
        if not _is_number(one) or not _is_number(other) or one.invars[1].val == other.invars[1].val:
            continue
        choice = {negative[one.invars[0]], one.invars[0], one.outvars[0]}
        wrapped += [one.invars[0] for own, _ in pairs if choice <= _variables(own.invars)]
    return {own: _made_of(own, [one for one, _ in pairs]) for own in wrapped}


def _is_number(equation: Any, number: float | None = None) -> bool:
    """Whether the second operand is a number of the program's, or this one."""
    last = equation.invars[-1]
    return isinstance(last, jax_core.Literal) and not np.shape(last.val) and number in (None, last.val)


def _made_of(variable: Any, equations: Sequence[Any]) -> frozenset[Any]:
    found = {variable}
    for own in reversed(equations):
        if len(own.outvars) == 1 and own.outvars[0] in found and own.primitive.name not in LOOPS:
            found |= _variables(own.invars)
    return frozenset(found)


def _variables(atoms: Sequence[Any]) -> set[Any]:
    return {atom for atom in atoms if not isinstance(atom, jax_core.Literal)}


class Picks:
    """Random numbers that say which records to take: they cover nothing, and N records take others than N + 1."""

    def __init__(self, a: Any, b: Any):
        self._made_of = _row_numbers(a, b)
        self._drawn: set[Any] = set()

    def see(self, variable: Any, value: Value) -> Value:
        """A variable's value, no noise if rows are chosen with it."""
        if not any(variable in own for own in self._made_of.values()):
            return value
        if value.noise:
            self._drawn.add(variable)
            value = dataclasses.replace(value, noise=False, variance=None, terms=None)
        if value.differs and value.tag is None and not self._drawn.isdisjoint(self._made_of.get(variable, ())):
            value = dataclasses.replace(value, uncoupled=value.uncoupled or value.at)
        return value


def value_of(env: dict[Any, Value], atom: Any) -> Value:
    """What one side of a program knows by a variable, or a number that stands in its text."""
    if isinstance(atom, jax_core.Literal):
        number = np.asarray(atom.val, getattr(atom.aval, "dtype", None))
        return Value(a=number, b=number, public=True)
    return env[atom]


def constant(one: Any, other: Any) -> Value:
    """A number of the program; one that is not the same for N and N + 1 records tells their number."""
    return Value(a=one, b=one, public=not is_key(one)) if _equal(one, other) else Value(a=one, b=other, origin=COUNT)


def constants(one: Sequence[Any], other: Sequence[Any]) -> tuple[list[Value], list[Value]]:
    """The constants of each side; where one side alone has some, equal ones are the same."""
    if len(one) == len(other):
        both = [constant(*pair) for pair in zip(one, other, strict=True)]
        return both, both
    left = [Value(a=own, b=own, origin=COUNT) for own in one]
    right = [
        next((value for value in left if _equal(value.a, own)), Value(a=own, b=own, origin=COUNT)) for own in other
    ]
    return left, right


def _equal(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and np.array_equal(host(one), host(other))


def alone(value: Value, side: str = "b") -> Value:
    """A value that one side alone reads."""
    only = value.b if side == "b" else value.a
    # how many keys there are is no record's doing
    values = value.values or (value.differs and not (value.random and value.any_serves))
    return dataclasses.replace(value, a=only, b=only, tag=None, values=values)


def chosen(name: str, ins: Sequence[Value]) -> Value | None:
    """What an equation takes whole because a number that is the same in every run says so.

    A loop that adds noise with its last batch alone takes it, or zeros, by the number of the step.
    """
    if name != "select_n" or ins[0].differs or ins[0].random or ins[0].values or ins[0].released:
        return None
    cases = np.unique(host(ins[0].a))
    return ins[1 + int(cases[0])] if len(cases) == 1 else None


def row_of(value: Value, step: int, length: int) -> Value:
    """One step's slice of what a scan runs over."""
    a = value.a[min(step, length - 1)]
    b = value.b[step] if value.differs else a
    a = b if step >= length and value.any_serves else a
    b, _ = settled(a, b, None) if a is not b else (b, False)
    tag = value.tag
    slots = frozenset() if tag is None else tag.slots if tag.groups is None else tag.in_group(step)
    inner = None if tag is None or tag.axis == 0 or tag.groups not in (None, 0) else Tag(tag.axis - 1, slots)
    variance = None if value.variance is None else np.asarray(value.variance)[step]
    terms = None if value.terms is None else value.terms.row(step)
    opened = value.open
    if opened is not None and opened.coordinates is not None:
        opened = dataclasses.replace(opened, coordinates=opened.coordinates.row(step))
    one = step if tag is not None and tag.axis == 0 and tag.groups is None else None
    row = dataclasses.replace(
        value,
        alone=one,
        a=a,
        b=b,
        tag=inner,
        variance=variance,
        terms=terms,
        open=opened,
        summed=value.summed and tag is None,
    )
    if value.by_row:
        row.drawn, row.by_row = value.drawn.difference(value.by_row) | {value.by_row[step]}, ()
    if inner is not None and value.random and np.shape(a) != np.shape(b):
        # each step's batch is packed by itself
        row.tag = axes.inserted(inner, a, b, padded=not value.values)
        row.b, others = settled(a, b, row.tag)
        row.uncoupled = row.uncoupled if others or value.values or value.shuffled else None
    return row


def beside_padding(rows: list[Value], group: int) -> list[Value]:
    """What a step sees that the larger side alone takes, with the record known where it stands among padding.

    The other side has nothing there; what it is given is all padding.
    """
    parts = [row for row in rows if row.differs and not is_key(row.a) and np.ndim(row.b)]
    if len({len(row.b) for row in parts}) != 1:
        return rows
    filled = np.any([host(row.b).reshape(len(row.b), -1).any(axis=1) for row in parts], axis=0)
    if filled.sum() != group or filled.all():
        return rows
    slots = frozenset(np.flatnonzero(filled).tolist())
    tag = Tag(0, slots)
    known = {id(row): dataclasses.replace(row, a=_padded(host(row.b), filled), tag=tag, alone=None) for row in parts}
    return [known.get(id(row), row) for row in rows]


def _padded(rows: np.ndarray, filled: np.ndarray) -> np.ndarray:
    return np.where(filled.reshape(-1, *(1,) * (rows.ndim - 1)), rows[~filled][0], rows)


def unmoved(old: Value, new: Value, place: Place) -> Value:
    """What a loop carries over a step that the larger side alone takes."""
    b, _ = settled(old.a, new.b, None)
    if b is old.a:
        return dataclasses.replace(new, a=old.a, b=old.a)
    if old.released and new.released and not (old.values or new.values):
        # the larger side's noise covers what was released on both sides before, and may make up for less of it there
        for release in () if new.open is None else new.open.releases:
            release.unknown = release.unknown or ONE_SIDE
        return dataclasses.replace(new, a=new.b)
    return dataclasses.replace(new, a=old.a, b=b, origin=new.origin or new.at or place)


def stacked_steps(
    column: Sequence[Value],
    lengths: tuple[int, int],
    place: Place,
    *,
    records: bool,
    counts: tuple[int, int],
    group: int,
) -> Value:
    """What the steps of a loop leave, as one array; ``records`` says that each step took one record."""
    a = stacked([value.a for value in column[: lengths[0]]])
    differ = lengths[0] != lengths[1] or any(value.differs for value in column)
    b = stacked([value.b for value in column[: lengths[1]]]) if differ else a
    out = labelled("stack", {}, place, a, b, column, which=0, counts=counts, group=group)
    out.bent = next((value.bent for value in column if value.bent is not None), None)
    out.lost = lost_at(out, column, place)
    tags = [value.tag for value in column if value.tag is not None]
    if out.tag is None and tags:
        places = [(step, slot) for step, value in enumerate(column) if value.tag for slot in value.tag.slots]
        out.tag = axes.grouped(tags[0].axis + 1, 0, frozenset(places))
    elif out.tag is None and records and out.values:
        out.tag = Tag(0, frozenset(step for step, value in enumerate(column) if value.differs))
    if out.noise and not out.data and all(value.variance is not None for value in column):
        if all(value.terms is not None for value in column):
            terms = side_by_side([value.terms for value in column], np.shape(column[0].a))
            # of a key that serves again the loop tells
            out.terms = terms if terms is not None and terms.plain else None
        out.variance = np.stack([np.asarray(value.variance) for value in column])
        out.guessed = any(value.guessed for value in column)
        out.fewest = max(value.fewest for value in column)
    elif out.noise and any(value.data for value in column):
        out.noise, out.blurred = False, True
    return out


def together(one: Sequence[Value], other: Sequence[Value], place: Place) -> list[Value]:
    """What both sides carry."""
    if len(one) != len(other):
        raise CannotFollowError("a loop carries different values when a record is added", place)
    return [combined(left, right, place) for left, right in zip(one, other, strict=True)]


def is_of_count(key: Value) -> bool:
    """Whether a random key is another one for as many records more, as after a loop that splits it for each of them."""
    return key.random and is_key(key.a) and key.differs and key.tag is None and not key.values and key.uncoupled is None


def as_one(value: Value) -> Value:
    """Such a key as that of the smaller side: what is drawn from it is fresh on each side, so it may be the same."""
    return dataclasses.replace(value, b=value.a) if is_of_count(value) else value


def fresh_of_count(name: str, ins: Sequence[Value], ins_b: Sequence[Value]) -> bool:
    """Whether a random key gets the number of records folded in, or numbers are drawn from such a key."""
    if name == "random_bits":
        return is_of_count(ins[0]) and np.shape(ins[0].a) == np.shape(ins_b[0].b)
    if name != "random_fold_in" or any(value.values for value in (*ins, *ins_b)):
        return False
    as_many = all(np.shape(value.a) == np.shape(other.b) for value, other in zip(ins, ins_b, strict=True))
    return as_many and ins[0].random and not ins[0].differs
