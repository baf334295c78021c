import itertools
import json

import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.special import ndtri

from audit.bounds.betting import (
    AnytimeTest,
    Wealth,
    _mean_wealth,
    anytime_test,
    pilot_thresholds,
    place_bets,
    spread_thresholds,
)
from guarantees.families import closed_form as families
from guarantees.normalised.round import normalised_round

CLAIMS = {
    "gaussian": families.gaussian(mu=1.0),
    "subsampled": families.subsampled_gaussian(rate=0.05, noise_multiplier=1.0),
    "kinked": families.epsilon_delta(epsilon=1.0, delta=0.05),
    "laplace": families.laplace(epsilon=1.0),
}


def gaussian_scores(rng, runs, trials, mu=1.0, rate=1.0):
    shift = mu * (rng.random((runs, trials)) < rate)
    return rng.normal(size=(runs, trials)), rng.normal(size=(runs, trials)) + shift


def play(test: AnytimeTest, wealth: Wealth, scores, thresholds) -> Wealth:
    without, with_record = scores
    return test.update(wealth, without[..., None] > thresholds, with_record[..., None] <= thresholds)


def log_e_value(test: AnytimeTest, wealth: Wealth):
    """Logarithm of the present e-value: the mean wealth over tests."""
    gains = test._gains(wealth)
    return _mean_wealth(test._log_wealth(wealth, gains, wealth.trials, wealth.false_alarms, wealth.misses))


@pytest.mark.parametrize("name", CLAIMS)
def test_factor_never_grows_on_average_under_the_claim(name):
    claim = CLAIMS[name]
    rng = np.random.default_rng(1)
    trials = 200
    alarms, misses = rng.integers(0, trials, 300), rng.integers(0, trials, 300)
    alarms[:50] = misses[:50] = 0
    gains = np.exp(place_bets(anytime_test(claim, tests=1).corners, alarms, misses, trials))
    assert np.any(gains != 1)
    alpha = np.concatenate([np.linspace(0, 1, 2001), np.logspace(-12, -3, 200)])
    beta = claim.beta(alpha)
    first = alpha * gains[:, :1] + (1 - alpha) * gains[:, 1:2]
    second = beta * gains[:, 2:3] + (1 - beta) * gains[:, 3:]
    assert np.max(first * second) <= 1 + 1e-12
    assert gains.min() > 0


def test_bet_on_a_weaker_claim_than_stated_would_be_unfair():
    """Negative control: the same factors do grow on average for a mechanism below the claim."""
    gains = np.exp(place_bets(anytime_test(CLAIMS["gaussian"], tests=1).corners, np.array(20), np.array(20), 100))
    mean = (0.2 * gains[0] + 0.8 * gains[1]) * (0.2 * gains[2] + 0.8 * gains[3])
    assert mean > 1.02


def test_wealth_does_not_depend_on_batches():
    claim = CLAIMS["gaussian"]
    thresholds = spread_thresholds(claim, 10)
    test = anytime_test(claim, tests=10, both_ways=True)
    rng = np.random.default_rng(2)
    scores = gaussian_scores(rng, 1, 700, mu=1.3)
    without, with_record = scores[0][0], scores[1][0]
    whole = play(test, test.start(), (without, with_record), thresholds)
    parts = test.start()
    edges = np.unique(np.concatenate([[0, 700], rng.integers(1, 700, 60)]))
    for low, high in itertools.pairwise(edges):
        parts = play(test, parts, (without[low:high], with_record[low:high]), thresholds)
    counted = test.start()
    while counted.trials < 700:
        low, high = counted.trials, min(counted.next_refit, 700)
        counted = test.update_counts(
            counted,
            trials=high - low,
            false_alarms=(without[low:high, None] > thresholds).sum(0),
            misses=(with_record[low:high, None] <= thresholds).sum(0),
        )
    for other in (parts, counted):
        assert other.trials == whole.trials
        np.testing.assert_array_equal(other.false_alarms, whole.false_alarms)
        np.testing.assert_allclose(log_e_value(test, other), log_e_value(test, whole), rtol=1e-12)
    np.testing.assert_allclose(parts.peak, whole.peak, rtol=1e-12)
    assert counted.peak <= whole.peak + 1e-12


