"""Where an operation was called: the frames of the user's code and of libraries other than PyTorch."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path
from types import FrameType

Stack = tuple[tuple[str, int], ...]
"""(path, line) of each frame, innermost first."""
BEGIN = str(Path(__file__).with_name("run.py"))
"""Where Run.follow calls the code; its own callers are nobody's lines."""
DEEPEST = 12
"""Frames that tell one place from another."""


ENGINE = "_engine_run_backward"
"""The function of PyTorch's that runs a backward pass."""


@functools.lru_cache(maxsize=4096)
def told(path: str) -> bool:
    """Whether a frame of this file says anything: not PyTorch's, Python's or this toolkit's own."""
    # whoever runs such code has it; what only names its adapter need not
    import torch

    toolkit = Path(__file__).parents[4]
    homes = [Path(str(torch.__file__)).parent, Path(sysconfig.get_paths()["stdlib"])]
    homes += [toolkit / name for name in ("audit", "distinguishers", "dpsgd_audit", "guarantees", "mechanisms")]
    if path.startswith("<"):
        return False
    # the folder of installed libraries may lie inside Python's own, and this toolkit inside it
    if "site-packages" in path:
        homes.pop(1)
    return not any(path.startswith((f"{home}/", f"{home}\\")) for home in homes)


def stack(innermost: FrameType | None = None) -> Stack:
    """The frames between the operation and where the run began."""
    frame, found = innermost or sys._getframe(2), []
    while frame is not None and len(found) < DEEPEST:
        if frame.f_code.co_filename == BEGIN and frame.f_code.co_name == "follow":
            break
        if told(frame.f_code.co_filename):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def in_backward(innermost: FrameType | None = None) -> bool:
    """Whether the operation is one of PyTorch's own backward pass, and not of a hook that the pass calls."""
    frame = innermost or sys._getframe(2)
    while frame is not None and not told(frame.f_code.co_filename):
        if frame.f_code.co_name == ENGINE:
            return True
        frame = frame.f_back
    return False
