"""Which line of the user's hands one key out twice, or copies it: Python does that, and no equation of JAX shows it."""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from audit.diagnosis.explain.places import (
    Frame,
    Place,
    called,
    function_around,
    is_nested,
    named_at,
    names_read,
    returned_from,
    statement_at,
)
from audit.diagnosis.explain.watched_code import is_theirs, tell_calls
from mechanisms.adapters.watched_calls import calls_told_to

NOISE = re.compile("noise|gauss|perturb|jitter", re.IGNORECASE)
BATCHES = re.compile("batch|sampl|coin|poisson|mask|select|pick|loader|choose|chosen|member", re.IGNORECASE)
ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def is_for_other(frame: Frame | None, *, chooses: bool) -> bool:
    """Whether a line takes a key that is called one for noise to choose records, or the other way round."""
    node = None if frame is None else statement_at(frame)
    names = [] if node is None else [name for part in ast.walk(node) for name in _arguments(part)]
    own, other = (BATCHES, NOISE) if chooses else (NOISE, BATCHES)
    return any(other.search(name) for name in names) and not any(own.search(name) for name in names)


def _arguments(node: ast.AST) -> list[str]:
    """Names and attributes that a call is given as they are."""
    given = [*node.args, *(word.value for word in node.keywords)] if isinstance(node, ast.Call) else []
    return [getattr(one, "attr", getattr(one, "id", "")) for one in given if isinstance(one, ast.Name | ast.Attribute)]


def renews(frame: Frame) -> bool:
    """Whether a line gives a new value to something that it reads, as ``key, own = split(key)`` does."""
    node = statement_at(frame)
    if not isinstance(node, ASSIGNING) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    given = {ast.unparse(one) for target in targets for one in _parts(target)}
    return bool(given & {ast.unparse(one) for one in ast.walk(node.value) if isinstance(one, ast.Name | ast.Attribute)})


def _parts(target: ast.expr) -> list[ast.expr]:
    inside = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [one.value if isinstance(one, ast.Starred) else one for one in inside]


