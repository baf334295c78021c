"""The table of auditors: the scores have the epsilon that they are said to have, and errors are counted as errors."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def auditors():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("auditors", BENCHMARKS / "auditors.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("name", ["no record in the scores", "Laplace, epsilon 1"])
def test_the_scores_have_the_epsilon_that_is_said(auditors, name):
    """Above every threshold the rates of 200,000 scores differ by at most e^epsilon, but for 6 deviations."""
    without, with_record = auditors.scores(name, 200_000, 0)
    assert not np.array_equal(without, auditors.scores(name, 200_000, 1)[0])
    for threshold in (-1.0, 0.0, 1.0, 2.0):
        alarms, hits = np.mean(without > threshold), np.mean(with_record > threshold)
        error = 6 * (1 + np.exp(auditors.TRUTHS[name])) * np.sqrt(0.25 / len(without))
        assert hits <= np.exp(auditors.TRUTHS[name]) * alarms + error
    assert np.log(hits / alarms) == pytest.approx(auditors.TRUTHS[name], abs=0.1)


def test_errors_are_counted(auditors):
    found = {"no record in the scores": [0.0, 0.0, 0.2, 1e-9], "Laplace, epsilon 1": [0.5, 1.0, 1.2, 1.4]}
    assert auditors.row("dpsgd-audit", found)[2:] == ["25.0%", "0.000", "50.0%", "1.100"]


def test_a_peer_that_is_not_there_is_told(auditors, tmp_path, monkeypatch):
    import argparse

    monkeypatch.setitem(auditors.MODULES, "tf-privacy", "no_such_module")
    arguments = argparse.Namespace(python=[str(tmp_path / "none")], runs=1, per_side=10)
    assert auditors.asked("tf-privacy", arguments) == "no Python here has it"


def test_every_tool_says_which_module_it_needs(auditors):
    assert set(auditors.MODULES) == set(auditors.TOOLS)
