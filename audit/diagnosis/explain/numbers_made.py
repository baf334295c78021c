"""The line of Python that makes a number, seen by following every line of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from audit.diagnosis.explain.places import NOWHERE, Place
from audit.diagnosis.explain.watched_code import is_theirs
from mechanisms.adapters.watched_calls import lines_told_to

SAME = 1e-6
"""Relative difference of numbers that are one."""
MOST_FIELDS = 64

Held = tuple[str, int, str]
"""A file, a line, and the name of a variable or of a field."""


def made_at(runs: Sequence[tuple[Callable[[], object], float]], *, fields: bool = False) -> Place:
    """The line after which one variable, or one field, holds each run's own number; NOWHERE if there is none.

    Whatever a function is given was made before. With ``fields`` no variable counts: many may rightly hold the number.
    """
    first, *others = [_held(code, number, fields) for code, number in runs]
    common = [held for held in first if all(held in other for other in others)]
    return Place(own=(common[0][:2],)) if common else NOWHERE


def _held(code: Callable[[], object], number: float, fields: bool) -> dict[Held, None]:
    found: dict[Held, None] = {}
    last: dict[FrameType, int] = {}
    seen: set[tuple[int, str]] = set()
    counts: dict[tuple[int, str], Any] = {}

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if not is_theirs(frame):
            return None
        for owner, name in _holders(frame, number):
            # a loop's variable passes through every number
            counted = counts.get((owner, name)) in (number - 1, number)
            counted |= fields and owner == id(frame)
            if (owner, name) not in seen and event != "call" and not counted:
                found.setdefault((frame.f_code.co_filename, last.get(frame, frame.f_lineno), name))
            seen.add((owner, name))
        counts.update(((id(frame), name), value) for name, value in frame.f_locals.items() if isinstance(value, int))
        last[frame] = frame.f_lineno
        return watch

    with lines_told_to(watch):
        code()
    return found


def _holders(frame: FrameType, number: float) -> Iterator[tuple[int, str]]:
    for name, value in frame.f_locals.items():
        if _is(value, number):
            yield id(frame), name
        fields = getattr(value, "__dict__", None)
        if isinstance(fields, dict) and len(fields) <= MOST_FIELDS:
            yield from ((id(value), field) for field, inner in [*fields.items()] if _is(inner, number))


def _is(value: Any, number: float) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and abs(value - number) <= SAME * abs(number)
