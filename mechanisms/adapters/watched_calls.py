"""Python's calls as its profiler sees them, its lines as its debugger does, and other functions in place of some."""

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


@contextlib.contextmanager
def lines_told_to(watch: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Tell this thread's lines to ``watch``, as ``sys.settrace`` does; whoever followed them before goes on after."""
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Another attribute meanwhile."""
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def removed_after(*hooks: Any) -> Iterator[None]:
    """These hooks work meanwhile."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
