import math

import numpy as np
import pytest
from checks import assert_rate_at_most
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit.bounds.clopper_pearson import (
    ErrorCounts,
    clopper_pearson_lower,
    clopper_pearson_upper,
    delta_lower_bound,
    epsilon_lower_bound,
    limits,
    mu_lower_bound,
)

COUNTS = ErrorCounts(false_alarms=317, trials_without=5000, misses=262, trials_with=5000)


def test_limits_are_the_exact_clopper_pearson_ones():
    found = limits(COUNTS, risk=0.05)
    assert found.alpha == pytest.approx(0.0705130690010358, abs=1e-8)
    assert found.beta == pytest.approx(0.058942699503657416, abs=1e-8)
    assert delta_lower_bound(COUNTS, epsilon=0.0, risk=0.05) == pytest.approx(0.8705442314953068, abs=1e-8)
    assert epsilon_lower_bound(COUNTS, delta=1e-5, risk=0.05) == pytest.approx(2.7580562109954916, abs=1e-8)


@pytest.mark.parametrize("risk", [1e-12, 1e-3, 0.01, 0.4])
@pytest.mark.parametrize("trials", [1, 10, 5000, 10**7, 10**8])
def test_limits_are_the_rates_at_which_so_few_or_so_many_errors_have_probability_risk(trials, risk):
    for errors in {0, 3 % trials, 123 % trials, *(round(trials * rate) for rate in (1e-3, 0.3, 0.999, 1.0))}:
        lower, upper = (float(of(errors, trials, risk=risk)) for of in (clopper_pearson_lower, clopper_pearson_upper))
        few = stats.binom.cdf(errors, trials, upper) if errors < trials else risk
        many = stats.binom.sf(errors - 1, trials, lower) if errors > 0 else risk
        # next to 1 a rate is known to 1e-16
        assert (few, many) == pytest.approx((risk, risk), rel=max(1e-6, 1e-16 / risk), abs=0)
        assert (lower == 0.0, upper == 1.0) == (errors == 0, errors == trials)


def test_no_errors_prove_the_most_and_chance_proves_nothing():
    perfect = ErrorCounts(false_alarms=0, trials_without=5000, misses=0, trials_with=5000)
    most = epsilon_lower_bound(perfect, delta=1e-5, risk=0.05)
    assert most == pytest.approx(math.log((1 - 1e-5 - (u := 1 - 0.025 ** (1 / 5000))) / u), rel=1e-9)
    chance = ErrorCounts(false_alarms=2500, trials_without=5000, misses=2500, trials_with=5000)
    assert epsilon_lower_bound(chance, delta=0.0, risk=0.05) == 0.0
    assert delta_lower_bound(chance, epsilon=0.0, risk=0.05) == 0.0
    assert mu_lower_bound(chance, risk=0.05) == 0.0


def test_both_directions_count():
    rare_misses = ErrorCounts(false_alarms=900, trials_without=1000, misses=0, trials_with=1000)
    mirrored = ErrorCounts(false_alarms=0, trials_without=1000, misses=900, trials_with=1000)
    assert epsilon_lower_bound(rare_misses, delta=0.0, risk=0.05) > 2
    assert epsilon_lower_bound(rare_misses, delta=0.0, risk=0.05) == epsilon_lower_bound(mirrored, delta=0.0, risk=0.05)


counts = st.integers(1, 5000).flatmap(
    lambda n: st.builds(
        ErrorCounts,
        false_alarms=st.integers(0, n),
        trials_without=st.just(n),
        misses=st.integers(0, n),
        trials_with=st.just(n),
    )
)


@given(counts, st.floats(1e-6, 0.4), st.floats(0, 0.5))
def test_bounds_shrink_when_risk_shrinks_or_delta_grows(found, risk, delta):
    loose = epsilon_lower_bound(found, delta=delta, risk=risk)
    assert epsilon_lower_bound(found, delta=delta, risk=risk / 10) <= loose
    assert epsilon_lower_bound(found, delta=min(0.9, delta + 0.1), risk=risk) <= loose
    assert mu_lower_bound(found, risk=risk / 10) <= mu_lower_bound(found, risk=risk)


@given(counts, st.floats(1e-6, 0.4))
def test_delta_and_epsilon_bounds_tell_the_same_story(found, risk):
    epsilon = epsilon_lower_bound(found, delta=0.01, risk=risk)
    if 0 < epsilon < 30:
        assert delta_lower_bound(found, epsilon=epsilon, risk=risk) == pytest.approx(0.01, abs=1e-9)


@pytest.mark.parametrize("split", [0.5, 0.1, 0.9])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.2), (0.01, 0.9), (0.001, 0.001)])
def test_each_limit_and_both_together_hold_at_their_risk(alpha, beta, split):
    rng = np.random.default_rng(1)
    runs, n, risk = 20_000, 500, 0.05
    upper_alpha = clopper_pearson_upper(rng.binomial(n, alpha, runs), n, risk=risk * split)
    upper_beta = clopper_pearson_upper(rng.binomial(n, beta, runs), n, risk=risk * (1 - split))
    assert_rate_at_most(int((upper_alpha < alpha).sum()), runs, risk * split)
    assert_rate_at_most(int((upper_beta < beta).sum()), runs, risk * (1 - split))
    assert_rate_at_most(int(((upper_alpha < alpha) | (upper_beta < beta)).sum()), runs, risk)


def test_a_plug_in_bound_is_caught_by_the_same_check():
    rng = np.random.default_rng(1)
    runs, n, alpha = 20_000, 500, 0.3
    plug_in = rng.binomial(n, alpha, runs) / n
    with pytest.raises(AssertionError):
        assert_rate_at_most(int((plug_in < alpha).sum()), runs, 0.025)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"false_alarms": 0.5}, "integer"),
        ({"false_alarms": 11}, "0..trials_without"),
        ({"misses": -1}, "0..trials_with"),
    ],
)
def test_wrong_counts_are_refused(arguments, message):
    right = {"false_alarms": 1, "trials_without": 10, "misses": 1, "trials_with": 10}
    with pytest.raises((TypeError, ValueError), match=message):
        ErrorCounts(**{**right, **arguments})


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, float("nan")])
def test_wrong_risk_is_refused(risk):
    with pytest.raises(ValueError, match="risk must be in"):
        epsilon_lower_bound(COUNTS, delta=1e-5, risk=risk)
