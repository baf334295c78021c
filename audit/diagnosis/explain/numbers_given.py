"""Where a number of the program's went wrong: the innermost function that was given the right one.

Python computes such numbers, so no equation of JAX and no operation of PyTorch shows them: the functions are watched.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from audit.diagnosis.explain.places import NOWHERE, Frame, Place, function_around, may_hand
from audit.diagnosis.explain.watched_code import callers, tell_calls

NEAR = 1e-3
"""Relative difference of numbers that are one, computed in two ways."""
SAME = 1e-4
"""Relative difference of two numbers that are one, for a bound that noise is right for."""
LONG = 0.02
"""Relative difference of two numbers that are one, for how far the record moves a sum."""
MOST_FIELDS = 64
DEVIATIONS = re.compile(r"sigma|std|dev|scale|noise|multiplier|(^|_)sd(_|$)", re.IGNORECASE)
BOUNDS = re.compile(r"clip|bound|norm|limit|sensitivity|radius|^c$", re.IGNORECASE)
"""Names of what a deviation is made of: any other number, such as a divisor, may be equal to it by chance."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a function of the user's: its file, its first and last line, and the numbers that it was given.

    Each number comes with the name under which the function reads it, or with none.
    """

    path: str
    lines: tuple[int, int]
    numbers: frozenset[tuple[str, float]]
    held: frozenset[tuple[str, float]] = frozenset()
    """Those among them that the function holds since it was made, as a closure does."""
    arguments: frozenset[tuple[str, float]] = frozenset()
    """Those that its caller hands over as they are."""
    outside: frozenset[tuple[str, float]] = frozenset()
    """Those that it reads from a configuration which nobody hands over, as a global one."""
    handed: frozenset[tuple[str, float]] = frozenset()
    """Those that its caller may hand over, by themselves or inside of something: no defaults, and no global ones."""
    unread: frozenset[str] = frozenset()
    """Its arguments that it never reads."""
    callers: tuple[Frame, ...] = dataclasses.field(default=(), compare=False)
    """Lines of the user's that called it, the nearest first."""

    def has(self, number: float) -> bool:
        """Whether it reads a number, or two factors of it: what else it was given may be equal by chance."""
        return _makes(number, self.numbers)

    def is_handed(self, number: float, named: re.Pattern[str] | None = None) -> bool:
        """Whether its caller hands over a number that it reads, or two factors of it, if ``named`` under such names."""
        return _makes(number, [one for one in self.handed if named is None or named.search(one[0])])

    def has_deviation(self, number: float) -> bool:
        """Whether it reads a number as a deviation, or as a multiplier and a bound; an odd number under any name."""
        deviations = [value for name, value in self.numbers if DEVIATIONS.search(name)]
        bounds = [value for name, value in self.numbers if BOUNDS.search(name)]
        if number % 1 and any(name and abs(value - number) <= SAME * number for name, value in self.numbers):
            return True
        return _near(number, [*deviations, *(one * other for one in deviations for other in bounds)])

    def ignores(self, right: float, wrong: float) -> bool:
        """Whether two of its arguments make the right number, one is the wrong one, and it never reads the other."""
        read = [(name, value) for name, value in self.arguments if _near(wrong, [value]) and name not in self.unread]
        left = [(name, value) for name, value in self.arguments if name in self.unread]
        pairs = [(one, other) for one in read for other in left if _near(right, [one[1] * other[1]])]
        return any(
            kind.search(one[0]) and rest.search(other[0])
            for one, other in pairs
            for kind, rest in ((DEVIATIONS, BOUNDS), (BOUNDS, DEVIATIONS))
        )


@dataclasses.dataclass(frozen=True)
class Returned:
    """A number that a function of the user's returned, and the line."""

    by: Call
    line: int
    number: float


def went_wrong(code: Callable[[], object], places: Iterable[Place], right: float, wrong: float) -> Place | None:
    """The line of the innermost function that was given the right number and not the wrong one, if there is one.

    One that returned the wrong number is inside of all others.
    """
    calls, returns = _watched(code)
    for own in returns:
        if _near(wrong, [own.number]) and own.by.has_deviation(right) and not own.by.has(wrong):
            return Place(own=((own.by.path, own.line),))
    places = list(places)
    for place in [*places, *_makers(calls, places, wrong)]:
        for depth, frame in enumerate(place.own):
            around = [call for call in calls if _holds(call, frame)]
            if any(_is_among(wrong, call.held) for call in around):
                # nobody who called it handed the number over
                break
            if any(
                call.has_deviation(right) and (not call.has(wrong) or call.ignores(right, wrong)) for call in around
            ):
                return Place(own=place.own[depth:])
    return None


