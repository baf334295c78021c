"""Progress of an audit in a Python session: one line on standard error, erased when the audit ends."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from audit.trials.execution import USUAL, Execution, ignore_tally
from audit.trials.fit_trials import ignore_fitting
from audit.trials.source import Tally

P = ParamSpec("P")
T = TypeVar("T")

SETTING = "DPSGD_AUDIT_PROGRESS"
PATIENCE = 3.0
"""Seconds from the start in which nothing is shown."""
EVERY = 0.5
"""Seconds between two updates of the line."""


def shown_in_sessions(audit: Callable[P, T]) -> Callable[P, T]:
    """Decorate an audit to show its progress if somebody watches and passed no listener."""

    @functools.wraps(audit)
    def audited(*given: P.args, **named: P.kwargs) -> T:
        execution: Any = named.get("execution", USUAL)
        if not isinstance(execution, Execution) or not is_watched():
            return audit(*given, **named)
        if execution.progress is not ignore_tally or execution.fitting is not ignore_fitting:
            return audit(*given, **named)
        line = _ProgressLine(named.get("name"), named.get("trials"))
        named["execution"] = dataclasses.replace(execution, progress=line.counted, fitting=line.learned)
        try:
            return audit(*given, **named)
        finally:
            line.write("")

    return audited


def is_watched() -> bool:
    """Whether standard error is a terminal or notebook, outside tests and without DPSGD_AUDIT_PROGRESS=off."""
    if os.environ.get(SETTING) == "off" or "PYTEST_CURRENT_TEST" in os.environ or sys.stderr is None:
        return False
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _ProgressLine:
    """The line of one audit."""

    def __init__(self, name: object, trials: object):
        self._name, self._trials = name if isinstance(name, str) else "audit", trials
        self._next, self._shown = time.monotonic() + PATIENCE, ""

    def learned(self, drawn: int, planned: int) -> None:
        """Show how many fit trials are drawn."""
        self._say(f"{self._name}, learning: {drawn:,} of {planned:,} trials")

    def counted(self, tally: Tally) -> None:
        """Show how many trials are counted."""
        self._say(f"{self._name}: {2 * tally.trials_per_side:,} of {self._trials:,} trials")

    def _say(self, text: str) -> None:
        """Show a text unless the last one is too recent."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            self.write("".join(character if character.isprintable() else "?" for character in text))

    def write(self, text: str) -> None:
        """Replace the text that is shown; a closed standard error is ignored."""
        if text != self._shown:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"\r{text.ljust(len(self._shown))}\r{text}")
                sys.stderr.flush()
            self._shown = text