def test_interrupted_run_resumes_from_json():
    claim = CLAIMS["subsampled"]
    thresholds = spread_thresholds(claim, 4)
    test = anytime_test(claim, tests=4)
    scores = gaussian_scores(np.random.default_rng(3), 1, 333)
    without, with_record = scores[0][0], scores[1][0]
    whole = play(test, test.start(), (without, with_record), thresholds)
    half = play(test, test.start(), (without[:101], with_record[:101]), thresholds)
    stored = json.loads(json.dumps(half.to_json()))
    resumed = play(test, Wealth.from_json(stored), (without[101:], with_record[101:]), thresholds)
    assert resumed.to_json() == whole.to_json()


def false_alarm_runs(claim, draw, runs, trials, batch, seed):
    """Runs in which a look after some trial rejects, and in which a peeked fixed-sample test does."""
    thresholds = np.linspace(-1.0, 2.0, 10)
    test = anytime_test(claim, tests=10)
    rng = np.random.default_rng(seed)
    wealth = test.start((runs,))
    total, crossed = np.zeros(runs), np.zeros(runs, bool)
    alpha = claim.beta(0.5) * 0 + 0.5
    spread = np.sqrt(alpha * (1 - alpha) + claim.beta(alpha) * (1 - claim.beta(alpha)))
    while wealth.trials < trials:
        without, with_record = draw(rng, runs, min(batch, trials - wealth.trials))
        seen = wealth.trials + np.arange(1, without.shape[1] + 1)
        wealth = play(test, wealth, (without, with_record), thresholds)
        errors = (without > 0.0) + 1.0 * (with_record <= 0.0) - alpha - claim.beta(alpha)
        path = total[:, None] + np.cumsum(errors, 1)
        crossed |= np.any((path < -1.645 * spread * np.sqrt(seen)) & (seen > 30), 1)
        total = path[:, -1]
    return int(test.rejected(wealth, 0.05).sum()), int(crossed.sum())


@pytest.mark.few(1)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_false_alarms_with_a_look_after_every_trial(rate):
    claim = families.subsampled_gaussian(rate=rate, noise_multiplier=1.0)
    anytime, peeked = false_alarm_runs(
        claim, lambda rng, runs, k: gaussian_scores(rng, runs, k, rate=rate), 200, 3000, 500, seed=4
    )
    assert_rate_at_most(anytime, 200, 0.05)
    with pytest.raises(AssertionError):
        assert_rate_at_most(peeked, 200, 0.05)


@pytest.mark.long
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_false_alarms_with_a_look_after_every_trial_up_to_1e5(rate):
    claim = families.subsampled_gaussian(rate=rate, noise_multiplier=1.0)
    anytime = peeked = 0
    for seed in range(4):
        found = false_alarm_runs(
            claim, lambda rng, runs, k: gaussian_scores(rng, runs, k, rate=rate), 200, 100_000, 2000, seed=seed
        )
        anytime, peeked = anytime + found[0], peeked + found[1]
    assert anytime <= 40
    with pytest.raises(AssertionError):
        assert_rate_at_most(peeked, 800, 0.05)


def test_gross_violations_end_after_tens_of_trials():
    test = anytime_test(CLAIMS["gaussian"], tests=10)
    thresholds = spread_thresholds(families.gaussian(mu=2.0), 10)
    scores = gaussian_scores(np.random.default_rng(5), 300, 62, mu=2.0)
    wealth = play(test, test.start((300,)), tuple(2 * s - 2 for s in scores), thresholds)
    assert_rate_at_most(int((~test.rejected(wealth, 0.05)).sum()), 300, 0.2)
    perfect = test.update(test.start(), np.zeros((10, 10)), np.zeros((10, 10)))
    assert test.rejected(perfect, 0.05)


