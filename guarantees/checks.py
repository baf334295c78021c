"""Argument checks at the public border: a parameter's type says what it may be, and ``checked`` enforces it.

A plain ``float`` is any number but NaN, a plain ``int`` any integer; a ``bool`` is neither. The aliases below add a
range. What cannot be told from a type alone, such as two parameters that must agree, is left to ``require``.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import ArrayLike

from dpsgd_audit.spelling import closest

LONGEST = 200
"""Characters of a value that a message repeats."""

Thing = TypeVar("Thing")


class Within(NamedTuple):
    """A range of numbers, in words and as a test."""

    says: str
    holds: Callable[[float], bool]


Positive = Annotated[float, Within("> 0 and finite", lambda x: 0 < x < math.inf)]
AboveZero = Annotated[float, Within("> 0", lambda x: x > 0)]
NotNegative = Annotated[float, Within(">= 0 and finite", lambda x: 0 <= x < math.inf)]
LARGEST_LOSS = 1e15
"""Beyond it floats do not resolve an epsilon to a tenth."""
Epsilon = Annotated[float, Within(">= 0 and at most 1e15", lambda x: 0 <= x <= LARGEST_LOSS)]
EpsilonAboveZero = Annotated[float, Within("> 0 and at most 1e15", lambda x: 0 < x <= LARGEST_LOSS)]
Finite = Annotated[float, Within("finite", math.isfinite)]
Rate = Annotated[float, Within("in (0, 1]", lambda x: 0 < x <= 1)]
Share = Annotated[float, Within("in (0, 1)", lambda x: 0 < x < 1)]
Delta = Annotated[float, Within("in [0, 1)", lambda x: 0 <= x < 1)]
Whole = Annotated[float, Within("an integer >= 1", lambda n: n >= 1 and n % 1 == 0)]
"""A count that may be written as 1e6."""
Count = Annotated[int, Within("an integer >= 1", lambda n: n >= 1)]
FromZero = Annotated[int, Within("an integer >= 0", lambda n: n >= 0)]

IN_BODY = "the function itself says more"
"""Marks, as in Annotated[Claim, IN_BODY], a type that is left to the function."""


class Rule(NamedTuple):
    """What a parameter may be, in words and as a test."""

    says: str
    holds: Callable[[Any], bool]


def require(argument: str, holds: Any, rule: str, value: Any) -> None:
    """Refuse a bad argument with its name, the rule and the value."""
    if not holds:
        raise ValueError(f"{argument} must be {rule}, got {shown(value)}.")


def require_takes(argument: str, function: Callable[..., Any], *given: str) -> None:
    """Refuse a function that cannot be called with these arguments, at the line where it is written.

    That includes a function that names them in another order: it would fail later, inside its own code.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    named = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    try:
        signature.bind(*given)
        if any(name in named and named.index(name) != place for place, name in enumerate(given)):
            raise TypeError("it has them in another order")
    except TypeError as error:
        name = f"{getattr(function, '__name__', argument)}{signature}{written_at(function)}"
        raise TypeError(
            f"{argument} is called with ({', '.join(given)}), which {name} does not take: {error}."
        ) from None


def written_at(function: Any) -> str:
    """File and first line of a user's function, for a message; empty if unknown."""
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


def checked(thing: Thing) -> Thing:
    """Decorator: check each call of a function, or of a dataclass's constructor, against its parameter types."""
    if isinstance(thing, type):
        thing.__init__ = checked(thing.__init__)
        return thing
    assert isinstance(thing, types.FunctionType)
    parameters = inspect.signature(thing).parameters
    named, open_ended = tuple(parameters), any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    by_place = sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters.values())
    by_place = len(named) if any(each.kind is each.VAR_POSITIONAL for each in parameters.values()) else by_place
    # annotations are read at the first call: until then they may name what is not yet defined
    rules = functools.cache(lambda: rules_of(thing))

    @functools.wraps(thing)
    def call(*given: Any, **more: Any) -> Any:
        held = rules()
        if not open_ended and (unknown := [name for name in more if name not in parameters]):
            raise TypeError(f"{thing.__name__}() got an unexpected keyword argument {_misspelt(unknown[0], named)}")
        if by_place < len(given) <= len(named):
            raise TypeError(_by_name(thing, named, given, by_place))
        for name, value in (*zip(named, given, strict=False), *more.items()):
            rule = held.get(name)
            if rule is not None and not rule.holds(value):
                require(name, False, rule.says, value)
        return thing(*given, **more)

    return call  # pyright: ignore[reportReturnType]


def _by_name(thing: types.FunctionType, named: Sequence[str], given: Sequence[Any], by_place: int) -> str:
    """Text of a call that names the arguments which were passed by position."""
    owner = thing.__qualname__.split(".")[-2] if thing.__name__ == "__init__" else thing.__name__
    meant = ", ".join(f"{name}={shown(value)}" for name, value in list(zip(named, given, strict=False))[by_place:])
    return f"{owner}() takes {'this argument' if len(given) == by_place + 1 else 'these arguments'} by name: {meant}."