def stuck_counter(at: Place) -> tuple[str, Place] | None:
    """What a line folds into a key, and the line of its function that returns it; None where there is no such line.

    Of a key that is the same each time: then so is what is folded in.
    """
    node = None if at.nearest is None else statement_at(at.nearest)
    calls = [] if node is None else [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    folds = [one for one in calls if called(one) == "fold_in"]
    for counter in (one.args[1] for one in folds if len(one.args) == 2):
        root = next((one.id for one in ast.walk(counter) if isinstance(one, ast.Name)), None)
        for told in reversed(returned_from(at.own[0])):
            inside = {one.id for one in ast.walk(told) if isinstance(one, ast.Name)}
            if root in inside and told.lineno != at.own[0][1]:
                return ast.unparse(counter), Place(own=((at.own[0][0], told.lineno), *at.own[1:]))
    return None


RANDOM = getattr(getattr(jax.random.split, "__code__", None), "co_filename", "")
"""The file in which JAX takes keys from its users; in a version where that is not known, nothing is."""
LOOPS = getattr(getattr(inspect.unwrap(jax.lax.scan), "__code__", None), "co_filename", "")
"""The file of its loops."""
STARTS = ("init", "init_val")
"""Arguments that a loop begins with."""
MOST_HELD = 256
"""Entries of a list that are looked at."""
DEEPEST_HELD = 4
"""Lists inside of lists that are looked at."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handed:
    """Where a key is handed out twice."""

    at: Place
    """The line that does it a second time, or that copies the key."""
    first: Place
    """The line that does it the first time."""
    copies: bool = False


@dataclasses.dataclass(frozen=True)
class _Taken:
    """A function of JAX that was given a key: the key's identity, and the calls of the user's that were running."""

    key: int
    stack: tuple[tuple[int, Frame], ...]
    """A number for each call, and its line; the innermost first."""

    def is_at(self, place: Place) -> bool:
        """Whether an equation that it made stands at a place: inside of a loop JAX knows no lines around the loop."""
        own = tuple(dict.fromkeys(frame for _, frame in self.stack))
        return bool(place.own) and own[: len(place.own)] == place.own


@dataclasses.dataclass(frozen=True)
class _Held:
    """What a call of the user's held when it returned: the names of one key, and of lists that hold it twice."""

    names: frozenset[str]
    lists: frozenset[str]


class Hands:
    """One run of the user's Python, with all that was done to keys."""

    def __init__(self, code: Callable[[], object]):
        self._taken: list[_Taken] = []
        self._held: dict[tuple[int, int], _Held] = {}
        self._outside: set[tuple[int, int]] = set()
        """Calls, and keys that they have from the function around theirs."""
        self._given: set[tuple[int, int]] = set()
        """Calls, and keys that are arguments of theirs."""
        self._told: dict[int, dict[str, Any]] = {}
        """The words and numbers that calls are given as arguments."""
        self._ignored: dict[int, frozenset[str]] = {}
        """Arguments that the functions of calls never read."""
        self._by_jax: set[int] = set()
        """Calls that a library makes, such as those of a loop's body."""
        self._copied: dict[int, Place] = {}
        """Where a function returned a list that holds a key twice, by the key."""
        self._carried: dict[Frame, set[Place]] = {}
        """Where keys became two that a loop begins with, by the line of the loop."""
        self._running: dict[FrameType, int] = {}
        self._calls = itertools.count()
        # an identity is that of one object as long as the object lives
        self._alive: list[Any] = []
        with calls_told_to(self._watch):
            code()
        self._alive.clear()

    def handed(self, first: Place, second: Place, *, of_state: bool) -> Handed | None:
        """Where the key of two draws, or of two derivations, was handed out twice; None if Python does not show it.

        ``of_state`` says that taking it out of a state is such a place: not where other keys are derived of it, or
        where it is known what made it one of several that are alike.
        """
        for number, other in enumerate(self._taken):
            if not other.is_at(second):
                continue
            for one in self._taken[:number]:
                if one.key == other.key and one.is_at(first):
                    return self._found(one, other)
        own = [one for one in self._taken if one.is_at(second)]
        return self._from_outside(own[0], of_state) if first.own == second.own and len(own) == 1 else None

    def derived_alike(self, first: Place, second: Place) -> Place | None:
        """The line by which two calls of one function come by one key, and no caller is to blame; None if one may be.

        The line reads words or numbers that are not the same in both calls, or the function ignores such, or there are
        none of them and a key that no caller gives: then the function keeps the key, and hands it out again.
        """
        before = next((one for one in self._taken if one.is_at(first)), None)
        after = (one for one in self._taken if before is not None and one is not before and one.key == before.key)
        later = next((one for one in after if one.is_at(second)), None)
        if before is None or later is None:
            return None
        for (one, line), (other, again) in zip(before.stack, later.stack, strict=False):
            if one == other or line != again:
                return None
            read = names_read(line) | self._ignored[one]
            told = [{name: own for name, own in self._told[call].items() if name in read} for call in (one, other)]
            if told[0] != told[1] or not (told[0] or (one, before.key) in self._given):
                return _place([line])
        return None

    def carried_twice(self, loop: Frame | None) -> Place | None:
        """Where a key became two that a loop begins with; None if that is not known, or true of several."""
        places = self._carried.get(loop, set()) if loop is not None else set()
        return next(iter(places)) if len(places) == 1 else None

    def _from_outside(self, taken: _Taken, of_state: bool) -> Handed | None:
        """Where a function that runs in each step of a loop takes a key of the function around it, or of a state."""
        for depth, (call, _) in enumerate(taken.stack):
            if (call, taken.key) in self._outside or (of_state and (call, taken.key) not in self._given):
                at = _place(frame for _, frame in taken.stack[depth:])
                return Handed(at=at, first=at)
            of_state = of_state and call not in self._by_jax
        return None

    def _found(self, one: _Taken, other: _Taken) -> Handed | None:
        before = dict(one.stack)
        depth = next((depth for depth, (call, _) in enumerate(other.stack) if call in before), None)
        if depth is None:
            return None
        call, line = other.stack[depth]
        frames = [frame for _, frame in other.stack]
        told = Handed(at=_place(frames[depth:]), first=_place([before[call]]))
        if one.key in self._copied:
            return dataclasses.replace(told, at=self._copied[one.key], copies=True)
        held = self._held_by(call, one.key)
        if not held.names | held.lists and (kept := self._of_object(one, other, call)) is not None:
            return kept
        if (copy := _copy_of(held, before[call], line)) is not None:
            return dataclasses.replace(told, at=_place([copy, *frames[depth + 1 :]]), copies=True)
        for outer, (around, at) in enumerate(other.stack[depth + 1 :], depth + 2):
            # a list that holds the key twice may be made further out, and given to this call
            if (copy := _list_of(self._held_by(around, one.key), at)) is not None:
                return dataclasses.replace(told, at=_place([copy, *frames[outer:]]), copies=True)
        if before[call] == line and depth and is_nested(frames[depth - 1], line):
            # a function inside of this one, such as the body of a loop
            return dataclasses.replace(told, at=_place(frames[depth - 1 :]))
        return told

    def _of_object(self, one: _Taken, other: _Taken, call: int) -> Handed | None:
        """Where a key is taken twice out of something that a call holds: by the line that does not renew it."""
        places = []
        for taken in (one, other):
            inner = list(itertools.takewhile(lambda frame: frame[0] != call, taken.stack))
            depth = next((depth for depth, (own, _) in enumerate(inner) if (own, taken.key) not in self._given), None)
            if depth is None:
                return None
            places.append(_place(frame for _, frame in taken.stack[depth:]))
        first, second = places
        if renews(second.own[0]) and not renews(first.own[0]):
            first, second = second, first
        return Handed(at=second, first=first)

    def _held_by(self, call: int, key: int) -> _Held:
        return self._held.get((call, key), _Held(frozenset(), frozenset()))

    def _watch(self, frame: FrameType, event: str, returned: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path == RANDOM:
            self._take(frame)
        elif event == "call" and path == LOOPS:
            self._begin(frame)
        elif not is_theirs(frame):
            return
        elif event == "call":
            self._running[frame] = next(self._calls)
            self._told[self._running[frame]] = _words_given(frame)
            self._ignored[self._running[frame]] = _never_read(frame.f_code)
            self._by_jax.update([self._running[frame]] if frame.f_back not in self._running else [])
        elif event == "return" and frame in self._running:
            self._leave(frame, self._running.pop(frame), returned)

    def _take(self, frame: FrameType) -> None:
        key, outer = frame.f_locals.get("key"), frame.f_back
        if not _is_key(key) or outer is None or outer.f_code.co_filename == RANDOM:
            return
        stack = []
        while outer is not None:
            if outer in self._running:
                stack.append((self._running[outer], (outer.f_code.co_filename, outer.f_lineno)))
            outer = outer.f_back
        self._alive.append(key)
        self._taken.append(_Taken(id(key), tuple(stack)))

    def _begin(self, frame: FrameType) -> None:
        outer = frame.f_back
        while outer is not None and outer not in self._running:
            outer = outer.f_back
        if outer is None:
            return
        for key in _twice([frame.f_locals[name] for name in STARTS if name in frame.f_locals]):
            line = outer.f_code.co_filename, outer.f_lineno
            names = sorted(name for name, value in outer.f_locals.items() if value is key)
            copies = [at for at in (named_at(line, name) for name in names) if at is not None]
            copied = _place([copies[0] if len(names) > 1 and copies else line])
            self._carried.setdefault(line, set()).add(copied)

    def _leave(self, frame: FrameType, call: int, returned: Any) -> None:
        local, code = dict(frame.f_locals), frame.f_code
        arguments = _arguments_of(code)
        names: dict[int, set[str]] = {}
        lists: dict[int, set[str]] = {}
        for name, value in local.items():
            if _is_key(value):
                names.setdefault(id(value), set()).add(name)
                self._outside.update([(call, id(value))] if name in code.co_freevars else [])
                self._given.update([(call, id(value))] if name in arguments else [])
                self._alive.append(value)
            for key in _twice(value):
                lists.setdefault(id(key), set()).add(name)
                self._alive.append(key)
        for key in {*names, *lists}:
            own = frozenset(names.get(key, ())), frozenset(lists.get(key, ()))
            self._held[call, key] = _Held(*own)
        line = frame.f_code.co_filename, frame.f_lineno
        for key in _twice(returned):
            self._alive.append(key)
            made = [named_at(line, name) for name in lists.get(id(key), ())]
            self._copied.setdefault(id(key), _place([next((at for at in made if at is not None), line)]))


def kept_at(code: Callable[[], object], place: Place) -> Place:
    """From the line on whose function has a constant key that it is not given: of an object, or a global one."""
    given: set[Frame] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and any(_is_key(value, jax.Array) for value in frame.f_locals.values()):
            given.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    tell_calls(code, watch)
    depths = (depth for depth, frame in enumerate(place.own) if function_around(frame) not in given)
    return Place(own=place.own[next(depths, 0) :])


@functools.lru_cache(maxsize=1024)
def _never_read(code: CodeType) -> frozenset[str]:
    loads = (one.argval for one in dis.get_instructions(code) if one.opname.startswith("LOAD"))
    read = {name for own in loads for name in (own if isinstance(own, tuple) else (own,))}
    return frozenset(_arguments_of(code)).difference(read, code.co_cellvars)


def _arguments_of(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _words_given(frame: FrameType) -> dict[str, Any]:
    given = {name: frame.f_locals.get(name) for name in _arguments_of(frame.f_code)}
    return {name: value for name, value in given.items() if isinstance(value, str | bytes | int | float)}


def _copy_of(held: _Held, first: Frame, second: Frame) -> Frame | None:
    """The line that puts a key into a list twice, or that gives it a second name which the second use reads."""
    if (made := _list_of(held, second)) is not None:
        return made
    one, other = (held.names & names_read(line) for line in (first, second))
    if not one or not other or one & other:
        return None
    return next((at for at in (named_at(second, name) for name in sorted(other) + sorted(one)) if at is not None), None)


def _list_of(held: _Held, line: Frame) -> Frame | None:
    """The line that makes a list of a call's own which holds a key twice."""
    return next((at for at in (named_at(line, name) for name in sorted(held.lists)) if at is not None), None)


def _place(frames: Iterable[Frame]) -> Place:
    return Place(own=tuple(dict.fromkeys(frames)))


def _twice(value: Any) -> list[Any]:
    """Keys that a list, a dictionary or a record of the user's holds more than once."""
    seen: dict[int, tuple[Any, int]] = {}
    for key in itertools.islice(_keys_in(value, DEEPEST_HELD), MOST_HELD):
        seen[id(key)] = key, seen.get(id(key), (key, 0))[1] + 1
    return [key for key, times in seen.values() if times > 1]


def _keys_in(value: Any, deep: int) -> Iterator[Any]:
    if isinstance(value, dict):
        inside: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = vars(value).values() if hasattr(value, "__dict__") else ()
    else:
        return
    for one in list(inside)[:MOST_HELD]:
        if _is_key(one):
            yield one
        elif deep:
            yield from _keys_in(one, deep - 1)


def _is_key(value: Any, kind: type = Tracer) -> bool:
    """Whether it is one key, new or old, while JAX traces; of kind ``jax.Array`` one that is known by then."""
    if not isinstance(value, kind) or (kind is not Tracer and isinstance(value, Tracer)):
        return False
    typed = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return bool(typed or (value.dtype == np.uint32 and value.shape[-1:] == (2,)))
