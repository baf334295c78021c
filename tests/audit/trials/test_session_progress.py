"""The line that tells a Python session how far an audit is."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from audit.trials import session_progress
from audit.trials.execution import USUAL, Execution
from audit.trials.session_progress import shown_in_sessions
from audit.trials.source import Tally


class Terminal(io.StringIO):
    def isatty(self):
        return True


@shown_in_sessions
def audit(*, trials, name=None, execution=USUAL):
    execution.fitting(10, 20)
    execution.progress(Tally(without=np.zeros(1), with_record=np.zeros(1), trials_per_side=200))
    return execution


def terminal(monkeypatch):
    """Within a test: pytest sets standard error, and says which test it is, when one begins."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setattr(session_progress, "PATIENCE", 0.0)
    monkeypatch.setattr(session_progress, "EVERY", 0.0)
    monkeypatch.delenv("DPSGD_AUDIT_PROGRESS", raising=False)
    return sys.stderr


def test_a_terminal_is_told_how_far_an_audit_is_and_the_line_is_gone_at_the_end(monkeypatch):
    watched = terminal(monkeypatch)
    audit(trials=1000, name="mine\x1b")
    said = watched.getvalue().split("\r")
    assert "mine?, learning: 10 of 20 trials" in said
    assert "mine?: 400 of 1,000 trials" in [text.strip() for text in said]
    assert said[-1] == ""


@pytest.mark.parametrize("why", ["off", "test", "no terminal", "short", "heard"])
def test_nothing_is_said_where_nobody_watches(monkeypatch, why):
    watched, heard = terminal(monkeypatch), []
    execution = Execution(progress=heard.append) if why == "heard" else USUAL
    if why == "off":
        monkeypatch.setenv("DPSGD_AUDIT_PROGRESS", "off")
    if why == "test":
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_it")
    if why == "no terminal":
        monkeypatch.setattr(watched, "isatty", lambda: False)
    if why == "short":
        monkeypatch.setattr(session_progress, "PATIENCE", 60.0)
    audit(trials=1000, execution=execution)
    assert watched.getvalue() == ""
    assert len(heard) == (why == "heard")
