"""Which source files are a library's or this toolkit's, and so hold no line of the user's."""

from __future__ import annotations

import functools
import os
import sysconfig
from pathlib import Path

PACKAGES = ("audit", "distinguishers", "dpsgd_audit", "guarantees", "mechanisms")
INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@functools.lru_cache(maxsize=4096)
def is_library(path: str) -> bool:
    """Whether a file belongs to an installed library, to Python or to this toolkit: no line of the user's."""
    if path.startswith("<frozen") or any(part in path for part in INSTALLED):
        return True
    return is_ours(path) or path.startswith(sysconfig.get_paths()["stdlib"] + os.sep)


@functools.lru_cache(maxsize=4096)
def is_ours(path: str) -> bool:
    """Whether a file belongs to this toolkit."""
    root = Path(__file__).parents[2]
    return any(path.startswith(f"{root / name}{os.sep}") for name in PACKAGES)


def relative(path: str) -> str:
    """A path from the working folder on, where it lies inside."""
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