def _misspelt(word: str, known: Sequence[str]) -> str:
    """The word and the known word that is probably meant, or else all known words."""
    meant = closest(word, known)
    return f"{word!r}; did you mean {meant!r}?" if meant else f"{word!r}; it takes {', '.join(known)}."


def shown(value: Any) -> str:
    """A value as messages print it."""
    if getattr(value, "shape", ()):
        return f"an array of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def rules_of(function: Callable[..., Any]) -> dict[str, Rule]:
    """The rule of every parameter whose type states one; types that exist only for editors state none."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, str):
            try:
                kind = eval(kind, inspect.unwrap(function).__globals__)
            except (NameError, AttributeError):
                continue
        rule = None if parameter.kind is parameter.VAR_KEYWORD else rule_of(kind)
        if rule is not None:
            found[parameter.name] = rule
    return found


def rule_of(kind: Any) -> Rule | None:
    """The rule that a type states; None if any value is allowed."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if IN_BODY in parts:
        return None
    if origin is Annotated and isinstance(parts[1], Rule):
        return parts[1]
    if origin is Annotated:
        return _in_range(rule_of(parts[0]), [part for part in parts[1:] if isinstance(part, Within)])
    if origin is Literal:
        return Rule(f"one of {parts}", lambda value: any(_same(value, part) for part in parts))
    if origin in (Union, types.UnionType):
        return _any_of([rule_of(part) for part in parts])
    if origin in (tuple, Sequence):
        return _sequence(rule_of(parts[0]) if origin is Sequence or parts[1:] == (...,) else None)
    kind = origin or kind
    if kind in PLAIN:
        return PLAIN[kind]
    if kind is Callable:
        return Rule("callable", callable)
    # of JAX's arrays, such as keys, whoever takes them says more
    ours = isinstance(kind, type) and not kind.__module__.startswith("jax")
    if ours and kind is not object and not getattr(kind, "_is_protocol", False):
        return Rule(_with_article(kind.__name__), lambda value: isinstance(value, kind))
    return None


def _number(value: Any, kinds: str) -> bool:
    """Whether a value is a number of Python, NumPy or JAX; one that JAX traces is assumed to be in range."""
    if isinstance(value, bool | np.bool_):
        return False
    if getattr(value, "shape", None) == () and not isinstance(value, np.generic):
        return getattr(value.dtype, "kind", "") in kinds
    return isinstance(value, Integral if kinds == "iu" else Real)


def _is_float(value: Any) -> bool:
    """Whether a number fits into a float: not NaN and not an integer beyond the largest float."""
    try:
        return not math.isnan(value)
    except TypeError:
        return True
    except OverflowError:
        return False


def _is_array(value: Any) -> bool:
    try:
        return (value if hasattr(value, "dtype") else np.asarray(value)).dtype.kind in "biuf"
    except (TypeError, ValueError, AttributeError):
        return False


def _as_numpy(value: Any) -> Any:
    """A tensor of another library as a NumPy array, if it can be converted."""
    return np.asarray(value) if hasattr(value, "__array__") else value


def _in_range(base: Rule | None, ranges: list[Within]) -> Rule:
    assert base is not None

    def holds(value: Any) -> bool:
        if not base.holds(value):
            return False
        try:
            return all(within.holds(value) for within in ranges)
        except TypeError:
            return True

    return Rule(" and ".join(within.says for within in ranges), holds)


def _same(value: Any, part: Any) -> bool:
    return isinstance(value, type(part)) and isinstance(value, bool) == isinstance(part, bool) and value == part


def _any_of(rules: list[Rule | None]) -> Rule | None:
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):
        return None
    return Rule(" or ".join(rule.says for rule in known), lambda value: any(rule.holds(value) for rule in known))


def _sequence(each: Rule | None) -> Rule:
    def holds(value: Any) -> bool:
        listed = isinstance(value, list | tuple | range) or (hasattr(value, "dtype") and bool(value.shape))
        return listed and (each is None or all(each.holds(part) for part in value))

    many = "" if each is None else f" of {PLURAL[each.says]}" if each.says in PLURAL else f", each {each.says}"
    return Rule(f"a sequence{many}", holds)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


PLURAL = {"a number": "numbers", "an integer": "integers", "a string": "words"}
PLAIN: dict[Any, Rule | None] = {
    Any: None,
    inspect.Parameter.empty: None,
    type(None): Rule("None", lambda value: value is None),
    None: Rule("None", lambda value: value is None),
    bool: Rule("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: Rule("an integer", lambda value: _number(value, "iu")),
    float: Rule("a number", lambda value: _number(value, "iuf") and _is_float(value)),
    str: Rule("a string", lambda value: isinstance(value, str)),
    os.PathLike: Rule("a path", lambda value: isinstance(value, os.PathLike)),
    Mapping: Rule("a mapping", lambda value: isinstance(value, Mapping)),
    np.ndarray: Rule("an array of real numbers", _is_array),
    ArrayLike: Rule("an array of real numbers", lambda value: _is_array(value) or _is_array(_as_numpy(value))),
}
