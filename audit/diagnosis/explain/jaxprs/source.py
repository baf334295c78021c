"""The place of an equation in the user's source."""

from __future__ import annotations

from typing import Any

from audit.diagnosis.explain.places import NOWHERE, Place, is_library, place

OWN_FOLDER = __file__.rpartition("/")[0]


def place_of(equation: Any) -> Place:
    """Where an equation was written: frames up to the replay that had it traced."""
    traceback = equation.source_info.traceback
    if traceback is None:
        return NOWHERE
    frames = []
    for frame in traceback.frames:
        if frame.file_name.startswith(OWN_FOLDER):
            break
        frames.append((frame.file_name, frame.line_num))
    # JAX's own machinery lies inside of every line that calls it
    while frames and "/jax/" in frames[0][0] and is_library(frames[0][0]):
        frames.pop(0)
    return place(frames)


def is_of_library(jaxpr: Any) -> bool:
    """Whether a function that was traced by itself belongs to a library.

    It is traced once and kept, so the lines inside it are those of its first caller, whoever that was.
    """
    described = getattr(getattr(jaxpr, "jaxpr", jaxpr), "debug_info", None)
    _, found, where = (getattr(described, "func_src_info", None) or "").partition(" at ")
    return bool(found) and is_library(where.rpartition(":")[0])
