"""Where the user had a library make a function, such as the update of an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from audit.diagnosis.explain.places import Frame, Place
from audit.diagnosis.explain.watched_code import callers
from mechanisms.adapters.watched_calls import calls_told_to

INSIDE = "<locals>"
"""In the name of a function that another one makes."""


def maker(code: Callable[[], object], place: Place) -> Place | None:
    """The line of the user's that had the function made in which a library did something; None if there are several."""
    found: dict[tuple[Frame, ...], None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        own = frame.f_code
        for path, line in place.library:
            lines = [number for _, _, number in own.co_lines() if number] if own.co_filename == path else []
            if event == "call" and lines and min(lines) <= line <= max(lines) and INSIDE not in own.co_qualname:
                found.setdefault(callers(frame))

    with calls_told_to(watch):
        code()
    found.pop((), None)
    return Place(own=next(iter(found))) if len(found) == 1 else None
