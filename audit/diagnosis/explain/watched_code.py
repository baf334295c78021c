"""The user's Python while it runs once more: which frames are theirs, and who called them."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FrameType
from typing import Any

from audit.diagnosis.explain.places import Frame
from audit.trials.library_files import is_library
from mechanisms.adapters.watched_calls import calls_told_to

HOME = os.path.dirname(__file__) + os.sep
"""Where the code is run once more: whoever called for that is outside of it."""


def is_theirs(frame: FrameType) -> bool:
    """Whether a frame runs a line of the user's."""
    path = frame.f_code.co_filename
    return not path.startswith("<") and not is_library(path)


def callers(frame: FrameType) -> tuple[Frame, ...]:
    """Lines of the user's that called for a frame, the nearest first, inside of the code that is run."""
    lines: list[Frame] = []
    outer = frame.f_back
    while outer is not None and not outer.f_code.co_filename.startswith(HOME):
        if is_theirs(outer):
            lines.append((outer.f_code.co_filename, outer.f_lineno))
        outer = outer.f_back
    return tuple(lines)


def tell_calls(code: Callable[[], object], told: Callable[[FrameType, str, Any], None]) -> None:
    """Run code, and tell of every call of a function of the user's and of its return."""

    def watch(frame: FrameType, event: str, value: Any) -> None:
        if event in ("call", "return") and is_theirs(frame):
            told(frame, event, value)

    with calls_told_to(watch):
        code()
