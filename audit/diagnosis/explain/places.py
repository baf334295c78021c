"""Places in source code: a stack of frames, the user's own first."""

from __future__ import annotations

import ast
import dataclasses
import functools
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from audit.trials.library_files import is_library, is_ours

Frame = tuple[str, int]
"""(path, line)."""
CALLERS = 4
"""Lines that called a function by which one call of it is known."""
OWN_FRAMES = 3
"""Frames of the user's that are told of one place."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CHOOSING = (ast.If, ast.IfExp)
LEAVING = frozenset(("continue", "break", "return"))
ASSIGNING = (ast.Assign, ast.AnnAssign, ast.NamedExpr)
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
CONSTRUCTORS = frozenset(("__init__", "__post_init__"))
REPEATING = (ast.For, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)


@dataclasses.dataclass(frozen=True)
class Place:
    """One place: the innermost frame of the user's and its callers, then the innermost frame of a library."""

    own: tuple[Frame, ...]
    library: tuple[Frame, ...] = ()
    entered: Frame | None = dataclasses.field(default=None, compare=False)
    """The line of JAX that the innermost frame of the user's called."""

    @property
    def nearest(self) -> Frame | None:
        """The frame to look at first."""
        return next(iter((*self.own, *self.library)), None)


NOWHERE = Place(own=())
"""Where no line is known."""


def place(frames: Iterable[Frame], most: int = OWN_FRAMES) -> Place:
    """The place of a stack, innermost frame first, with so many frames of the user's at most."""
    frames = list(frames)
    # a generator or a lambda has a frame of its own on the line that holds it
    own = list(dict.fromkeys(frame for frame in frames if not is_library(frame[0])))
    library = [frame for frame in frames if is_library(frame[0]) and not frame[0].startswith("<")]
    # where the user has lines, one of this toolkit's tells nothing
    innermost = library[:1] if frames[:1] == library[:1] and not (own and is_ours(library[0][0])) else []
    return Place(own=tuple(own[:most]), library=tuple(innermost))


@functools.lru_cache(maxsize=4096)
def function_around(frame: Frame) -> Frame:
    """The function that a line stands in, by its file and its first line; line 0 for one outside of all functions."""
    path, line = frame
    starts = [start for start, end in _parsed(path).functions if start <= line <= end]
    return path, max(starts, default=0)


Reader = Frame | tuple[Frame, tuple[Frame, ...]]
"""A function that reads records, or one call of it: with the lines that called it."""


def calls_of(at: Place) -> Iterator[tuple[Frame, tuple[Frame, ...]]]:
    """The functions of a place from the innermost on, each with the lines that called it."""
    for depth, frame in enumerate(at.own):
        yield function_around(frame), at.own[depth + 1 : depth + 1 + CALLERS]


def among_records(at: Place, readers: Set[Reader], handed: Callable[[Frame], bool] | None = None) -> Place:
    """Where a number that a program holds comes from: the first caller whose function has records in its hands.

    A helper that only adds noise is given the number; a function that reads records and adds noise may make it itself.
    A helper that multiplies records in one call and something else in another is known by its callers. ``handed`` says
    whether a line's function is given the number, where that is known: one that is not makes it.
    """
    for depth, call in enumerate(calls_of(at)):
        makes = handed is not None and not handed(at.own[depth])
        if call in readers or call[0] in readers or makes:
            return Place(own=at.own[depth:], library=at.library if depth == 0 else ())
    return at


def statement_around(at: Place, *, loops: bool) -> Place:
    """The innermost condition, or also loop, of a line's own function that decides whether the line is reached."""
    for path, line in at.own[:1]:
        file, function = _parsed(path), function_around((path, line))[1]
        lines = file.chosen + (file.repeated if loops else ())
        starts = [start for start, end in lines if function < start <= line <= end]
        return Place(own=((path, max(starts)),)) if starts else NOWHERE
    return NOWHERE


def decided_at(at: Place) -> Place:
    """The condition that leads to a line which leaves its function, loop or round; else the line itself."""
    words = {word for path, line in at.own[:1] for word in linecache.getline(path, line).split()[:1]}
    condition = statement_around(at, loops=False) if words & LEAVING else NOWHERE
    return at if condition is NOWHERE else Place(own=(*condition.own, *at.own[1:]))


def taken_apart(places: Sequence[Place]) -> Place:
    """Where a helper was called for several parts one by one, by the places of what it did to each of them.

    That is where their stacks part, or the innermost line that goes over parts; a function inside of the one that goes
    over them does it itself.
    """
    first = places[0]
    own = [depth for depth, frame in enumerate(first.own) if any(frame not in other.own for other in places[1:])]
    if own:
        return Place(own=first.own[own[-1] :])
    over = next((depth for depth, frame in enumerate(first.own) if _goes_over(frame)), 0)
    around = [_outermost_function(frame) for frame in first.own[: over + 1]]
    return Place(own=first.own[around.index(around[over]) :]) if around else first


