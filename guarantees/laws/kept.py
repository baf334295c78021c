"""A disk cache of laws, and of numbers computed from them, for processes that name a folder for it.

A kept law is found by all that decides it: what was computed, every parameter to its last bit, the text of every module
of this package and the versions of Python, NumPy and SciPy. Its file is read only if the digest of its content is the
one written into it and its laws keep the identities of every pair; anything else is computed again, and replaced.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy

from guarantees.kept_files import Shelf, digest_of_package, named_by, read_whole, remove_oldest, write_whole
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.law import Certificate

T = TypeVar("T")
WORTH_KEEPING = 0.001
"""Seconds of computation from which a law is kept."""
LARGEST = 2**26
"""Most bytes of one file."""
MOST = 2**29
"""Most bytes of all files together; beyond that the oldest are removed."""
DEFECT = 1e-9
"""How much a cached law may break the identities of a pair beyond its stated error: rounding."""
MOST_REMEMBERED = 10_000
"""Most numbers that a process without a cache folder remembers."""
SUFFIX = ".law"
_PARTS: dict[str, Any] = {"law": DiscreteLaw, "certificate": Certificate}


class _UnknownPartError(TypeError):
    """A value that cannot be written as text so that equal text means an equal value."""


LAWS = Shelf()
laws_kept_in = LAWS.kept_in


class _Taken:
    times = 0


def found_on_disk() -> int:
    """How often this process has read a result from disk instead of computing it."""
    return _Taken.times


def kept(
    what: str,
    decided_by: Any,
    compute: Callable[[], T],
    *,
    holds: Callable[[T], bool] = lambda _: True,
    package: str = "guarantees",
) -> T:
    """What ``compute`` returns (laws, certificates, arrays and numbers in tuples), from disk if cached there.

    ``decided_by`` is everything that decides it beside the code of this package and of ``package``; ``holds`` says
    whether what was read can be right.
    """
    try:
        parts = [what, _text(decided_by)]
    except _UnknownPartError:
        return compute()
    if LAWS.folder is None:
        return _remembered(json.dumps(parts), compute)
    key = json.dumps([*parts, _code(package)])
    file = named_by(LAWS.folder, key, SUFFIX)
    found = _read(file, key, holds)
    if found is not None:
        _Taken.times += 1
        return found
    began = time.perf_counter()
    value = compute()
    if time.perf_counter() - began >= WORTH_KEEPING:
        _write(file, key, value)
    return value


REMEMBERED: dict[str, Any] = {}
"""Numbers that this process has computed, oldest first."""


def _remembered(key: str, compute: Callable[[], T]) -> T:
    """A number from this process's memory, or computed; laws and arrays are always computed again."""
    if key in REMEMBERED:
        return REMEMBERED[key]
    value = compute()
    parts = value if isinstance(value, tuple) else (value,)
    if all(part is None or isinstance(part, bool | int | float) for part in parts):
        REMEMBERED[key] = value
        if len(REMEMBERED) > MOST_REMEMBERED:
            REMEMBERED.pop(next(iter(REMEMBERED)), None)
    return value


def _text(value: Any) -> Any:
    """A value as plain data, so that equal data means an equal value."""
    if value is None or isinstance(value, bool | int | str):
        return [type(value).__name__, value]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
        array = np.ascontiguousarray(value)
        return [array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(_text, value)]
    if dataclasses.is_dataclass(value) and type(value).__module__.partition(".")[0] == "guarantees":
        # private fields keep what has been computed
        names = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        called = f"{type(value).__module__}.{type(value).__qualname__}"
        return [called, {name: _text(getattr(value, name)) for name in names}]
    raise _UnknownPartError(type(value).__qualname__)


@functools.cache
def _code(package: str) -> list[str]:
    """Digests of the modules of this package and of another one, and versions of the libraries they compute with."""
    here = Path(__file__).resolve().parent.parent
    text = [digest_of_package(here.parent / name) for name in sorted({here.name, package})]
    return [*text, platform.python_version(), np.__version__, scipy.__version__]


def _read(file: Path, key: str, holds: Callable[[T], bool]) -> T | None:
    """Content of a cache file; None if it is missing, incomplete, another user's, or cannot be a law."""
    content = read_whole(file, key)
    if content is None:
        return None
    head, _, rest = content.partition(b"\n")
    try:
        header = json.loads(head)
        value = _unpacked(header["value"], _arrays(header["arrays"], rest))
        return value if _all_hold(value) and holds(value) else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _write(file: Path, key: str, value: Any) -> None:
    arrays: list[np.ndarray] = []
    try:
        packed = _packed(value, arrays)
    except _UnknownPartError:
        return
    shapes = [[array.dtype.str, list(array.shape)] for array in arrays]
    head = json.dumps({"value": packed, "arrays": shapes}).encode()
    content = b"\n".join([head, b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)])
    if len(content) <= LARGEST:
        write_whole(file, key, content)
        remove_oldest(file.parent, SUFFIX, most=MOST, added=len(content))


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """Plain data in which arrays are named by their places; an array that occurs twice is written once."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        places = [place for place, array in enumerate(arrays) if array is value]
        if not places:
            arrays.append(value)
        return {"array": places[0] if places else len(arrays) - 1}
    if isinstance(value, tuple):
        return [_packed(each, arrays) for each in value]
    names = [name for name, part in _PARTS.items() if type(value) is part]
    if not names:
        raise _UnknownPartError(type(value).__qualname__)
    fields = [field.name for field in dataclasses.fields(_PARTS[names[0]])]
    return {names[0]: {name: _packed(getattr(value, name), arrays) for name in fields}}


def _unpacked(packed: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(packed, list):
        return tuple(_unpacked(each, arrays) for each in packed)
    if not isinstance(packed, dict):
        return packed
    ((kind, inside),) = packed.items()
    if kind == "float":
        return float.fromhex(inside)
    if kind == "array":
        return arrays[inside]
    return _PARTS[kind](**{name: _unpacked(each, arrays) for name, each in inside.items()})


def _arrays(shapes: list[tuple[str, list[int]]], content: bytes) -> list[np.ndarray]:
    found, start = [], 0
    for kind, shape in shapes:
        dtype, size = np.dtype(kind), math.prod(shape)
        found.append(np.frombuffer(content, dtype, size, start).reshape(shape).copy())
        start += size * dtype.itemsize
    if start != len(content):
        raise ValueError("more bytes than arrays")
    return found


def _all_hold(value: Any) -> bool:
    """Whether every law in a value is valid: increasing losses, masses of a pair."""
    if isinstance(value, tuple):
        return all(map(_all_hold, value))
    if isinstance(value, Certificate):
        return _all_hold(value.safe) and _all_hold(value.leaked)
    if not isinstance(value, DiscreteLaw):
        return True
    one_shape = value.losses.ndim == 1 and value.losses.shape == value.without.shape == value.with_record.shape
    ordered = one_shape and bool((value.losses[1:] > value.losses[:-1]).all())
    return ordered and value.defect() <= DEFECT + value.error and _all_hold(value.certificate)
