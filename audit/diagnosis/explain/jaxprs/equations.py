"""What an equation of a jaxpr says of itself, such as its line in the user's source; and why a run ends at one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from audit.diagnosis.explain.places import NOWHERE, Frame, Place, place
from audit.trials.jaxprs import holds
from audit.trials.library_files import INSTALLED, is_library, is_ours
from mechanisms.adapters.watched_calls import replaced


class CannotFollowError(Exception):
    """The replay ends here; the message says why."""

    def __init__(self, why: str, at: Place):
        super().__init__(why)
        self.why, self.at = why, at


class FirstRoundEnded(Exception):
    """Data meet a release: the next round has begun."""


CALLBACKS = frozenset({"pure_callback", "io_callback", "ffi_call", "custom_call", "debug_callback"})
LOOPS = frozenset({"scan", "while"})
ON_DEVICES = frozenset({"shard_map", "xla_pmap"})
DERIVE_KEYS = frozenset({"random_fold_in", "random_split"})
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "lt_to", "le_to"})
COUNTERS = frozenset({"philox"})
"""Functions of ours that make independent bits of a key and of counters."""
INDEPENDENT = frozenset(
    f"{prefix}{law}"
    for prefix in ("", "_")
    for law in ("normal", "normal_real", "uniform", "bernoulli", "bits", "laplace", "exponential", "gumbel", "randint")
)
"""Functions whose numbers are independent of one another."""
CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
"""Equations that only call another program, and where they keep it."""


def is_derived(equation: Any) -> bool:
    """Whether differentiation made an equation, or what it differentiates holds it."""
    return _is_derivative(equation.source_info.name_stack)


# a replay comes by one equation dozens of times
@functools.lru_cache(maxsize=4096)
def _is_derivative(stack: Any) -> bool:
    return "jvp(" in str(stack)


def loop_parts(scan: Any) -> tuple[int, int]:
    """How many constants and how many carried values a scan has: versions of JAX say it in different ways.

    What a scan runs over, and what it stacks, has one axis more outside than inside.
    """
    inner = getattr(scan.params["jaxpr"], "jaxpr", scan.params["jaxpr"])

    def unstacked(outside: Sequence[Any], inside: Sequence[Any]) -> int:
        return sum(len(one.aval.shape) == len(own.aval.shape) for one, own in zip(outside, inside, strict=True))

    carried = unstacked(scan.outvars, inner.outvars)
    return unstacked(scan.invars, inner.invars) - carried, carried


def shapes(equation: Any) -> list[Any]:
    """Of what it gives; None where it has none."""
    return [getattr(variable.aval, "shape", None) for variable in equation.outvars]


def draws(jaxpr: Any) -> bool:
    """Whether random bits are drawn inside, rather than keys derived."""
    return holds(jaxpr, frozenset({"random_bits"}))


OWN_FOLDER = __file__.rpartition("/")[0]
DEEPEST = 12
"""Frames of the user's that are known of one place."""
KEPT = "jax._src.source_info_util"
"""Where JAX keeps the line that it names; in a version that keeps it elsewhere, lines are those that JAX names."""
TRACES = "trace_to_jaxpr_dynamic"
"""JAX's function that runs a loop's body, a branch, or what is compiled by itself."""
ONE_AT_A_TIME = threading.RLock()
"""What is replaced belongs to the whole process: two threads would put back each other's."""


@dataclasses.dataclass(frozen=True)
class Within:
    """A library's function that was traced by itself: the file that it is written in, and where it was called.

    It is traced once and kept, so the frames around it are those of its first caller, whoever that was. Only frames
    inside it are true: those of functions of the user's that it calls.
    """

    file: str
    at: Place


def place_of(equation: Any, within: Within | None = None) -> Place:
    """Where an equation was written: frames up to the replay that had it traced."""
    return _place_of(equation.source_info.traceback, within)


# a replay comes by one equation dozens of times
@functools.lru_cache(maxsize=4096)
def _place_of(traceback: Any, within: Within | None) -> Place:
    if traceback is None:
        return NOWHERE if within is None else within.at
    frames, entered = [], None
    for frame in traceback.frames:
        if frame.file_name == __file__:
            # it stands between functions of the user's, and not around all of them
            continue
        if frame.file_name.startswith(OWN_FOLDER) or (within is not None and frame.file_name == within.file):
            break
        if frame.function_name == TRACES:
            # older versions of JAX know who asked for a trace, too
            break
        # JAX's own machinery lies inside of every line that calls it
        if "/jax/" not in frame.file_name or not is_library(frame.file_name):
            frames.append((frame.file_name, frame.line_num))
        elif all(is_library(file) for file, _ in frames):
            entered = frame.file_name, frame.line_num
    found = dataclasses.replace(place(frames, DEEPEST), entered=entered)
    if not found.own and (within is None or not within.at.own):
        return _of_library(frames) or (found if within is None else within.at)
    if within is None:
        return found
    own = (*found.own, *within.at.own)[:DEEPEST]
    return dataclasses.replace(found, own=own) if found.own else within.at


def _of_library(frames: list[Frame]) -> Place | None:
    """Where none of the frames is the user's: the innermost of the library that an adapter of ours calls.

    What that library calls in its turn (Optax, for drawing a tree of normal numbers) tells a reader less.
    """
    theirs = [frame for frame in frames if not is_ours(frame[0]) and not frame[0].startswith("<")]
    own = [frame for frame in theirs if _package(frame[0]) == _package(theirs[-1][0])]
    return Place(own=(), library=(own[0],)) if own else None


def _package(path: str) -> str:
    """The folder of installed libraries, and the first name in it."""
    for part in INSTALLED:
        if part in path:
            return path.rpartition(part)[2].partition("/")[0]
    return path


def inside(jaxpr: Any, equation: Any, within: Within | None) -> Within | None:
    """What is known of the lines inside of a function that an equation calls."""
    file = file_of(jaxpr)
    return Within(file, place_of(equation, within)) if file and is_library(file) else within


def file_of(jaxpr: Any) -> str:
    """Where a function that was traced by itself is written; empty where that is not known."""
    described = getattr(getattr(jaxpr, "jaxpr", jaxpr), "debug_info", None)
    _, _, where = (getattr(described, "func_src_info", None) or "").partition(" at ")
    return where.rpartition(":")[0]


@contextlib.contextmanager
def own_lines() -> Iterator[None]:
    """While this lasts, equations of ``custom_vjp`` backward passes know the lines that they are written in.

    JAX marks them as made by differentiation, too, which they are not: clipping in a backward pass is clipping.
    """
    if _lines() is None:
        yield
        return
    called = jax.custom_vjp.__call__

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        backward = getattr(function, "bwd", None)
        if backward is None or is_library(_file(backward)):
            return called(function, *args, **kwargs)
        # JAX reads it once, in this call
        with replaced(function, "bwd", _with_lines(backward)):
            return called(function, *args, **kwargs)

    with ONE_AT_A_TIME, replaced(jax.custom_vjp, "__call__", call):
        yield


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
        with replaced(lines._source_info_context, "context", lines.new_source_info()):
            return backward(*args)

    return run