def _goes_over(frame: Frame) -> bool:
    path, line = frame
    return any(start <= line <= end for start, end in _parsed(path).repeated)


def _outermost_function(frame: Frame) -> Frame:
    path, line = frame
    return path, min((start for start, end in _parsed(path).functions if start <= line <= end), default=0)


def is_nested(inner: Frame, outer: Frame) -> bool:
    """Whether the function of one line is written inside of the function of another."""
    return inner != outer and _outermost_function(inner) == _outermost_function(outer) != (outer[0], 0)


def named_at(frame: Frame, name: str) -> Frame | None:
    """Where the function around a line gives a name its value, if it does: the last such line before, or else after."""
    path, line = frame
    first = function_around(frame)[1]
    lines = [at for at, own in _parsed(path).assigned if own == name and function_around((path, at))[1] == first]
    before = [at for at in lines if at <= line]
    return (path, max(before)) if before else (path, min(lines)) if lines else None


def argument_line(frame: Frame, name: str, value: object) -> int:
    """The line on which the call of a line names an argument; of ``**options`` the one that gives the value there."""
    path, line = frame
    around = [(end - start, node) for start, end, node in _parsed(path).calls if start <= line <= end]
    for _, call in sorted(around, key=lambda one: one[0]):
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.lineno
            options = keyword.value.id if keyword.arg is None and isinstance(keyword.value, ast.Name) else ""
            for made in (named_at(frame, options), named_at((path, sys.maxsize), options)) if options else ():
                if made is not None and (found := _entry(made, name, value)) is not None:
                    return found
    return line


def may_hand(frame: Frame, name: str, position: int) -> bool:
    """Whether a call on a line is written with such an argument, or with so many; also where no source is known."""
    path, line = frame
    calls = [call for start, end, call in _parsed(path).calls if start <= line <= end]
    named = any(keyword.arg in (None, name) for call in calls for keyword in call.keywords)
    placed = any(len(call.args) > position or any(isinstance(one, ast.Starred) for one in call.args) for call in calls)
    return named or placed or not calls


def _entry(frame: Frame, name: str, value: object) -> int | None:
    """The line of an entry of a dictionary that is written out in a statement, if it has this value."""
    for node in ast.walk(statement_at(frame) or ast.Pass()):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(node, ast.Dict):
            pairs = [(getattr(key, "value", None), one) for key, one in zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.Call):
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        for key, one in pairs:
            if key == name and isinstance(one, ast.Constant) and one.value == value:
                return one.lineno
    return None


def names_read(frame: Frame) -> frozenset[str]:
    """Names that the innermost statement of a line reads."""
    node = statement_at(frame)
    return frozenset() if node is None else frozenset(map(_id, ast.walk(node))) - {""}


def statement_at(frame: Frame) -> ast.stmt | None:
    """The innermost simple statement of a line."""
    path, line = frame
    around = [(end - start, node) for start, end, node in _parsed(path).simple if start <= line <= end]
    return min(around, key=lambda one: one[0])[1] if around else None


def returned_from(frame: Frame) -> list[ast.Return]:
    """What the function around a line returns, in the order of its lines."""
    path, own = frame[0], function_around(frame)
    told = [node for _, _, node in _parsed(path).simple if isinstance(node, ast.Return)]
    return [node for node in told if function_around((path, node.lineno)) == own]


Lines = tuple[int, int]
"""The first and the last."""


@dataclasses.dataclass(frozen=True)
class _File:
    """Lines of a source file; none where it cannot be read."""

    functions: tuple[Lines, ...] = ()
    """Of functions with a name."""
    repeated: tuple[Lines, ...] = ()
    """Of what goes over parts: loops, comprehensions and calls of ``map`` or ``tree_map``."""
    chosen: tuple[Lines, ...] = ()
    """Of conditions."""
    assigned: tuple[tuple[int, str], ...] = ()
    """Where names get their values."""
    simple: tuple[tuple[int, int, Any], ...] = ()
    """Of simple statements, with the statement."""
    calls: tuple[tuple[int, int, Any], ...] = ()
    """The same of calls."""
    making: tuple[Lines, ...] = ()
    """Of functions that make an object."""


@functools.lru_cache(maxsize=256)
def _parsed(path: str) -> _File:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return _File()
    nodes = list(ast.walk(tree))
    return _File(
        functions=tuple(map(_with_decorators, (node for node in nodes if isinstance(node, FUNCTIONS)))),
        repeated=_lines(node for node in nodes if isinstance(node, REPEATING) or _maps(node)),
        chosen=_lines(node for node in nodes if isinstance(node, CHOOSING)),
        assigned=tuple((name.lineno, name.id) for node in nodes for name in _targets(node)),
        simple=_with_lines(node for node in nodes if isinstance(node, SIMPLE)),
        calls=_with_lines(node for node in nodes if isinstance(node, ast.Call)),
        making=_lines(node for node in nodes if isinstance(node, FUNCTIONS) and node.name in CONSTRUCTORS),
    )


