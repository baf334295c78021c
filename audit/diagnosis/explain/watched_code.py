"""The user's Python while it runs once more: its calls, and the lines that make a number or repeat a record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from audit.diagnosis.explain.places import NOWHERE, Frame, Place, is_of_comprehension
from audit.trials.library_files import is_library
from mechanisms.adapters.watched_calls import calls_told_to, lines_told_to

HOME = os.path.dirname(__file__) + os.sep
"""Folder of the code that runs the user's code again: its callers are outside of that."""


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


def tell_lines(
    code: Callable[[], object],
    told: Callable[[FrameType, int | None], None],
    returned: Callable[[FrameType, Any], None] = lambda frame, value: None,
) -> None:
    """Run code, and tell of every line of the user's when it has run; of none where a function is entered.

    And ``returned`` of what a function returns.
    """
    last: dict[FrameType, int] = {}

    def watch(frame: FrameType, event: str, value: Any) -> Any:
        if not is_theirs(frame):
            return None
        # Python tells of a line before it runs
        told(frame, last.get(frame))
        last[frame] = frame.f_lineno
        if event == "return":
            returned(frame, value)
            del last[frame]
        return watch

    with lines_told_to(watch):
        code()


SAME = 1e-6
"""Relative difference below which two numbers count as one."""
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


def changed_at(code: Callable[[], object], before: float, then: float) -> Place:
    """The line after which one variable, or one field, that held one number holds another; NOWHERE if there is none."""
    names = {name for _, _, name in _held(code, before, False)}
    found = [held[:2] for held in _held(code, then, False) if held[2] in names]
    return Place(own=(found[0],)) if found else NOWHERE


def _held(code: Callable[[], object], number: float, fields: bool) -> dict[Held, None]:
    found: dict[Held, None] = {}
    # by their frames, and not by addresses, which others get as well
    seen: set[tuple[object, str]] = set()
    counts: dict[tuple[object, str], Any] = {}

    def told(frame: FrameType, line: int | None) -> None:
        for owner, name in _holders(frame, number):
            # what passes through a list holds any small number now and then
            if owner is frame and line is not None and is_of_comprehension((frame.f_code.co_filename, line), name):
                continue
            # a loop's variable passes through every number
            counted = counts.get((owner, name)) in (number - 1, number)
            counted |= fields and owner is frame
            if (owner, name) not in seen and line is not None and not counted:
                found.setdefault((frame.f_code.co_filename, line, name))
            seen.add((owner, name))
        counts.update(((frame, name), value) for name, value in frame.f_locals.items() if isinstance(value, int))

    tell_lines(code, told)
    return found


def _holders(frame: FrameType, number: float) -> Iterator[tuple[object, str]]:
    for name, value in frame.f_locals.items():
        if is_number(value, number, SAME):
            yield frame, name
        fields = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if isinstance(fields, dict) and len(fields) <= MOST_FIELDS:
            yield from ((id(value), field) for field, inner in [*fields.items()] if is_number(inner, number, SAME))


def is_plain(value: Any) -> bool:
    """Whether a value is a number of Python's."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_number(value: Any, number: float, slack: float) -> bool:
    """Whether a value equals a number up to rounding."""
    return is_plain(value) and abs(value - number) <= slack * abs(number)


MOST_HELD = 4096
"""Most entries of a list that are looked at."""


def repeated_at(code: Callable[[], object], index: int) -> Place:
    """The line after which a list first holds something twice: places, with that of the record, or the same object.

    Or the line that returns such a list. NOWHERE if there is none, as where tensors hold the places.
    """
    found: list[Place] = []

    def told(frame: FrameType, line: int | None) -> None:
        if not found and line is not None and any(_repeats(value, index) for value in list(frame.f_locals.values())):
            found.append(Place(own=((frame.f_code.co_filename, line), *callers(frame))))

    def returned(frame: FrameType, value: Any) -> None:
        if not found and _repeats(value, index):
            found.append(Place(own=((frame.f_code.co_filename, frame.f_lineno), *callers(frame))))

    tell_lines(code, told, returned)
    return found[0] if found else NOWHERE


def _repeats(value: Any, index: int) -> bool:
    if not isinstance(value, list) or not 1 < len(value) <= MOST_HELD:
        return False
    if all(type(one) is int for one in value):
        return index in value and len(set(value)) < len(value)
    held = [one for one in value if isinstance(one, tuple | dict) or hasattr(one, "storage_offset")]
    return len(held) == len(value) and len({*map(id, held)}) < len(held)
