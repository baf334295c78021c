import numpy as np
import pytest
from scipy.special import bdtr, ndtr
from scipy.stats import binom

from audit.bounds.binomial import (
    binomial_cdf,
    binomial_cdf_table,
    binomial_quantile,
    binomial_tail,
    binomial_upper_quantile,
)


def edgeworth(k, n, p):
    """The normal limit with its first correction: right to about 1/n."""
    spread = np.sqrt(n * p * (1 - p))
    z = (k + 0.5 - n * p) / spread
    return ndtr(z) - (1 - 2 * p) / spread / 6 * (z * z - 1) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("trials", [10**7, 10**8, 10**9])
def test_many_trials_follow_the_normal_limit(trials):
    rate = 0.3
    k = np.floor(trials * rate + np.linspace(-5, 5, 41) * np.sqrt(trials * rate * (1 - rate)))
    assert np.abs(binomial_cdf(k, trials, rate) - edgeworth(k, trials, rate)).max() < 2 / trials * 10
    assert np.abs(binomial_tail(k, trials, rate) - 1 + edgeworth(k, trials, rate)).max() < 2 / trials * 10


def test_the_usual_routine_does_not():
    """Negative control: what this replaced is off by more than a tenth at 1e8 trials."""
    k = np.floor(5e7 + np.linspace(-5, 5, 401) * 5e3)
    assert np.abs(bdtr(k, 10**8, 0.5) - edgeworth(k, 10**8, 0.5)).max() > 0.1


@pytest.mark.parametrize("trials", [1, 7, 1000, 10**5, 10**7])
def test_a_table_equals_the_function(trials):
    rates = np.array([0.0, 1e-9, 0.3 / trials, 1e-3, 0.2, 0.5, 0.97, 1 - 1e-7, 1.0])
    spread = np.linspace(-8, 8, 50)[:, None] * np.sqrt(trials * rates * (1 - rates) + 1)
    errors = np.unique(np.clip(np.rint(trials * rates + spread), -2, trials).astype(np.int64))
    errors = np.unique(np.concatenate([[-1, 0, trials - 1, trials], errors]))
    expected = binom.cdf(errors, trials, rates[:, None])
    # 1 - rate loses digits near 1; n times that is what the function is off by
    assert np.abs(binomial_cdf_table(errors, trials, rates) - expected).max() < 1e-12 + 1e-16 * trials


@pytest.mark.parametrize("rate", [1e-6, 0.02, 0.5, 0.999])
@pytest.mark.parametrize("trials", [1, 40, 10**6])
def test_quantiles_are_those_of_scipy(trials, rate):
    for level in (1e-11, 0.3, 1 - 1e-9):
        assert binomial_quantile(level, trials, rate) == binom.ppf(level, trials, rate)
        assert binomial_upper_quantile(level, trials, rate) == binom.isf(level, trials, rate)
