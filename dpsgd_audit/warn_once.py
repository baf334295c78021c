"""Warnings that a process gives once: Python forgets which it gave whenever a library changes a filter of warnings."""

from __future__ import annotations

import os
import warnings

_given: set[str] = set()


def warn_once(text: str, kind: type[Warning], *, stacklevel: int) -> None:
    """Warn of what this process was not told yet, word by word; each test of pytest is told anew."""
    if text in _given and "PYTEST_CURRENT_TEST" not in os.environ:
        return
    _given.add(text)
    warnings.warn(text, kind, stacklevel=stacklevel + 1)
