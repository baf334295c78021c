from __future__ import annotations

import numpy as np
import pytest
from checks import assert_rate_is
from scipy.special import ndtr
from scipy.stats import norm

import guarantees
from guarantees.shuffling import edgeworth_cdf, isolated_bracket, poisson_mu, shuffle_mu
from guarantees.shuffling.isolated import IsolatedShuffleLaw
from guarantees.trade_off import TradeOff

LEVELS = np.array([0.0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])


def two_rounds(epsilon, sigma, *, reverse=False):
    """Delta at two rounds: one integrated in closed form, the other by Gauss-Legendre sums."""
    total = 2 * np.exp(-epsilon if reverse else epsilon)

    def call(strike):
        z = sigma * np.log(np.maximum(strike, 1e-300)) + 0.5 / sigma
        return np.where(strike > 0, ndtr(1 / sigma - z) - strike * ndtr(-z), 1 - strike)

    def integrand(x):
        y = np.exp(x / sigma - 0.5 / sigma**2)
        value = call(total - y)
        # E (k - Y)^+ = k - 1 + E (Y - k)^+
        return norm.pdf(x) * (value + total - y - 1 if reverse else value)

    kink = sigma * np.log(total) + 0.5 / sigma
    nodes, weights = np.polynomial.legendre.leggauss(400)
    value = 0.0
    for a, b in ((-12, kink), (kink, kink + 12)):
        x = (a + b) / 2 + (b - a) / 2 * nodes
        value += (b - a) / 2 * float(weights @ integrand(x))
    return value / 2 * (np.exp(epsilon) if reverse else 1.0)


def draw(rng, rounds, sigma, trials):
    """Losses without and with the record."""
    x = rng.standard_normal((2, trials, rounds))
    x[1, np.arange(trials), rng.integers(rounds, size=trials)] += 1 / sigma
    return np.log(np.exp(x / sigma - 0.5 / sigma**2).mean(axis=2))


@pytest.mark.few(1)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("reverse", [False, True])
def test_two_rounds_agree_with_quadrature(sigma, reverse):
    claim = guarantees.isolated_shuffle(rounds=2, noise_multiplier=sigma)
    direction = "without_given_with" if reverse else "with_given_without"
    for epsilon in (0.0, 0.3, 1.5):
        truth = two_rounds(epsilon, sigma, reverse=reverse)
        assert claim.delta(epsilon, direction) == pytest.approx(truth, rel=1e-8, abs=5e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("reverse", [False, True])
def test_bracket_encloses_quadrature(reverse):
    for sigma, epsilon in ((0.5, 2.0), (1.0, 0.2)):
        found = isolated_bracket(rounds=2, noise_multiplier=sigma, epsilon=epsilon, reverse=reverse)
        truth = two_rounds(epsilon, sigma, reverse=reverse)
        assert found.lower - 5e-12 <= truth <= found.upper + 5e-12
        assert found.upper - found.lower < 1e-6


@pytest.mark.long
def test_bracket_stays_narrow_up_to_a_million_rounds():
    for rounds in (10, 1000, 10**6):
        found = isolated_bracket(rounds=rounds, noise_multiplier=1.0, epsilon=0.0)
        assert 0 <= found.upper - found.lower < 5e-6
        limit = 2 * ndtr(shuffle_mu(rounds=rounds, noise_multiplier=1.0) / 2) - 1
        assert found.upper == pytest.approx(limit, rel=20 / np.sqrt(rounds))


@pytest.mark.long
def test_tails_agree_with_simulation():
    rng, trials = np.random.default_rng(11), 200_000
    law = guarantees.isolated_shuffle(rounds=6, noise_multiplier=0.8).curve.law
    without, with_record = draw(rng, 6, 0.8, trials)
    for t in (-0.8, -0.2, 0.3, 1.2):
        tails = law.tails(np.array(t))
        assert_rate_is(int((without > t).sum()), trials, float(tails.without_above))
        assert_rate_is(int((with_record <= t).sum()), trials, float(tails.with_below))
    wrong = guarantees.isolated_shuffle(rounds=6, noise_multiplier=0.9).curve.law.tails(np.array(1.2))
    with pytest.raises(AssertionError):
        assert_rate_is(int((without > 1.2).sum()), trials, float(wrong.without_above))


@pytest.mark.long
def test_epochs_agree_with_simulation():
    rng, trials = np.random.default_rng(12), 100_000
    law = guarantees.isolated_shuffle(rounds=5, noise_multiplier=1.0, epochs=3).curve.law
    without, with_record = (sum(parts) for parts in zip(*(draw(rng, 5, 1.0, trials) for _ in range(3)), strict=True))
    for t in (-0.7, 0.1, 1.0):
        tails = law.tails(np.array(t))
        assert_rate_is(int((without > t).sum()), trials, float(tails.without_above))
        assert_rate_is(int((with_record <= t).sum()), trials, float(tails.with_below))


@pytest.mark.few(1)
@pytest.mark.parametrize(("rounds", "sigma"), [(2, 1.0), (500, 0.8)])
def test_curve_is_a_trade_off_curve(rounds, sigma):
    claim = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma)
    beta = claim.beta(LEVELS)
    assert np.all(np.diff(beta) <= 0)
    assert np.all(beta <= 1 - LEVELS)
    slopes = np.diff(beta) / np.diff(LEVELS)
    assert np.all(np.diff(slopes) >= -1e-9)
    inside = (LEVELS > 0) & (LEVELS < 1)
    assert claim.reverse.beta(beta)[inside] == pytest.approx(LEVELS[inside], abs=1e-9)


