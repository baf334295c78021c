"""List and compare the single values of a record, by their paths."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

CLOSE = 1e-6
"""Relative difference that other builds of the numerical libraries may cause."""
NOTHING = 1e-15
"""Absolute difference up to which two numbers of a record are equal."""
ABSENT = "nothing"
"""Stands in messages for a missing value."""


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Paths such as ``points[0].counts.misses`` and their values; an empty list or object is a value itself."""
    found: list[tuple[str, Any]] = []
    _gather(value, path, found)
    return found


def _gather(value: Any, path: str, found: list[tuple[str, Any]]) -> None:
    # appending is faster than nested generators for the thousands of values of a record
    """Append all values under a path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _gather(item, f"{path}.{key}" if path else str(key), found)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            if type(item) in (int, float):
                found.append((f"{path}[{index}]", item))
            else:
                _gather(item, f"{path}[{index}]", found)
    else:
        found.append((path, value))


PLACES = re.compile(r"\[\d+\]")


def key_of(path: str) -> str:
    """The path without indices of lists: ``points.counts.misses``."""
    return PLACES.sub("", path)


def under(key: str, heads: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    """The longest of some keys that equals a key or contains it."""
    return _longest(key, tuple(heads))


@functools.lru_cache(maxsize=4096)
def _longest(key: str, heads: tuple[str, ...]) -> str | None:
    # cached: a record has thousands of values under a few hundred keys
    found = [head for head in heads if key == head or key.startswith(f"{head}.")]
    return max(found, key=len, default=None)


def agree(stated: Any, computed: Any, *, nothing: float = NOTHING) -> bool:
    """Whether two values are equal: numbers nearly, all else exactly."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (stated, computed))
    if not numbers:
        return type(stated) is type(computed) and stated == computed
    try:
        close = abs(stated - computed) <= CLOSE * max(abs(stated), abs(computed)) + nothing
    except OverflowError:  # a whole number beyond every float
        return stated == computed
    return stated == computed or close


def as_tuple(value: Any) -> Any:
    """A list from JSON as the tuple that constructors take."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def told(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value) if value is not ABSENT else ABSENT
    return text if len(text) <= 80 else f"{text[:77]}..."