def _makers(calls: Sequence[Call], places: Iterable[Place], wrong: float) -> Iterator[Place]:
    """Where a function that holds the wrong number was made: the lines that called for it with that number."""
    frames = [frame for place in places for frame in place.own]
    if any(_is_among(wrong, call.held) and any(_holds(call, frame) for frame in frames) for call in calls):
        yield from (Place(own=call.callers) for call in calls if _is_among(wrong, call.numbers - call.held))


def holder(code: Callable[[], object], place: Place, wrong: float) -> Place | None:
    """The line that hands a number to whoever makes the function that holds it; its own line if nobody does.

    Those who call a function do not hand over what it holds since it was made.
    """
    calls, _ = _watched(code)
    given = [call for call in calls if _is_among(wrong, call.arguments) and call.callers]
    for depth, frame in enumerate(place.own):
        around = [call for call in calls if _holds(call, frame)]
        if any(_is_among(wrong, call.held) for call in around):
            # a function that was given the number hands it on
            first = [call for call in given if not any(_holds(other, call.callers[0]) for other in given)]
            return Place(own=first[0].callers if len(first) == 1 else place.own[depth:])
    return None


def _makes(number: float, read: Iterable[tuple[str, float]]) -> bool:
    given = {value for name, value in read if name}
    return _near(number, [*given, *(one * other for one, other in itertools.combinations(given, 2))])


def _is_among(number: float, given: Iterable[tuple[str, float]]) -> bool:
    """Whether a number is given under the name of a deviation."""
    return _near(number, [value for name, value in given if DEVIATIONS.search(name)])


def not_handed(
    code: Callable[[], object],
    place: Place,
    number: float,
    *,
    returned: bool = False,
    named: re.Pattern[str] | None = None,
) -> Place:
    """The innermost line of a place whose function was not given a number by its caller, under a name of this kind.

    With ``returned`` also that of a function which it calls and which returned the number without being given it.
    """
    calls, returns = _watched(code)
    around = {function_around(frame) for frame in place.own}
    for own in returns if returned else ():
        helps = own.by.callers and function_around(own.by.callers[0]) in around
        if helps and _near(number, [own.number]) and not own.by.has(number):
            return Place(own=((own.by.path, own.line), *own.by.callers))
    for depth, frame in enumerate(place.own):
        around = [call for call in calls if _holds(call, frame)]
        if not any(call.is_handed(number, named) or (number and call.is_handed(1 / number, named)) for call in around):
            return Place(own=place.own[depth:])
    return place


def bounds_given(code: Callable[[], object]) -> set[float]:
    """The numbers that functions of the user's read under names of clipping norms."""
    read = {number for call in _watched(code)[0] for number in (*call.numbers, *call.outside)}
    return {value for name, value in read if BOUNDS.search(name)}


def own_bound(code: Callable[[], object], stated: Any, *, deviation: float, sensitivity: float) -> float | None:
    """The clipping norm that the noise is right for, where nobody stated one and the code is given that one.

    None where the code is also given a bound as large as what the record moves: then the noise may be the fault.
    """
    if stated.clip is not None or not stated.due:
        return None
    covered, moved, given = deviation / stated.due / stated.reach, sensitivity / stated.reach, bounds_given(code)
    if any(abs(one - moved) <= LONG * moved for one in given):
        return None
    return next((one for one in given if abs(one - covered) <= SAME * covered), None)


def returned_at(code: Callable[[], object], number: float, called: Frame | None = None) -> Place:
    """The line of a function that returns a number which it was not given; NOWHERE if none does.

    With ``called`` only of one that is called at this line.
    """
    for own in _watched(code)[1]:
        if called not in (None, *own.by.callers[:1]):
            continue
        if _near(number, [own.number]) and not own.by.has(number):
            return Place(own=((own.by.path, own.line),))
    return NOWHERE


def _holds(call: Call, frame: Frame) -> bool:
    path, line = frame
    return call.path == path and call.lines[0] <= line <= call.lines[1]