def _targets(node: ast.AST) -> list[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [name for target in targets if target is not None for name in ast.walk(target)]
    return [name for name in names if isinstance(name, ast.Name)] if isinstance(node, ASSIGNING) else []


def _id(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ""


def _with_lines(nodes: Iterable[Any]) -> tuple[tuple[int, int, Any], ...]:
    return tuple((node.lineno, node.end_lineno or node.lineno, node) for node in nodes)


def _lines(nodes: Iterable[Any]) -> tuple[Lines, ...]:
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in nodes)


def _with_decorators(node: Any) -> Lines:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno


def _maps(node: ast.AST) -> bool:
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    return name in ("map", "tree_map")


def goes_on(noisy: Place, way: Iterable[Place], to_noise: Iterable[Place]) -> Place:
    """The line at which the function that has noise added to a sum goes on without it; NOWHERE if there is none.

    ``way`` is where the sum went that has no noise, ``to_noise`` where it went before noise was added.
    """
    known = {*noisy.own, *(frame for place in to_noise for frame in place.own[:1])}
    leads = (handed_out(noisy, place) for place in way if place.nearest not in known)
    return next((lead for lead in leads if lead.own and lead.nearest not in known), NOWHERE)


def handed_out(first: Place, second: Place) -> Place:
    """The line at which the innermost function that calls for both calls for the second; NOWHERE if none does."""
    outer = _shared(first, second)
    if outer < min(len(first.own), len(second.own)):
        one, other = first.own[-1 - outer], second.own[-1 - outer]
        if function_around(one) == function_around(other):
            return Place(own=second.own[-1 - outer :])
    return Place(own=second.own[-outer:]) if outer else NOWHERE


def called_in_turn(first: Place, second: Place) -> Place:
    """Where the first is in the part that the innermost line which calls for both calls for it; NOWHERE if none does.

    One function that does both in turn has two lines for them.
    """
    outer = _shared(first, second)
    inner = [at.own[: len(at.own) - outer] for at in (first, second)]
    if not outer or (all(inner) and function_around(inner[0][-1]) == function_around(inner[1][-1])):
        return NOWHERE
    return Place(own=first.own[-1 - outer :]) if inner[0] else first


def _shared(first: Place, second: Place) -> int:
    """How many of the outermost lines two places have in common."""
    outer = 0
    while outer < min(len(first.own), len(second.own)) and first.own[-1 - outer] == second.own[-1 - outer]:
        outer += 1
    return outer


def around(first: Place, second: Place) -> Place:
    """The line at which a function that calls for the first, or holds the function that does, calls for the second.

    An object's own line, if it is made there: who makes it need not know what it holds.
    """
    for depth, frame in enumerate(second.own):
        if any(is_nested(other, frame) or function_around(other) == function_around(frame) for other in first.own):
            return Place(own=second.own[depth:])
        if any(start <= frame[1] <= end for start, end in _parsed(frame[0]).making):
            return Place(own=second.own[depth:])
    return second


def place_of_error(error: BaseException) -> Place:
    """Where the user's code was when an exception came."""
    frames = traceback.extract_tb(error.__traceback__)
    return place((frame.filename, frame.lineno or 1) for frame in reversed(frames))


def line_of_ours(error: BaseException) -> Frame | None:
    """The line of this toolkit's at which an exception came up, by itself or in a library; None for one of others'."""
    frames = [(frame.filename, frame.lineno or 1) for frame in traceback.extract_tb(error.__traceback__)]
    last = next((frame for frame in reversed(frames) if is_ours(frame[0]) or not is_library(frame[0])), None)
    return last if last is not None and is_ours(last[0]) else None


def raised_by_us(error: BaseException) -> bool:
    """Whether this toolkit raised it, as where it cannot observe a training, and no code that it called."""
    return is_ours(traceback.extract_tb(error.__traceback__)[-1].filename)


def spelled(where: Place) -> str:
    """file:line, with the library's line where the innermost frame is not the user's."""
    if where.nearest is None:
        return "an unknown line"
    own = [f"{os.path.basename(path)}:{line}" for path, line in where.own[:1]]
    library = [f"{os.path.basename(path)}:{line}" for path, line in where.library]
    return f"{own[0]} (in {library[0]})" if own and library else (own or library)[0]


def frames_of(places: Iterable[Place]) -> tuple[Frame, ...]:
    """The frames of several places: the nearest of the user's of each, their callers, then those of libraries."""
    places = list(places)
    nearest = [where.own[0] for where in places if where.own]
    callers = [frame for where in places for frame in where.own[1:OWN_FRAMES]]
    libraries = [frame for where in places for frame in where.library]
    return tuple(dict.fromkeys([*nearest, *callers, *libraries]))
