import jax
import numpy as np
import pytest
from checks import assert_has_law, assert_rate_is
from scipy import stats

import guarantees
import mechanisms

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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mechanisms.gaussian_mechanism(noise_multiplier=0.0), "noise_multiplier must be > 0"),
        (lambda: mechanisms.gaussian_mechanism(noise_multiplier=1.0, sensitivity=-1.0), "sensitivity must be"),
        (lambda: mechanisms.scalar_pair(sensitivity=0.0), "sensitivity must be"),
        (lambda: mechanisms.gaussian_mechanism(noise_multiplier=1.0)(jax.random.key(0), np.ones(3)), "shape"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
