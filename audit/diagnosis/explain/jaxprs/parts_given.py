"""Which function of the user's was given all of a record, and which one only a part of it."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
from jax.core import Tracer

from audit.diagnosis.explain.places import Frame, Place, function_around
from audit.trials.library_files import is_library
from mechanisms.adapters.watched_calls import calls_told_to


def given_all(code: Callable[[], object], place: Place, entries: int) -> Place:
    """The innermost line of a place whose function was given so many numbers in one of its arguments, or more.

    The place itself where there is no such function.
    """
    given: dict[Frame, int] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and not path.startswith("<") and not is_library(path):
            function = function_around((path, frame.f_code.co_firstlineno))
            given[function] = max((given.get(function, 0), *map(_size, frame.f_locals.values())))

    with calls_told_to(watch):
        code()
    for depth, frame in enumerate(place.own):
        if given.get(function_around(frame), 0) >= entries:
            return Place(own=place.own[depth:])
    return place


def _size(value: Any) -> int:
    """Numbers in the arrays of a tree that JAX traces, or that it holds already."""
    if not isinstance(value, Tracer | jax.Array | dict | list | tuple):
        return 0
    return sum(leaf.size for leaf in jax.tree.leaves(value) if isinstance(leaf, Tracer | jax.Array))
