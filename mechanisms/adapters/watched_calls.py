"""Python's calls as its profiler sees them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def calls_told_to(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Tell this thread's calls to ``watch``; none where somebody profiles already, whose profiler could not go on."""
    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
