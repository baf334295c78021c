"""Equations, constants and draws of the two sides in pairs, where the programs for N and N + 1 records differ."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.extend.core as jax_core
import numpy as np

from audit.diagnosis.explain.jaxprs import axes
from audit.diagnosis.explain.jaxprs.equations import Within, place_of
from audit.diagnosis.explain.jaxprs.evaluate import live
from audit.diagnosis.explain.jaxprs.key_words import OF_NUMPY, is_key
from audit.diagnosis.explain.jaxprs.value import COUNT, Value, host
from audit.diagnosis.explain.places import Place


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


def _pairs(one: Sequence[Any], other: Sequence[Any], within: Within | None) -> Iterator[tuple[Any, Any]]:
    left, right = ([_signature(equation, within) for equation in side] for side in (one, other))
    if left == right:
        yield from zip(one, other, strict=True)
        return
    for kind, a, a_end, b, b_end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(one[a:a_end], other[b:b_end], strict=True)
        else:
            yield from ((equation, None) for equation in one[a:a_end])
            yield from ((None, equation) for equation in other[b:b_end])


def _signature(equation: Any, within: Within | None) -> tuple[Any, ...]:
    avals = [variable.aval for variable in equation.outvars]
    return (
        equation.primitive.name,
        place_of(equation, within).nearest,
        tuple((len(getattr(aval, "shape", ())), getattr(aval, "dtype", None)) for aval in avals),
    )


LOOPS = frozenset({"scan", "while", "cond"})


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
    if name != "select_n" or not _is_public(ins[0]):
        return None
    cases = np.unique(host(ins[0].a))
    return ins[1 + int(cases[0])] if len(cases) == 1 else None


def _is_public(value: Value) -> bool:
    return not (value.differs or value.random or value.values or value.released)
