"""Which function of the user's was given all of a record, and which one only a part of it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import jax
from jax.core import Tracer

from audit.diagnosis.explain.places import Frame, Place, function_around
from audit.diagnosis.explain.watched_code import tell_calls


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
