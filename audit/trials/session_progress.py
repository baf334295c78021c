"""How far an audit in a Python session is: one line on standard error that is gone when the audit ends."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from audit.trials.execution import USUAL, Execution, unheard
from audit.trials.fit_trials import unfollowed
from audit.trials.source import Tally

P = ParamSpec("P")
T = TypeVar("T")

SETTING = "DPSGD_AUDIT_PROGRESS"
PATIENCE = 3.0
"""Seconds in which an audit says nothing."""
EVERY = 0.5
"""Seconds between two states of the line."""


def told_in_sessions(audit: Callable[P, T]) -> Callable[P, T]:
    """An audit that tells how far it is where somebody watches and gave no listener of their own."""

    @functools.wraps(audit)
    def told(*given: P.args, **named: P.kwargs) -> T:
        execution: Any = named.get("execution", USUAL)
        if not isinstance(execution, Execution) or not is_watched():
            return audit(*given, **named)
        if execution.progress is not unheard or execution.fitting is not unfollowed:
            return audit(*given, **named)
        line = _Line(named.get("name"), named.get("trials"))
        named["execution"] = dataclasses.replace(execution, progress=line.counted, fitting=line.learned)
        try:
            return audit(*given, **named)
        finally:
            line.write("")

    return told


def is_watched() -> bool:
    """Whether standard error is a terminal or a notebook's, and neither a test nor ``DPSGD_AUDIT_PROGRESS=off``."""
    if os.environ.get(SETTING) == "off" or "PYTEST_CURRENT_TEST" in os.environ or sys.stderr is None:
        return False
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _Line:
    def __init__(self, name: object, trials: object):
        self._name, self._trials = name if isinstance(name, str) else "audit", trials
        self._next, self._shown = time.monotonic() + PATIENCE, ""

    def learned(self, drawn: int, planned: int) -> None:
        self._say(f"{self._name}, learning: {drawn:,} of {planned:,} trials")

    def counted(self, tally: Tally) -> None:
        self._say(f"{self._name}: {2 * tally.trials_per_side:,} of {self._trials:,} trials")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            self.write("".join(each if each.isprintable() else "?" for each in text))

    def write(self, text: str) -> None:
        """In place of what stands there; a standard error that is closed is no reason to fail."""
        if text != self._shown:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"\r{text.ljust(len(self._shown))}\r{text}")
                sys.stderr.flush()
            self._shown = text
