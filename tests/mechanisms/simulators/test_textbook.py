import jax
import numpy as np
import pytest
from checks import assert_has_law, assert_rate_is
from scipy import stats

import guarantees
import mechanisms
from mechanisms.simulators import textbook

SEED = 77
TRIALS = 200_000


def simulate(step, dataset, trials=TRIALS):
    keys = jax.random.split(jax.random.key(SEED), trials)
    return np.asarray(jax.jit(jax.vmap(lambda key: step(key, dataset)))(keys))


@pytest.mark.parametrize("relation", ["add_remove", "zero_out", "substitution"])
def test_the_scalar_pair_differs_by_the_sensitivity(relation):
    pair = mechanisms.scalar_pair(sensitivity=0.5, relation=relation)
    assert float(pair.with_record.sum() - pair.without.sum()) == 0.5


def test_gaussian_noise_has_its_law_and_the_errors_of_the_claim():
    step = mechanisms.gaussian_mechanism(noise_multiplier=0.5, sensitivity=2.0)
    pair = mechanisms.scalar_pair(sensitivity=2.0)
    without, with_record = simulate(step, pair.without)[:, 0], simulate(step, pair.with_record)[:, 0]
    assert_has_law(without, stats.norm(0, 1).cdf)
    assert_has_law(with_record, stats.norm(2, 1).cdf)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(without, stats.norm(0.03, 1).cdf)
    alpha = stats.norm.sf(1.3)
    beta = float(guarantees.gaussian(mu=1 / 0.5).beta(alpha))
    assert_rate_is(int(np.sum(with_record <= 1.3)), TRIALS, beta)


def test_laplace_noise_has_its_law_and_the_errors_of_the_claim():
    step = textbook.laplace_mechanism(epsilon=0.8, sensitivity=2.0)
    pair = mechanisms.scalar_pair(sensitivity=2.0)
    without, with_record = simulate(step, pair.without)[:, 0], simulate(step, pair.with_record)[:, 0]
    law = stats.laplace(0, 2.0 / 0.8)
    assert_has_law(without, law.cdf)
    assert_has_law(with_record - 2.0, law.cdf)
    beta = float(guarantees.laplace(epsilon=0.8).beta(law.sf(1.0)))
    assert_rate_is(int(np.sum(with_record <= 1.0)), TRIALS, beta)
    with pytest.raises(AssertionError, match="two-sided"):
        assert_rate_is(int(np.sum(with_record <= 1.0)), TRIALS, beta * 1.05)


def test_randomised_response_lies_as_often_as_it_should():
    step, pair = textbook.randomised_response_mechanism(epsilon=1.5), textbook.bit_pair()
    lie = 1 / (1 + np.exp(1.5))
    told = [simulate(step, data)[:, 0] for data in (pair.without, pair.with_record)]
    assert set(np.unique(told)) == {0.0, 1.0}
    assert_rate_is(int(told[0].sum()), TRIALS, lie)
    assert_rate_is(int((1 - told[1]).sum()), TRIALS, lie)
    assert float(guarantees.randomised_response(epsilon=1.5).beta(lie)) == pytest.approx(lie)
    with pytest.raises(AssertionError, match="two-sided"):
        assert_rate_is(int(told[0].sum()), TRIALS, 1 / (1 + np.exp(1.4)))


def test_textbook_mechanisms_take_the_pairs_of_gradients():
    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
    for step in (
        mechanisms.gaussian_mechanism(noise_multiplier=1e-6),
        textbook.laplace_mechanism(epsilon=1e6),
    ):
        difference = simulate(step, pair.with_record, 3) - simulate(step, pair.without, 3)
        np.testing.assert_allclose(difference, np.tile([1.0, 0, 0, 0], (3, 1)), atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mechanisms.gaussian_mechanism(noise_multiplier=0.0), "noise_multiplier must be > 0"),
        (lambda: mechanisms.gaussian_mechanism(noise_multiplier=1.0, sensitivity=-1.0), "sensitivity must be"),
        (lambda: textbook.laplace_mechanism(epsilon=0.0), "epsilon must be > 0"),
        (lambda: textbook.laplace_mechanism(epsilon=float("inf")), "epsilon must be"),
        (lambda: textbook.randomised_response_mechanism(epsilon=-0.1), "epsilon must be >= 0"),
        (lambda: mechanisms.scalar_pair(sensitivity=0.0), "sensitivity must be"),
        (lambda: mechanisms.gaussian_mechanism(noise_multiplier=1.0)(jax.random.key(0), np.ones(3)), "shape"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_randomised_response_at_epsilon_zero_is_a_fair_coin():
    told = simulate(textbook.randomised_response_mechanism(epsilon=0.0), textbook.bit_pair().without)
    assert_rate_is(int(told.sum()), TRIALS, 0.5)
