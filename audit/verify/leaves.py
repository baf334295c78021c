"""Every single value of a record, by its path."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

CLOSE = 1e-6
"""Relative difference that other builds of the numerical libraries may make."""
NOTHING = 1e-15
"""Absolute difference below which two numbers of a record say the same."""
ABSENT = "nothing"
"""What a record says where a value is missing."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths such as ``points[0].counts.misses`` and their values; an empty list or object is a value itself."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def key_of(path: str) -> str:
    """The path without its places in lists: ``points.counts.misses``."""
    return re.sub(r"\[\d+\]", "", path)


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


def told(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value) if value is not ABSENT else ABSENT
    return text if len(text) <= 80 else f"{text[:77]}..."
