"""The training whose queries adapt leaks what the game says, and the claim says what it is given."""

import dataclasses

import jax
import numpy as np
import pytest
from checks import assert_rate_is

from papers.adaptive_shuffling import CASES, audited, conjectured, log_likelihood_ratio, pair


def test_the_claim_at_one_epsilon_has_the_given_delta_in_each_direction():
    claim = conjectured(0.2, 0.0047, 0.0029)
    assert claim.delta(0.2, "with_given_without") == pytest.approx(0.0047)
    assert claim.delta(0.2, "without_given_with") == pytest.approx(0.0029)


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


@pytest.mark.long
def test_the_conjecture_is_refuted_and_its_own_pair_is_not():
    case = CASES["T 2"]
    assert audited(case.training, trials=case.trials, seed=26).verdict == "violation"
    control = dataclasses.replace(case.training, turn="never")
    assert audited(control, trials=case.trials, seed=26).verdict == "no_violation_found"
