"""The parts of benchmarks/power_peers.py that need no peer: what peers are told, and how answers are counted."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from zoo.faults import zoo

CLAIMS = {fault.claim.describe(): fault.claim for fault in zoo()}


@pytest.fixture(scope="module")
def peers():
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("power_peers")
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_peers_are_told_the_claim_that_we_judge(peers, claim):
    promise, claim = peers.promise_of(claim), claim.symmetrise()
    epsilons = [0.0, 0.01, 0.1, 1.0, 3.0]
    np.testing.assert_allclose([promise.delta(e) for e in epsilons], claim.delta(np.array(epsilons)), atol=1e-9)
    delta = promise.delta(0.5)
    assert promise.epsilon(delta) == pytest.approx(0.5, abs=1e-6)
    # below zero: what the curve itself allows
    alpha = np.linspace(0, 1, 4001)
    allowed = np.max(1 - claim.beta(alpha) - np.exp(-0.5) * alpha)
    assert promise.delta(-0.5) == pytest.approx(allowed, abs=1e-4)


def test_renyi_divergence_of_a_gaussian(peers):
    promise = peers.Promise(rate=1.0, noise_multiplier=2.0)
    assert promise.renyi(1.5) == pytest.approx(1.5 / (2 * 2.0**2), rel=1e-6)


def test_answers_are_counted(peers):
    answers = peers.parsed("imports 3.1\na.wrong.0 1 0.5\nb.wrong.0 0 0.5\na.right.0 0 1.0\na.right.1 1 2.0\n")
    assert peers.row("dp_recorder", answers) == "| dp-recorder, distributional audit | 1 of 2 | 1 of 2 | 1 |"
    assert peers.missed(answers) == "b"
    assert "| not installed: why | | |" in peers.row("dp_recorder", "not installed: why")


@pytest.mark.parametrize("per_side", [300, 1_000, 10_000])
def test_our_audit_takes_no_more_outputs_than_the_peers_get(peers, per_side):
    parts = peers.parts(per_side)
    assert 0.95 * per_side < parts.learnt + parts.chosen + parts.judged < per_side
