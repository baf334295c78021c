"""Where a number of the program's went wrong: the innermost function that was given the right one.

Python computes such numbers while a program is traced, so no equation shows them: the functions are watched instead.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from audit.diagnosis.explain.places import Frame, Place
from audit.trials.library_files import is_library
from mechanisms.adapters.watched_calls import calls_told_to

NEAR = 1e-3
"""Relative difference of numbers that are one, computed in two ways."""
MOST_FIELDS = 64


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a function of the user's: its file, its first and last line, and the numbers that it was given."""

    path: str
    lines: tuple[int, int]
    numbers: frozenset[float]

    def has(self, number: float, most: int = 2) -> bool:
        """Whether it was given a number, or factors of it."""
        products = (np.prod(few) for size in range(1, most + 1) for few in itertools.combinations(self.numbers, size))
        return any(abs(product - number) <= NEAR * abs(number) for product in products)


def went_wrong(trace: Callable[[], object], places: Iterable[Place], right: float, wrong: float) -> Place | None:
    """The line of the innermost function that was given the right number and not the wrong one, if there is one."""
    calls = _watched(trace)
    for place in places:
        for depth, frame in enumerate(place.own):
            around = [call for call in calls if _holds(call, frame)]
            if any(call.has(right) and not call.has(wrong) for call in around):
                return Place(own=place.own[depth:])
    return None


def _holds(call: Call, frame: Frame) -> bool:
    path, line = frame
    return call.path == path and call.lines[0] <= line <= call.lines[1]


def _watched(trace: Callable[[], object]) -> list[Call]:
    calls: dict[Call, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and not path.startswith("<") and not is_library(path):
            calls.setdefault(_call(frame))

    with calls_told_to(watch):
        trace()
    return list(calls)


def _call(frame: FrameType) -> Call:
    code = frame.f_code
    named: list[Any] = [frame.f_globals.get(name) for name in code.co_names]
    fields = [field for given in frame.f_locals.values() for field in _fields(given)]
    return Call(code.co_filename, _lines(code), frozenset(float(one) for one in named + fields if _is_number(one)))


def _lines(code: CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line]
    return min(lines, default=0), max(lines, default=0)


def _fields(given: Any) -> list[Any]:
    """A number, or those of a configuration."""
    if isinstance(given, dict):
        inside = list(given.values())
    elif hasattr(given, "_asdict"):
        inside = list(given)
    else:
        inside = list(getattr(given, "__dict__", {}).values())
    return [given, *inside[:MOST_FIELDS]]


def _is_number(given: Any) -> bool:
    return isinstance(given, float | np.floating) and bool(np.isfinite(given)) and given != 0
