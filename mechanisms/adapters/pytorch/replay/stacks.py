"""Where an operation was called: the frames of the user's code and of libraries other than PyTorch; lines run."""

from __future__ import annotations

import collections
import functools
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mechanisms.adapters.watched_calls import lines_told_to

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


Lines = dict[CodeType, set[int]]
"""That were run, by their function."""


def lines_run(code: Callable[[], Any]) -> Lines:
    """Every line of the user's that a piece of code runs."""
    found: Lines = collections.defaultdict(set)

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if not told(frame.f_code.co_filename):
            return None
        if event == "line":
            found[frame.f_code].add(frame.f_lineno)
        return watch

    with lines_told_to(watch):
        code()
    return found


def turned_away(noise: Stack, lines: Lines) -> Stack:
    """The last line before the first caller of the noise that is not run: what decides that, or is done instead."""
    run = {(code.co_filename, line) for code, own in lines.items() for line in own}
    for depth in reversed(range(len(noise))):
        path, line = noise[depth]
        if (path, line) in run:
            continue
        around = [code for code in lines if code.co_filename == path and code.co_firstlineno <= line <= _last(code)]
        own = max(around, key=lambda code: code.co_firstlineno, default=None)
        before = [] if own is None else [one for one in lines[own] if one < line]
        return ((path, max(before)), *noise[depth + 1 :]) if before else noise[depth + 1 :]
    return noise


def _last(code: CodeType) -> int:
    return max((line for _, _, line in code.co_lines() if line), default=0)
