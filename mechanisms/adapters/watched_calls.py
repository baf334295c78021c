"""Hooks on Python's calls and lines, and functions replaced while a block runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def calls_told_to(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Call ``watch`` for this thread's calls; not if somebody profiles already, whose profiler could not go on."""
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
    """Call ``watch`` for this thread's lines, as ``sys.settrace`` does; an earlier trace function goes on after."""
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Replace an attribute while the block runs."""
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def removed_after(*hooks: Any) -> Iterator[None]:
    """Keep these hooks while the block runs, then remove them."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
