"""Opacus's search for a noise multiplier is made once for the same numbers."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from mechanisms.adapters.pytorch.opacus_claims import MODULE, SEARCH, searches_kept


@pytest.fixture
def engine(monkeypatch):
    asked = []

    def search(**given):
        asked.append(given)
        return 1.0 + given["target_epsilon"]

    found = SimpleNamespace(asked=asked, search=search, **{SEARCH: search})
    monkeypatch.setitem(sys.modules, MODULE, found)
    return found


def test_a_search_is_made_once_for_the_same_numbers_and_again_for_others(engine):
    for _ in range(2):
        with searches_kept():
            assert engine.get_noise_multiplier(target_epsilon=2.0, epochs=1) == 3.0
    assert len(engine.asked) == 1
    with searches_kept():
        assert engine.get_noise_multiplier(target_epsilon=2.0, epochs=2) == 3.0
        assert engine.get_noise_multiplier(target_epsilon=4.0, epochs=1) == 5.0
    assert len(engine.asked) == 3


def test_a_search_is_made_as_it_is_for_what_cannot_be_remembered(engine):
    with searches_kept():
        for _ in range(2):
            assert engine.get_noise_multiplier(target_epsilon=2.0, alphas=[2, 3]) == 3.0
    assert len(engine.asked) == 2


def test_opacus_is_as_before_after_a_training_that_fails(engine):
    def training():
        with searches_kept():
            assert getattr(engine, SEARCH) is not engine.search
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        training()
    assert getattr(engine, SEARCH) is engine.search