def _watched(code: Callable[[], object]) -> tuple[list[Call], list[Returned]]:
    calls: dict[Call, None] = {}
    running: dict[FrameType, Call] = {}
    returns: dict[Returned, None] = {}

    def watch(frame: FrameType, event: str, returned: Any) -> None:
        if event == "call":
            running[frame] = _call(frame)
            calls.setdefault(running[frame])
        elif (call := running.pop(frame, None)) is not None and _is_number(returned):
            returns.setdefault(Returned(call, frame.f_lineno, float(returned)))

    tell_calls(code, watch)
    return list(calls), list(returns)


def _call(frame: FrameType) -> Call:
    code = frame.f_code
    read = set(_read(code))
    held = [] if _is_inside(frame) else [(name, frame.f_locals.get(name)) for name in code.co_freevars]
    given: list[tuple[str, Any]] = [(name, frame.f_globals.get(name)) for name in code.co_names]
    modules = [vars(value) for _, value in given if isinstance(value, ModuleType)]
    given += [(name, module[name]) for module in modules for name in code.co_names if name in module]
    outside = [field for _, value in given if _is_configuration(value) for field in _fields(value) if field[0] in read]
    around = callers(frame)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    written = {name for name in arguments if not around or may_hand(around[0], code, name)}
    inward: list[tuple[str, Any]] = []
    for local, value in frame.f_locals.items():
        read |= {inner for name in read for inner in _read_by_property(value, name)}
        fields = _fields(value)
        inside = [field for name, field in fields if name in read and _is_configuration(field)]
        fields += [inner for field in inside for inner in _fields(field)]
        own = [(local, value), *((name if name in read else "", field) for name, field in fields)]
        given += own
        inward += own if local in written else []
    handed = [(name, value) for name, value in frame.f_locals.items() if name not in code.co_freevars]
    return Call(
        path=code.co_filename,
        lines=_lines(code),
        numbers=_numbers(given),
        held=_numbers(held),
        arguments=_numbers(handed),
        outside=_numbers(outside),
        handed=_numbers(inward),
        unread=_unread(code),
        callers=around,
    )


@functools.lru_cache(maxsize=1024)
def _unread(code: CodeType) -> frozenset[str]:
    loaded = [one.argval for one in dis.get_instructions(code) if "LOAD" in one.opname]
    # one instruction may load two
    read = {name for one in loaded for name in (one if isinstance(one, tuple) else (one,)) if isinstance(name, str)}
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - read - {*code.co_cellvars}


def _is_inside(frame: FrameType) -> bool:
    """Whether the function that made a function still runs, as around a lambda that it maps over leaves."""
    outer = frame.f_back
    while outer is not None:
        if frame.f_code in outer.f_code.co_consts:
            return True
        outer = outer.f_back
    return False


def _numbers(given: Iterable[tuple[str, Any]]) -> frozenset[tuple[str, float]]:
    return frozenset((name, float(value)) for name, value in given if _is_number(value))


def _read(code: CodeType) -> Iterator[str]:
    """Names of globals and fields that a function reads, and keys of dictionaries, with the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _read(constant)


def _read_by_property(value: Any, name: str) -> Iterable[str]:
    got = getattr(getattr(type(value), name, None), "fget", None)
    return _read(got.__code__) if isinstance(got, FunctionType) else ()


def _lines(code: CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line]
    return min(lines, default=0), max(lines, default=0)


def _is_configuration(given: Any) -> bool:
    """Whether it only holds values: what an object of the user's keeps beside tensors and modules."""
    return isinstance(given, dict | tuple | SimpleNamespace) or dataclasses.is_dataclass(given)


def _fields(given: Any) -> list[tuple[str, Any]]:
    """Fields of a configuration."""
    if isinstance(given, dict):
        inside = given
    elif isinstance(given, tuple):
        inside = dict(zip(getattr(given, "_fields", ()), given, strict=False))
    else:
        inside = getattr(given, "__dict__", {})
    # some objects hand every attribute on to what they hold
    inside = inside if isinstance(inside, dict) else {}
    return [(str(name), value) for name, value in itertools.islice(inside.items(), MOST_FIELDS)]


def _near(number: float, others: Iterable[float]) -> bool:
    return any(abs(other - number) <= NEAR * abs(number) for other in others)


def _is_number(given: Any) -> bool:
    return isinstance(given, float | np.floating) and bool(np.isfinite(given)) and given != 0
