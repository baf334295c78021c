"""Lines of the user's own backward passes, for which JAX names the line that called the function to differentiate."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from audit.trials.library_files import is_library

KEPT = "jax._src.source_info_util"
"""Where JAX keeps the line that it names; in a version that keeps it elsewhere, lines are those that JAX names."""

ONE_AT_A_TIME = threading.RLock()
"""What is replaced belongs to the whole process: two threads would put back each other's."""


@contextlib.contextmanager
def own_lines() -> Iterator[None]:
    """While this lasts, equations of ``custom_vjp`` backward passes know the lines that they are written in.

    JAX marks them as made by differentiation, too, which they are not: clipping in a backward pass is clipping.
    """
    if _lines() is None:
        yield
        return
    with ONE_AT_A_TIME:
        yield from _replaced()


def _replaced() -> Iterator[None]:
    called = jax.custom_vjp.__call__

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        backward = getattr(function, "bwd", None)
        if backward is None or is_library(_file(backward)):
            return called(function, *args, **kwargs)
        # JAX reads it once, in this call
        function.bwd = _with_lines(backward)
        try:
            return called(function, *args, **kwargs)
        finally:
            function.bwd = backward

    kind: Any = jax.custom_vjp
    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = called


def _lines() -> Any:
    found = sys.modules.get(KEPT)
    return found if hasattr(found, "_source_info_context") and hasattr(found, "new_source_info") else None


def _file(function: Any) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    return getattr(getattr(inner, "__code__", None), "co_filename", "<frozen")


def _with_lines(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def run(*args: Any) -> Any:
        lines = _lines()
        known = lines._source_info_context
        before, known.context = known.context, lines.new_source_info()
        try:
            return backward(*args)
        finally:
            known.context = before

    return run