def unstopped(curve, claim, trials, runs, seed):
    """Simulated runs that have not rejected after so many trials: a test errs iff a uniform is below its rate."""
    alpha, beta = curve.errors(spread_thresholds(curve))
    test = anytime_test(claim, tests=len(alpha))
    wealth, rng = test.start((runs,)), np.random.default_rng(seed)
    for start in range(0, trials, 500):
        without, with_record = rng.random((2, runs, min(500, trials - start), 1))
        wealth = test.update(wealth, without < alpha, with_record < beta)
    return int((~test.rejected(wealth, 0.05)).sum())


@pytest.mark.parametrize(("factor", "median", "most"), [(0.8, 476, 801), (0.5, 40, 62)])
def test_too_little_noise_is_found_in_the_stated_trials(factor, median, most):
    curve = families.gaussian(mu=1 / factor).curve
    assert_rate_at_most(unstopped(curve, CLAIMS["gaussian"], median, 200, seed=21), 200, 0.5)
    assert_rate_at_most(unstopped(curve, CLAIMS["gaussian"], most, 200, seed=22), 200, 0.2)


@pytest.mark.long
def test_slightly_too_little_noise_is_found_in_the_stated_trials():
    curve = families.gaussian(mu=1 / 0.9).curve
    assert unstopped(curve, CLAIMS["gaussian"], 2452, 1000, seed=23) <= 500
    assert unstopped(curve, CLAIMS["gaussian"], 4077, 1000, seed=24) <= 200


def test_normalisation_that_leaks_is_found_in_eight_trials():
    claim = families.subsampled_gaussian(rate=0.05, noise_multiplier=10.0)
    curve = normalised_round(
        normalise_by="expected_batch", records=4, rate=0.05, noise_multiplier=10.0, dimension=100
    ).curve
    assert_rate_at_most(unstopped(curve, claim, 6, 300, seed=25), 300, 0.5)
    assert_rate_at_most(unstopped(curve, claim, 8, 300, seed=26), 300, 0.2)


def test_reversed_score_is_found_only_by_the_second_process():
    scores = gaussian_scores(np.random.default_rng(6), 1, 300, mu=2.5)
    reversed_scores = -scores[0][0], -scores[1][0]
    thresholds = np.linspace(-3.0, 1.0, 5)
    for both_ways in (True, False):
        test = anytime_test(CLAIMS["gaussian"], tests=5, both_ways=both_ways)
        wealth = play(test, test.start(), reversed_scores, thresholds)
        assert bool(test.rejected(wealth, 0.05)) is both_ways


def test_p_value_is_the_inverse_of_the_largest_e_value():
    test = anytime_test(CLAIMS["gaussian"], tests=1)
    wealth = test.start()
    assert test.p_value(wealth) == 1.0
    largest = 0.0
    rng = np.random.default_rng(7)
    for _ in range(40):
        wealth = test.update(wealth, rng.random((1, 1)) < 0.1, rng.random((1, 1)) < 0.1)
        largest = max(largest, float(log_e_value(test, wealth)))
    np.testing.assert_allclose(test.p_value(wealth), np.exp(-largest), rtol=1e-9)
    assert test.rejected(wealth, 0.05)


def test_thresholds_are_spread_over_both_error_rates():
    curve = families.gaussian(mu=1.0)
    thresholds = spread_thresholds(curve, 10)
    alpha, beta = curve.curve.errors(thresholds)
    assert np.all(np.diff(thresholds) >= 0)
    assert np.isclose(alpha.max(), 0.9)
    assert np.isclose(beta.max(), 0.9)
    pilot = pilot_thresholds(ndtri(np.linspace(0.01, 0.99, 99)), ndtri(np.linspace(0.01, 0.99, 99)) + 1, 4)
    assert np.all(np.diff(pilot) > 0)


def test_bad_input_is_refused():
    test = anytime_test(CLAIMS["gaussian"], tests=2)
    start = test.start()
    with pytest.raises(ValueError, match="0 or 1"):
        test.update(start, np.full((3, 2), 0.5), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="tests in its last axis"):
        test.update(start, np.zeros((3, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="next refit"):
        test.update_counts(start, trials=5, false_alarms=[0, 0], misses=[0, 0])
    with pytest.raises(ValueError, match="keys"):
        Wealth.from_json({"trials": 1})
