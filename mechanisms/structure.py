"""Structure and numbers: what a program is compiled for, and what it receives when it runs.

A compiled program is reused for everything of the same structure. Whatever a release or a score computes with (rate,
noise, clip, tables, data) are numbers; what decides shapes or which formula is used is structure. Tables are padded to
a few sizes, so that neighbouring cases have one structure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from dpsgd_audit.later import jax, once_loaded

T = TypeVar("T")
_STRUCTURED: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}
"""Every class declared as structured, with the names of its numbers and of its structure."""


def structured(*, numbers: tuple[str, ...] = (), structure: tuple[str, ...] = ()) -> Callable[[type[T]], type[T]]:
    """Make a dataclass an argument of compiled programs: its ``numbers`` are traced, its ``structure`` is compiled for.

    Structure must be hashable. Other fields stay on the host: inside a program they are None. Numbers may be pytrees,
    other structured objects and None among them.
    """

    def register(cls: type[T]) -> type[T]:
        own = (*structure, *numbers)
        hidden = [field.name for field in dataclasses.fields(cast(Any, cls)) if field.name not in own]

        def flatten(given: Any) -> tuple[list[Any], tuple[Any, ...]]:
            return [getattr(given, name) for name in numbers], tuple(getattr(given, name) for name in structure)

        def unflatten(fixed: tuple[Any, ...], leaves: Any) -> T:
            made = object.__new__(cls)
            for name, value in zip((*own, *hidden), (*fixed, *leaves, *[None] * len(hidden)), strict=True):
                object.__setattr__(made, name, value)
            return made

        once_loaded(lambda: jax.tree_util.register_pytree_node(cls, flatten, unflatten))
        _STRUCTURED[cls] = (numbers, structure)
        return cls

    return register


def is_structured(part: Any) -> bool:
    """Whether a program can receive this object: its class is declared structured, and it holds only numbers."""
    if type(part) not in _STRUCTURED:
        return False
    leaves = jax.tree.leaves(part)
    return all(isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int) for leaf in leaves)


class NoSignatureError(TypeError):
    """A value for which nothing decides whether two of them share one program."""


def signature(value: Any) -> Any:
    """Plain data of an argument of programs: with equal data, and the same code, two have the same program.

    Structure to its last bit, of numbers only shape and dtype. For parts that this package wrote.

    Raises:
      NoSignatureError: there is something else in it.
    """
    if type(value) in _STRUCTURED:
        if not is_ours(value):
            raise NoSignatureError(type(value).__qualname__)
        numbers, structure = _STRUCTURED[type(value)]
        fixed = [[name, _fixed(getattr(value, name))] for name in structure]
        traced = [[name, signature(getattr(value, name))] for name in numbers]
        return [type(value).__module__, type(value).__qualname__, fixed, traced]
    if value is None:
        return "None"
    if isinstance(value, bool | int | float):
        return type(value).__name__
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return [str(value.dtype), list(value.shape), bool(getattr(value, "weak_type", False))]
    if isinstance(value, tuple | list):
        return [type(value).__qualname__, *map(signature, value)]
    raise NoSignatureError(type(value).__qualname__)


def _fixed(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return [type(value).__name__, value]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, tuple):
        return ["tuple", *map(_fixed, value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and is_ours(value):
        # a sampler, say: its class is in the code that is told apart, and its fields are all that it has
        own = [[field.name, _fixed(getattr(value, field.name))] for field in dataclasses.fields(value)]
        return [type(value).__module__, type(value).__qualname__, own]
    raise NoSignatureError(type(value).__qualname__)


def is_ours(part: Any) -> bool:
    """Whether this package wrote the object's class: a user's subclass may mean something else by the same names."""
    return type(part).__module__.partition(".")[0] in ("mechanisms", "distinguishers")


def round_up(length: int) -> int:
    """The next of the sizes 5, 9, 17, 33 and beyond, in steps of a quarter or less: round N and N + 1 share one."""
    size = max(length - 1, 4)
    step = 1 << (size - 1).bit_length() if size <= 32 else 1 << (size.bit_length() - 3)
    return 1 + -(-size // step) * step


def next_power(length: int, *, base: int = 2, least: int = 1) -> int:
    """The smallest ``least * base^k`` that is at least the length."""
    size = least
    while size < length:
        size *= base
    return size


def pad_rows(rows: np.ndarray, length: int, value: float = 0.0) -> np.ndarray:
    """The rows with ``value`` rows added at the end."""
    widths = [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1)
    return np.pad(rows, widths, constant_values=value)
