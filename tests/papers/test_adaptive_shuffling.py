"""The training whose queries adapt leaks what the game says, and the claim says what it is given."""

import dataclasses
import math
import types

import jax
import numpy as np
import pytest
from checks import assert_rate_is

from papers.adaptive_shuffling import CASES, audited, conjectured, log_likelihood_ratio, pair, proven


def test_the_claim_at_one_epsilon_has_the_given_delta_in_each_direction():
    claim = conjectured(0.2, 0.0047, 0.0029)
    assert claim.delta(0.2, "with_given_without") == pytest.approx(0.0047)
    assert claim.delta(0.2, "without_given_with") == pytest.approx(0.0029)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(("turn", "variation"), [("high", 0.364382), ("never", 0.360890)])
def test_two_rounds_leak_what_quadrature_says(turn, variation):
    training = dataclasses.replace(CASES["T 2"].training, turn=turn)
    trials = 200_000

    def says_with(dataset, seed):
        keys = jax.random.split(jax.random.key(seed), trials)
        scores = jax.jit(jax.vmap(lambda key: log_likelihood_ratio(training(key, dataset))))(keys)
        return np.asarray(scores > 0)

    with_record, without = says_with(pair().with_record, 1), says_with(pair().without, 2)
    # right answers of one coin each: both sides alike often
    right = int(with_record.sum() + (~without).sum())
    assert_rate_is(right, 2 * trials, (1 + variation) / 2)


def test_the_proven_delta_is_that_of_the_best_verdict_point_in_the_direction():
    points = [
        types.SimpleNamespace(target="verdict", alpha_upper=0.1, beta_upper=0.7),
        types.SimpleNamespace(target="verdict", alpha_upper=0.8, beta_upper=0.05),
        types.SimpleNamespace(target="epsilon", alpha_upper=0.0, beta_upper=0.0),
    ]
    record, training = (
        types.SimpleNamespace(points=points),
        dataclasses.replace(CASES["T 2"].training, epsilon=math.log(2)),
    )
    assert proven(record, training) == pytest.approx(1 - 0.7 - 2 * 0.1)
    other = dataclasses.replace(training, direction="without_given_with")
    assert proven(record, other) == pytest.approx(1 - 0.8 - 2 * 0.05)


@pytest.mark.long
def test_the_conjecture_is_refuted_and_its_own_pair_is_not():
    case = CASES["T 2"]
    record = audited(case.training, trials=case.trials, seed=26)
    assert record.verdict == "violation"
    assert 0.3609 < proven(record, case.training) < 0.364382
    control = dataclasses.replace(case.training, turn="never")
    assert audited(control, trials=case.trials, seed=26).verdict == "no_violation_found"