@pytest.mark.long
def test_one_round_is_gaussian_and_more_rounds_leak_less():
    one = guarantees.isolated_shuffle(rounds=1, noise_multiplier=0.7)
    assert one.beta(LEVELS) == pytest.approx(guarantees.gaussian(mu=1 / 0.7).beta(LEVELS))
    leaks = [guarantees.isolated_shuffle(rounds=m, noise_multiplier=0.7).total_variation for m in (1, 2, 3, 10)]
    assert np.all(np.diff(leaks) < 0)


@pytest.mark.long
def test_largest_coordinate_never_beats_the_likelihood_ratio():
    for rounds, sigma in ((3, 0.8), (200, 0.7)):
        exact = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma).beta(LEVELS)
        largest = guarantees.max_coordinate(rounds=rounds, noise_multiplier=sigma).beta(LEVELS)
        assert np.all(exact <= largest + 1e-9)


def test_largest_coordinate_is_equation_17():
    a, m, s = LEVELS[1:-1], 40, 0.6
    expected = ndtr(norm.ppf((1 - a) ** (1 / m)) - 1 / s) * (1 - a) ** ((m - 1) / m)
    claim = guarantees.max_coordinate(rounds=m, noise_multiplier=s)
    assert claim.beta(a) == pytest.approx(expected, rel=1e-9)
    assert claim.total_variation == pytest.approx(np.max(1 - a - expected), rel=0.2)


@pytest.mark.long
def test_losses_beyond_the_resolved_ones_still_promise_the_truth():
    claim = guarantees.isolated_shuffle(rounds=2, noise_multiplier=0.5)
    for epsilon in (9.0, 11.0, 14.0):
        truth = two_rounds(epsilon, 0.5)
        single = guarantees.deterministic_batches(noise_multiplier=0.5).delta(epsilon)
        assert 0.99 * truth <= claim.delta(epsilon, "with_given_without") <= single * (1 + 1e-9)


@pytest.mark.long
def test_rare_large_losses_keep_their_precision():
    """Above, the rate without the record is 1e-24 while delta is .4: no round-off may be multiplied by e^loss."""
    claim = guarantees.isolated_shuffle(rounds=2, noise_multiplier=0.1)
    for epsilon in (10.0, 30.0, 50.0, 70.0):
        assert claim.delta(epsilon, "with_given_without") == pytest.approx(two_rounds(epsilon, 0.1), rel=1e-6)
    half = guarantees.isolated_shuffle(rounds=2, noise_multiplier=0.5)
    for epsilon in (9.0, 14.0, 18.0):
        assert half.delta(epsilon, "with_given_without") == pytest.approx(two_rounds(epsilon, 0.5), rel=1e-5)


def test_edgeworth_is_closer_than_the_normal_law():
    rounds, sigma = 400, 1.5
    deviation = np.sqrt(np.expm1(1 / sigma**2) / rounds)
    x = np.linspace(-2, 2, 9)
    window = IsolatedShuffleLaw(rounds, sigma).window(1.0)
    exact = window.below(1 + x * deviation)[0]
    refined = np.abs(edgeworth_cdf(x, rounds=rounds, noise_multiplier=sigma) - exact).max()
    assert refined < 0.1 * np.abs(ndtr(x) - exact).max()


def test_shuffling_and_poisson_have_the_same_limit():
    """001's figure 2 compares a symmetrised coefficient with a one-directional one."""
    found = guarantees.isolated_shuffle(rounds=1000, noise_multiplier=1.0, epochs=10).total_variation
    same = 2 * ndtr(poisson_mu(rounds=1000, noise_multiplier=1.0, epochs=10) / 2) - 1
    symmetrised = 2 * ndtr(poisson_mu(rounds=1000, noise_multiplier=1.0, epochs=10, symmetrised=True) / 2) - 1
    assert found == pytest.approx(0.05219, abs=1e-5)
    assert same == pytest.approx(found, abs=3e-4)
    assert symmetrised == pytest.approx(0.0681, abs=1e-4)


@pytest.mark.parametrize(("rounds", "sigma"), [(0, 1.0), (2.5, 1.0), (10, 0.0)])
def test_bad_arguments_are_refused(rounds, sigma):
    with pytest.raises(ValueError, match="must be"):
        guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("sigma", [0.4, 1.0])
def test_what_surely_leaks_lies_below_quadrature_by_next_to_nothing(sigma):
    claim = guarantees.isolated_shuffle(rounds=2, noise_multiplier=sigma)
    leaked = TradeOff(claim.certificate.leaked)
    for reverse, direction in ((False, "with_given_without"), (True, "without_given_with")):
        for epsilon in (0.0, 0.3, 1.5, 2.5):
            truth = two_rounds(epsilon, sigma, reverse=reverse)
            assert 0.999 * truth - 1e-6 <= leaked.delta(epsilon, direction) <= truth * (1 + 1e-9) + 1e-13


@pytest.mark.long
def test_epsilon_of_many_rounds_is_known_from_both_sides():
    claim = guarantees.balls_and_bins(rounds=10**4, noise_multiplier=0.4)
    for delta in (1e-3, 1e-5):
        found = claim.epsilon_range(delta)
        assert found.at_least <= found.epsilon <= found.at_most
        assert found.at_most - found.at_least < 1e-3 * found.epsilon
    leaked = TradeOff(claim.certificate.leaked)
    for epsilon in (0.0, 0.5, 3.0):
        for reverse, direction in ((False, "with_given_without"), (True, "without_given_with")):
            proven = claim.law.bracket(epsilon, reverse=reverse).lower
            assert leaked.delta(epsilon, direction) <= proven * (1 + 1e-9)
