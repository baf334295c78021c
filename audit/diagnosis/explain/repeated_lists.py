"""The line of the user's that puts a record into a list of them a second time, as padding does."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from audit.diagnosis.explain.places import NOWHERE, Frame, Place
from audit.diagnosis.explain.watched_code import callers, is_theirs
from mechanisms.adapters.watched_calls import lines_told_to

MOST_HELD = 4096
"""Entries of a list that is looked at."""


def repeated_at(code: Callable[[], object], index: int) -> Place:
    """The line after which a list first holds something twice: places, with that of the record, or the same object.

    NOWHERE if there is none, as where tensors hold the places.
    """
    last: dict[FrameType, int] = {}
    found: list[Place] = []

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if found or not is_theirs(frame):
            return None
        # a line is told before it runs
        line = last.get(frame)
        last[frame] = frame.f_lineno
        if line is not None and any(_repeats(value, index) for value in list(frame.f_locals.values())):
            at: Frame = frame.f_code.co_filename, line
            found.append(Place(own=(at, *callers(frame))))
        if event == "return":
            last.pop(frame, None)
        return watch

    with lines_told_to(watch):
        code()
    return found[0] if found else NOWHERE


def _repeats(value: Any, index: int) -> bool:
    if not isinstance(value, list) or not 1 < len(value) <= MOST_HELD:
        return False
    if all(type(one) is int for one in value):
        return index in value and len(set(value)) < len(value)
    held = [one for one in value if isinstance(one, tuple | dict) or hasattr(one, "storage_offset")]
    return len(held) == len(value) and len({*map(id, held)}) < len(held)
