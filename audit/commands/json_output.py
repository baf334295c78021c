"""Standard output under ``--json``: only the command's answer, whatever its code prints."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any

from audit.report.escaping import json_text

OUT, ERROR = 1, 2
_answers: list[str] | None = None
"""Answers to print once everything else has gone to standard error; None if nothing is redirected."""


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON; inside ``json_alone`` only at its end."""
    text = json_text(value, indent=indent)
    if _answers is None:
        print(text)
    else:
        _answers.append(text)


@contextlib.contextmanager
def json_alone() -> Iterator[None]:
    """Send to standard error whatever else is printed: by Python, C code and child processes."""
    global _answers
    sys.stdout.flush()
    kept, _answers = os.dup(OUT), (answers := [])
    try:
        os.dup2(ERROR, OUT)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        # what C code has printed may still be in its buffer; Windows has no library of that name
        with contextlib.suppress(OSError, TypeError, AttributeError):
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, OUT)
        os.close(kept)
        _answers = None
        # also what was finished before an error
        for text in answers:
            print(text)
