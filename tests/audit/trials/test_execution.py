"""How an audit runs is one object, held to its types before anything is drawn."""

from __future__ import annotations

import inspect

import pytest

import audit


def test_what_an_audit_is_and_how_it_runs_are_said_apart():
    how = set(inspect.signature(audit.Execution).parameters)
    what = set(inspect.signature(audit.run_audit).parameters)
    assert how == {"executor", "chunk", "deadline", "progress", "fitting", "foreseen", "resume"}
    assert not how & what
    assert what >= {"mechanism", "neighbours", "distinguisher", "claim", "trials", "risk", "key", "execution"}


@pytest.mark.parametrize(
    ("given", "told"),
    [({"chunk": 0}, "chunk must be"), ({"deadline": "60s"}, "deadline must be"), ({"progress": 3}, "progress must be")],
)
def test_a_bad_word_about_how_is_refused_at_once(given, told):
    with pytest.raises(ValueError, match=told):
        audit.Execution(**given)
