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
from types import CodeType
from typing import Any

from audit.trials.library_files import is_library, is_ours

Frame = tuple[str, int]
"""A line of code, as (path, line)."""
CALLERS = 4
"""Lines that called a function by which one call of it is known."""
OWN_FRAMES = 3
"""Most frames of the user's that are reported for one place."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CHOOSING = (ast.If, ast.IfExp)
LEAVING = frozenset(("continue", "break", "return"))
ASSIGNING = (ast.Assign, ast.AnnAssign, ast.NamedExpr)
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
CONSTRUCTORS = frozenset(("__init__", "__post_init__"))
COMPREHENSIONS = (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
REPEATING = (ast.For, *COMPREHENSIONS)


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
"""The place to give if no line is known."""


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
    return frame[0], max((start for start, _, _ in _holding(frame, FUNCTIONS)), default=0)


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
    starts = []
    for frame in at.own[:1]:
        deciding = [*_holding(frame, CHOOSING), *(_repeating(frame) if loops else ())]
        starts = [start for start, _, _ in deciding if start > function_around(frame)[1]]
    return Place(own=((at.own[0][0], max(starts)),)) if starts else NOWHERE


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
    over = next((depth for depth, frame in enumerate(first.own) if _repeating(frame)), 0)
    around = [_outermost_function(frame) for frame in first.own[: over + 1]]
    return Place(own=first.own[around.index(around[over]) :]) if around else first


def _outermost_function(frame: Frame) -> Frame:
    return frame[0], min((start for start, _, _ in _holding(frame, FUNCTIONS)), default=0)


def is_nested(inner: Frame, outer: Frame) -> bool:
    """Whether the function of one line is written inside of the function of another."""
    return inner != outer and _outermost_function(inner) == _outermost_function(outer) != (outer[0], 0)


def named_at(frame: Frame, name: str) -> Frame | None:
    """Where the function around a line gives a name its value, if it does: the last such line before, or else after."""
    path, line = frame
    first = function_around(frame)[1]
    given = [one for _, _, node in spans(path, ASSIGNING) for one in _targets(node) if one.id == name]
    lines = [one.lineno for one in given if function_around((path, one.lineno))[1] == first]
    before = [at for at in lines if at <= line]
    return (path, max(before)) if before else (path, min(lines)) if lines else None


def argument_line(frame: Frame, name: str, value: object) -> int:
    """The line on which the call of a line names an argument; of ``**options`` the one that gives the value there."""
    path, line = frame
    for _, _, call in sorted(_holding(frame, (ast.Call,)), key=_length):
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.lineno
            options = keyword.value.id if keyword.arg is None and isinstance(keyword.value, ast.Name) else ""
            if options and (set_at := _set_entry(frame, options, name)):
                return set_at
            for made in (named_at(frame, options), named_at((path, sys.maxsize), options)) if options else ():
                if made is not None and (found := _entry(made, name, value)) is not None:
                    return found
    return line


def may_hand(frame: Frame, code: CodeType, name: str) -> bool:
    """Whether a call on a line is written with an argument of a function; also where no source is known.

    Calls of the function's name count, or all of them where it goes by another name there.
    """
    calls, position = _calls_of(frame, code, name)
    named = any(keyword.arg in (None, name) for call in calls for keyword in call.keywords)
    placed = any(len(call.args) > position or any(isinstance(one, ast.Starred) for one in call.args) for call in calls)
    return named or placed or not calls


def variable_handed(frame: Frame, code: CodeType, name: str) -> str:
    """The variable that a call on a line hands over as an argument of a function; none where it computes a value."""
    calls, position = _calls_of(frame, code, name)
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == name]
    given += [call.args[position] for call in calls if len(call.args) > position]
    return given[0].id if len(given) == 1 and isinstance(given[0], ast.Name) else ""


def chosen_for(at: Place) -> Place:
    """The line that chooses some of the parts, by a condition, that the innermost function is given; else NOWHERE."""
    if len(at.own) < 2:
        return NOWHERE
    (path, first), call = function_around(at.own[0]), at.own[1]
    names = [node.name for _, _, node in spans(path, FUNCTIONS) if node.lineno == first]
    for given in (one for _, _, made in _holding(call, (ast.Call,)) if called(made) in names for one in made.args):
        by_name = named_at(call, given.id) if isinstance(given, ast.Name) else None
        parts = ast.walk(given if by_name is None else statement_at(by_name) or given)
        if any(isinstance(part, ast.comprehension) and part.ifs for part in parts):
            return Place(own=(by_name or (call[0], given.lineno), *at.own[2:]))
    return NOWHERE


def _calls_of(frame: Frame, code: CodeType, name: str) -> tuple[list[ast.Call], int]:
    """The calls of a function on a line, and the place of an argument in them."""
    many = code.co_varnames[: code.co_argcount]
    position = many.index(name) - (many[0] in ("self", "cls")) if name in many else sys.maxsize
    calls = [call for _, _, call in _holding(frame, (ast.Call,))]
    return [call for call in calls if called(call) == code.co_name] or calls, position


def _set_entry(frame: Frame, options: str, name: str) -> int | None:
    """The last line before another one, in its function, that sets an entry of a dictionary."""
    path, line = frame
    lines = [
        node.lineno
        for _, _, node in spans(path, (ast.Assign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == options
        if getattr(target.slice, "value", None) == name
    ]
    own = [at for at in lines if at <= line and function_around((path, at)) == function_around(frame)]
    return max(own, default=None)


def _entry(frame: Frame, name: str, value: object) -> int | None:
    """The line of an entry of a dictionary that is written out in a statement, if it has this value or computes one."""
    for node in ast.walk(statement_at(frame) or ast.Pass()):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(node, ast.Dict):
            pairs = [(getattr(key, "value", None), one) for key, one in zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.Call):
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        for key, one in pairs:
            if key == name and not (isinstance(one, ast.Constant) and one.value != value):
                return one.lineno
    return None


def names_read(frame: Frame) -> frozenset[str]:
    """Names that the innermost statement of a line reads."""
    read = ast.walk(statement_at(frame) or ast.Pass())
    return frozenset(one.id for one in read if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def statement_at(frame: Frame) -> ast.stmt | None:
    """The innermost simple statement of a line."""
    around = _holding(frame, SIMPLE)
    return min(around, key=_length)[2] if around else None


def returned_from(frame: Frame) -> list[ast.Return]:
    """What the function around a line returns, in the order of its lines."""
    path, own = frame[0], function_around(frame)
    return [node for _, _, node in spans(path, (ast.Return,)) if function_around((path, node.lineno)) == own]


Span = tuple[int, int, Any]
"""The first and the last line of a node of a source file, decorators included, and the node."""


@functools.lru_cache(maxsize=256)
def _nodes(path: str) -> list[Any]:
    try:
        return list(ast.walk(ast.parse("".join(linecache.getlines(path)))))
    except (SyntaxError, ValueError):
        return []


@functools.lru_cache(maxsize=2048)
def spans(path: str, kinds: tuple[type[Any], ...]) -> list[Span]:
    """The nodes of some kinds in a source file; none where it cannot be read."""
    return [
        (min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]), node.end_lineno, node)
        for node in _nodes(path)
        if isinstance(node, kinds)
    ]


def _holding(frame: Frame, kinds: tuple[type[Any], ...]) -> list[Span]:
    """Those of them that hold a line."""
    path, line = frame
    return [span for span in spans(path, kinds) if span[0] <= line <= span[1]]


def _length(span: Span) -> int:
    return span[1] - span[0]


def _repeating(frame: Frame) -> list[Span]:
    """What goes over parts and holds a line: loops, comprehensions and calls of ``map`` or ``tree_map``."""
    held = _holding(frame, (*REPEATING, ast.Call))
    return [span for span in held if not isinstance(span[2], ast.Call) or called(span[2]) in ("map", "tree_map")]


def is_of_comprehension(frame: Frame, name: str) -> bool:
    """Whether a comprehension that this line holds goes over values under this name.

    From Python 3.12 on it is then a variable of the function.
    """
    parts = (part for _, _, node in _holding(frame, COMPREHENSIONS) for part in node.generators)
    return any(target.id == name for part in parts for target in _targets(part))


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _targets(node: Any) -> list[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


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
        if any(node.name in CONSTRUCTORS for _, _, node in _holding(frame, FUNCTIONS)):
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


def refused_by_us(error: BaseException) -> bool:
    """Whether it says so on purpose, and is no fault of ours."""
    return raised_by_us(error) and (traceback.extract_tb(error.__traceback__)[-1].line or "").startswith("raise ")


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
