"""Every single value of a record, by its path."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

CLOSE = 1e-6
"""Relative difference that other builds of the numerical libraries may make."""
NOTHING = 1e-15
"""Absolute difference below which two numbers of a record say the same."""
ABSENT = "nothing"
"""What a record says where a value is missing."""


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Paths such as ``points[0].counts.misses`` and their values; an empty list or object is a value itself."""
    found: list[tuple[str, Any]] = []
    _gather(value, path, found)
    return found


def _gather(value: Any, path: str, found: list[tuple[str, Any]]) -> None:
    # a list, not generators in one another: a record has thousands of values, most of them numbers in lists
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
    """The path without its places in lists: ``points.counts.misses``."""
    return PLACES.sub("", path)


def under(key: str, heads: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    """The longest of some keys that a key is, or lies under."""
    return _longest(key, tuple(heads))


@functools.lru_cache(maxsize=4096)
def _longest(key: str, heads: tuple[str, ...]) -> str | None:
    # a record has thousands of values under a few hundred keys
    found = [head for head in heads if key == head or key.startswith(f"{head}.")]
    return max(found, key=len, default=None)


def agree(stated: Any, computed: Any, *, nothing: float = NOTHING) -> bool:
    """Whether two values say the same: numbers nearly, all else exactly."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (stated, computed))
    if not numbers:
        return type(stated) is type(computed) and stated == computed
    try:
        close = abs(stated - computed) <= CLOSE * max(abs(stated), abs(computed)) + nothing
    except OverflowError:  # a whole number beyond every float
        return stated == computed
    return stated == computed or close


def as_tuple(value: Any) -> Any:
    """A list of a JSON file as the tuple that constructors take."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def told(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value) if value is not ABSENT else ABSENT
    return text if len(text) <= 80 else f"{text[:77]}..."
