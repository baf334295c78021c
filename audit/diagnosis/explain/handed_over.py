"""Where a wrong number comes from: the line that hands it to another function and was not handed it itself."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from audit.diagnosis.explain import places
from audit.diagnosis.explain.watched_code import callers, is_number, is_plain, is_theirs, tell_calls
from audit.trials.library_files import is_library
from mechanisms.adapters.watched_calls import calls_told_to

NEAR = 1e-3
"""Relative difference of numbers that are one, computed in two ways."""
SAMPLERS = "torch/utils/data/sampler.py"
"""PyTorch's file with the classes that give loaders their batches."""
PARTS = re.compile(r"size|micro|chunk|group|part", re.IGNORECASE)
OPTIMIZERS = "torch/optim/"
CLIPS = re.compile(r"clip|bound|max_?norm|limit|sensitivity|radius|^c$", re.IGNORECASE)
RATES = re.compile(r"rate|prob|frac|ratio|sampl|(^|_)[pq](_|$)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Handing:
    """A call that was given the number: the function's own frame and those of its callers, the user's alone."""

    name: str
    """Name of the argument."""
    entered: places.Frame
    """First line of the function."""
    callers: tuple[places.Frame, ...]
    known: bool
    """Whether the function that calls was given the number, too, or no line here gives it, as with a partial."""
    computed: bool = False
    """Whether the number is what the program computes for the argument's default."""


def handed_over(code: Callable[[], object], at: places.Place, number: float, names: re.Pattern[str]) -> places.Place:
    """The first line that hands a number to a function under one of these names; ``at`` where none does."""
    found = handed_as(code, number, names)
    return at if found is None else found[1]


def handed_as(code: Callable[[], object], number: float, names: re.Pattern[str]) -> tuple[str, places.Place] | None:
    """The argument that a number is first handed over as, and the line; None where nobody hands it over so.

    Not one whose own function was handed it. Where nobody hands it over, it is the default of the argument: its line.
    """
    for handing in _handings(code, number, names):
        if (default := _default(handing, number)) is not None:
            return handing.name, places.Place(own=(default, *handing.callers))
        if not handing.known:
            return handing.name, argument_of(places.Place(own=handing.callers), handing.name, number)
    return None


def argument_of(call: places.Place, name: str, value: object) -> places.Place:
    """The line of a call on which it names an argument, or that of the dictionary which it unpacks; else its own."""
    first, *outer = call.own
    return places.Place(own=((first[0], places.argument_line(first, name, value)), *outer))


def assigned_at(code: Callable[[], object], number: float, names: re.Pattern[str]) -> places.Place:
    """The only line that gives an attribute of such a name a value, in the functions that run; NOWHERE otherwise.

    A plain number must be ``number``; what else is assigned is not computed.
    """
    ran: dict[places.Frame, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.setdefault((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    tell_calls(code, watch)
    found = [
        (path, line)
        for path, first in ran
        for line, value in _assignments(path).get(first, ())
        if names.search(value[0]) and (value[1] is None or is_number(value[1], number, NEAR))
    ]
    return places.Place(own=(found[0],)) if len(found) == 1 else places.NOWHERE


def built_at(code: Callable[[], object], file: str, *, read: bool = False) -> places.Place:
    """The user's line that first makes an object of a class in a library's file; NOWHERE if none does.

    Or that makes the one which is ``read`` first, by a loader or itself.
    """
    made: dict[int, tuple[Any, places.Place]] = {}
    found: list[places.Place] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or found or not frame.f_code.co_filename.endswith(file):
            return
        own, name = frame.f_locals.get("self"), frame.f_code.co_name
        if name == "__init__":
            made[id(own)] = own, places.Place(own=callers(frame))
        if id(own) in made and (name == "__iter__" if read else made[id(own)][1].own):
            found.append(made[id(own)][1])

    with calls_told_to(watch):
        code()
    return next((place for place in found if place.own), places.NOWHERE)


def optimizer_at(code: Callable[[], object], step: places.Place) -> places.Place:
    """Where the optimizer is made that first takes the step of a line; NOWHERE if that is not seen."""
    made: dict[int, tuple[Any, places.Place]] = {}
    found: list[places.Place] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or found or OPTIMIZERS not in frame.f_code.co_filename:
            return
        own, name = frame.f_locals.get("self"), frame.f_code.co_name
        if name == "__init__":
            made.setdefault(id(own), (own, places.Place(own=callers(frame))))
        elif name == "step" and id(own) in made and callers(frame)[: len(step.own)] == step.own:
            found.append(made[id(own)][1])

    with calls_told_to(watch):
        code()
    return found[0] if found else places.NOWHERE


def parts_of_more(code: Callable[[], object], origin: places.Place) -> tuple[str, places.Place] | None:
    """How large the parts are into which the function of a line cuts a batch, as it is told, and where that is said.

    None where it is told of no number above one under such a name.
    """
    functions = {*map(places.function_around, origin.own[:1])}
    found: list[tuple[str, places.Place]] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        own = frame.f_code
        if event != "call" or found or (own.co_filename, own.co_firstlineno) not in functions or not callers(frame):
            return
        given = {name: frame.f_locals[name] for name in own.co_varnames[: own.co_argcount + own.co_kwonlyargcount]}
        for name, value in given.items():
            if PARTS.search(name) and isinstance(value, int) and value > 1 and _is_handed(frame, name):
                found.append((f"{name}={value}", argument_of(places.Place(own=callers(frame)), name, value)))

    tell_calls(code, watch)
    return found[0] if found else None


def handed_one_of(code: Callable[[], object], wrong: Sequence[float]) -> Callable[[places.Frame], bool]:
    """Whether the function of a line is given one of these numbers, one over it, or two factors of it."""
    every = functools.cache(functools.partial(_numbers_handed, code))

    def given(frame: places.Frame) -> bool:
        own = every().get(places.function_around(frame), frozenset()) - {0.0}
        made = {*own, *(1 / one for one in own), *(one * other for one in own for other in own)}
        return any(math.isclose(one, number, rel_tol=NEAR) for one in made for number in wrong)

    return given


def handed_apart(again: Callable[[int], None]) -> Callable[[places.Frame], bool]:
    """Whether the function of a line is given other numbers with the record than without it."""
    every = functools.cache(lambda side: _numbers_handed(functools.partial(again, side)))

    def given(frame: places.Frame) -> bool:
        return len({every(side).get(places.function_around(frame)) for side in (0, 1)}) > 1

    return given


def _handings(code: Callable[[], object], number: float, names: re.Pattern[str]) -> list[Handing]:
    found: list[Handing] = []
    knowing: dict[FrameType, bool] = {}
    arrived: dict[FrameType, dict[str, Any]] = {}

    def first(frame: FrameType, name: str) -> tuple[FrameType, str]:
        """The outermost function that a line gives it, under whatever name, and that hands on that argument."""
        outer, lines = frame.f_back, callers(frame)
        own = places.variable_handed(lines[0], frame.f_code, name) if lines and outer in arrived else ""
        if outer is None or not own or not is_number(arrived[outer].get(own), number, NEAR):
            return frame, name
        given = _is_handed(outer, own) or _is_default(outer, own, number)
        return first(outer, own) if given else (frame, name)

    def watch(frame: FrameType, event: str, _: Any) -> None:
        outer = frame.f_back
        if event == "return":
            knowing.pop(frame, None)
            arrived.pop(frame, None)
        if event != "call" or outer is None or not (is_theirs(frame) or is_theirs(outer)):
            return
        if is_theirs(frame):
            arrived[frame] = dict(_arguments(frame, fields=False))
        given = [name for name, value in _arguments(frame) if names.search(name) and is_number(value, number, NEAR)]
        knowing[frame] = bool(given) and _is_handed(frame, given[0])
        if given:
            frame, name = first(frame, given[0])
            handed = _is_handed(frame, name)
            known = not handed or (frame.f_back is not None and knowing.get(frame.f_back, False))
            entered = frame.f_code.co_filename, frame.f_code.co_firstlineno
            computed = not handed and _is_default(frame, name, number)
            found.append(Handing(name, entered, callers(frame), known, computed))

    with calls_told_to(watch):
        code()
    return found


def _is_handed(frame: FrameType, name: str) -> bool:
    """Whether a line of the user's gives an argument its value."""
    lines = callers(frame)
    return bool(lines) and places.may_hand(lines[0], frame.f_code, name)


def _numbers_handed(code: Callable[[], object]) -> dict[places.Frame, frozenset[float]]:
    """The plain numbers that the user's functions are given as arguments of their own, by ``function_around``."""
    found: dict[places.Frame, frozenset[float]] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and callers(frame):
            own = places.function_around((frame.f_code.co_filename, frame.f_code.co_firstlineno))
            given = [value for _, value in _arguments(frame, fields=False) if is_plain(value)]
            found[own] = found.get(own, frozenset()) | {float(value) for value in given}

    tell_calls(code, watch)
    return found


def _arguments(frame: FrameType, *, fields: bool = True) -> Iterator[tuple[str, Any]]:
    """Also the fields of dictionaries among them, or only those that are arguments, too."""
    code = frame.f_code
    many = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[many : many + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
    for name in (*code.co_varnames[:many], *rest):
        value = frame.f_locals.get(name)
        yield name, value
        if name in rest and isinstance(value, tuple):
            yield from ((name, one) for one in value)
        if isinstance(value, dict) and (fields or name in rest):
            yield from ((str(key), one) for key, one in value.items())


def _default(handing: Handing, number: float) -> places.Frame | None:
    """The line of an argument's default, if it is this number and stands in the user's code."""
    path, line = handing.entered
    if is_library(path):
        return None
    for default in _defaults(path).get((line, handing.name), ()):
        plain = isinstance(default, ast.Constant)
        if is_number(default.value, number, NEAR) if plain else handing.computed:
            return path, default.lineno
    return None


def _is_default(frame: FrameType, name: str, number: float) -> bool:
    """Whether a function that its module knows by its name has this number as an argument's default."""
    function: Any = frame.f_globals.get(frame.f_code.co_name)
    if getattr(function, "__code__", None) is not frame.f_code:
        return False
    known = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name == name]
    return any(is_number(parameter.default, number, NEAR) for parameter in known)


@functools.lru_cache(maxsize=256)
def _defaults(path: str) -> dict[tuple[int, str], list[ast.expr]]:
    """Default values, by the first line of their function and by argument."""
    found: dict[tuple[int, str], list[ast.expr]] = {}
    for first, _, node in places.spans(path, places.FUNCTIONS):
        given = [*node.args.posonlyargs, *node.args.args]
        pairs = [*zip(reversed(given), reversed(node.args.defaults), strict=False)]
        pairs += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
        for argument, default in pairs:
            if default is not None:
                found.setdefault((first, argument.arg), []).append(default)
    return found


@functools.lru_cache(maxsize=256)
def _assignments(path: str) -> dict[int, list[tuple[int, tuple[str, Any]]]]:
    """Assignments to attributes: lines, names and plain numbers, by the first line of their function."""
    found: dict[int, list[tuple[int, tuple[str, Any]]]] = {}
    for first, _, function in places.spans(path, places.FUNCTIONS):
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            plain = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            value = node.value.value if plain and isinstance(node.value, ast.Constant) else None
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                # an object that keeps what it is given changes nothing
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") != "self":
                    found.setdefault(first, []).append((node.lineno, (target.attr, value)))
    return found


INSIDE = "<locals>"
"""Marks a function that another one makes, in its name."""


def maker(code: Callable[[], object], place: places.Place) -> places.Place | None:
    """The line of the user's that had the function made in which a place is; None if there are several.

    A library's function at that place, or if none is there, one of the user's that another one makes and returns.
    """
    found: dict[tuple[places.Frame, ...], None] = {}
    frames = place.library or place.own[:1]

    def watch(frame: FrameType, event: str, _: Any) -> None:
        own = frame.f_code
        for path, line in frames:
            lines = {number for _, _, number in own.co_lines() if number} if own.co_filename == path else set()
            around = lines and min(lines) <= line <= max(lines) and INSIDE not in own.co_qualname
            # a function that has the line itself makes nothing there
            if event == "call" and around and (place.library or line not in lines):
                found.setdefault(callers(frame))

    with calls_told_to(watch):
        code()
    found.pop((), None)
    return places.Place(own=next(iter(found))) if len(found) == 1 else None
