"""Both pairs of shuffling far from the settings that people use: much noise, little noise, many epochs."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_rate_is
from scipy.special import ndtr
from scipy.stats import norm

import guarantees
from guarantees.shuffling.isolated import IsolatedShuffleLaw
from guarantees.shuffling.lognormal_lattice import one_round
from guarantees.shuffling.tilting import Cumulants

WITH, WITHOUT = "with_given_without", "without_given_with"


def hermite(rounds, sigma):
    """Nodes of all rounds but one: their sum, and weights."""
    x, weight = np.polynomial.hermite_e.hermegauss(80)
    y, weight = np.exp(x / sigma - 0.5 / sigma**2), weight / weight.sum()
    total, weights = np.zeros(1), np.ones(1)
    for _ in range(rounds - 1):
        total, weights = np.add.outer(total, y).ravel(), np.multiply.outer(weights, weight).ravel()
    return total, weights


def variation_by_quadrature(rounds, sigma):
    """``E (1 - L)^+``, the last round in closed form."""
    total, weights = hermite(rounds, sigma)
    strike = rounds - total
    z = sigma * np.log(np.maximum(strike, 1e-300)) + 0.5 / sigma
    return float(weights @ np.where(strike > 0, strike * ndtr(z) - ndtr(z - 1 / sigma), 0.0)) / rounds


def two_rounds_below(ratio, sigma):
    """P(L <= ratio) without and with the record at two rounds: a sum over the log of the other round's share."""
    u = np.linspace(-200, 200, 400_001)
    log_share, log_rest = -np.logaddexp(0, -u), -np.logaddexp(0, u)
    x, z = (sigma * (np.log(2 * ratio) + log) + 0.5 / sigma for log in (log_share, log_rest))
    density = norm.pdf(x) * sigma * np.exp(log_rest) * 1e-3
    return float(density @ ndtr(z)), float(density @ ndtr(z - 1 / sigma))


def draw(rng, rounds, sigma, trials, shift):
    x = rng.standard_normal((trials, rounds))
    x[np.arange(trials), rng.integers(rounds, size=trials)] += shift / sigma
    return np.log(np.exp(x / sigma - 0.5 / sigma**2).mean(axis=1))


@pytest.mark.few(1)
@pytest.mark.parametrize(("rounds", "sigma"), [(2, 30.0), (2, 40.0), (2, 1000.0), (3, 35.0), (3, 300.0)])
def test_much_noise_leaves_a_leak_that_quadrature_confirms(rounds, sigma):
    truth = variation_by_quadrature(rounds, sigma)
    claim = guarantees.balls_and_bins(rounds=rounds, noise_multiplier=sigma)
    for direction in (WITH, WITHOUT):
        assert truth * (1 - 1e-9) <= claim.delta(0.0, direction) <= truth * (1 + 1e-6)
    assert claim.delta(0.0) - truth <= claim.error < 1e-3 * truth


@pytest.mark.few(3)
@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 30.0, 1000.0])
def test_one_round_keeps_mass_and_mean(sigma):
    top = float(np.exp(5 / sigma + 0.5 / sigma**2))
    for cells in (1000, 3 * 2**19):
        found = one_round(sigma, top / cells, top)
        z = sigma * np.log(found.top) + 0.5 / sigma
        assert found.masses.sum() == pytest.approx(ndtr(z), rel=1e-11)
        mean = found.masses @ (found.index * (top / cells))
        assert mean == pytest.approx(ndtr(z - 1 / sigma), rel=1e-11)


@pytest.mark.few(1)
@pytest.mark.parametrize(("rounds", "sigma"), [(50, 200.0), (2, 0.1), (3, 0.5), (30, 1.0), (1000, 0.3), (10**5, 3.0)])
def test_windows_below_and_above_agree_where_they_meet(rounds, sigma):
    """Two lattices with different tilts: total variation from below, from above, and both masses together."""
    law = IsolatedShuffleLaw(rounds, sigma)
    below, above = law._window(False, 0), law._window(True, 0)
    one = np.ones(1)
    assert below.shortfall(one) == pytest.approx(above.excess(one), abs=law.error)
    for less, more in zip(below.below(one), above.above(one), strict=True):
        assert less + more == pytest.approx(1, abs=1e-3)


@pytest.mark.long
def test_limit_of_much_noise_and_order_in_noise_and_rounds():
    for rounds, sigma in ((2, 200.0), (100, 50.0), (10**6, 1000.0)):
        found = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma)
        limit = 2 * ndtr(IsolatedShuffleLaw(rounds, sigma).deviation / 2) - 1
        assert found.total_variation == pytest.approx(limit, rel=3 / sigma**2 + 3e-4)
    leaks = [guarantees.isolated_shuffle(rounds=50, noise_multiplier=s).total_variation for s in (0.2, 0.7, 9, 400)]
    assert np.all(np.diff(leaks) < 0)
    leaks = [guarantees.isolated_shuffle(rounds=m, noise_multiplier=60.0).total_variation for m in (2, 7, 300)]
    assert np.all(np.diff(leaks) < 0)


@pytest.mark.long
def test_losses_far_below_zero_are_possible():
    """M 2, sigma .1: the record is missed by losses far below -80."""
    claim = guarantees.isolated_shuffle(rounds=2, noise_multiplier=0.1)
    for epsilon in (20.0, 60.0, 80.5, 100.0):
        without, with_record = two_rounds_below(np.exp(-epsilon), 0.1)
        assert claim.delta(epsilon, WITHOUT) == pytest.approx(without - np.exp(epsilon) * with_record, rel=1e-5)


@pytest.mark.long
def test_a_hundred_epochs_agree_with_simulation():
    rng, trials = np.random.default_rng(13), 4000
    claim = guarantees.isolated_shuffle(rounds=10, noise_multiplier=1.0, epochs=100)
    without, with_record = (sum(draw(rng, 10, 1.0, trials, shift) for _ in range(100)) for shift in (0, 1))
    for t in (-2.0, 2.0, 6.0):
        alpha, beta = claim.errors(t)
        assert_rate_is(int((without > t).sum()), trials, alpha)
        assert_rate_is(int((with_record <= t).sum()), trials, beta)
    assert claim.delta(2.0, WITH) == pytest.approx(0.870, abs=0.002)
    with pytest.raises(AssertionError):
        assert_rate_is(int((with_record <= 2.0).sum()), trials, 0.5 * claim.errors(2.0)[1])


@pytest.mark.few(1)
@pytest.mark.parametrize(("rounds", "sigma", "epochs", "least"), [(1000, 0.5, 10, 3.1), (100, 0.7, 20, 4.0)])
def test_epochs_have_a_finite_epsilon(rounds, sigma, epochs, least):
    claim = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma, epochs=epochs)
    assert least < claim.epsilon(1e-5) < guarantees.gaussian(mu=np.sqrt(epochs) / sigma).epsilon(1e-5)
    assert claim.certificate is not None
    assert claim.certificate.safe is not None
    found = claim.epsilon_range(1e-5)
    assert found.at_most * 0.999 < found.at_least <= found.epsilon


@pytest.mark.long
def test_epsilon_of_epochs_at_a_small_delta_agrees_with_a_direct_convolution():
    """Sums of positive masses only, once with every loss rounded down and once up; 1e-9 was beyond the round-off."""
    grid = np.arange(-4 * 256, 12 * 256 + 1) / 256
    tails = IsolatedShuffleLaw(5, 1.0).tails(grid)
    masses = np.where(tails.with_above[:-1] < 0.5, -np.diff(tails.with_above), np.diff(tails.with_below))
    three = np.convolve(np.convolve(masses, masses), masses)
    claim = guarantees.isolated_shuffle(rounds=5, noise_multiplier=1.0, epochs=3)
    for delta in (1e-5, 1e-7, 1e-9):
        epsilon = claim.epsilon(delta, WITH)
        for start, side in ((grid[0], 1), (grid[1], -1)):
            losses = 3 * start + np.arange(len(three)) / 256
            assert side * (delta - three @ -np.expm1(np.minimum(epsilon - losses, 0.0))) > 0
    assert 30 < guarantees.isolated_shuffle(rounds=10, noise_multiplier=1.0, epochs=100).epsilon(1e-9) < 33


def test_grouped_rounds_have_no_smaller_moments_and_the_same_mean():
    values = np.linspace(0.0, 30.0, 50_000)
    masses = np.exp(-values)
    masses /= masses.sum()
    grouped = Cumulants.bounding(values, masses, 10)
    assert grouped.mean(0.0) == pytest.approx(values @ masses, rel=1e-12)
    for tilt in (-2.0, 0.3, 0.9):
        exact = np.log(masses @ np.exp(tilt * values))
        assert exact - 1e-12 <= grouped.log_moment(tilt) < exact + 1e-2


@pytest.mark.parametrize(("rounds", "sigma"), [(2, 30.0), (12, 1000.0), (20, 30.0), (1000, 100.0), (10**6, 1000.0)])
def test_fixed_batches_at_much_noise(rounds, sigma):
    """Just above the isolated pair, whose limit they share; both directions have one total variation."""
    pair = guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=sigma)
    limit = 2 * ndtr(0.5 / (sigma * np.sqrt(rounds))) - 1
    variation = pair.delta(0.0, WITH)
    assert variation == pytest.approx(limit, rel=5 / sigma**2 + 1e-6)
    assert pair.delta(0.0, WITHOUT) == pytest.approx(variation, abs=1e-12)
    epsilon = 0.5 / (sigma * np.sqrt(rounds))
    assert 0 < pair.delta(epsilon, WITHOUT) < pair.delta(epsilon, WITH) + 1e-12 < variation


def test_the_guarantee_never_rises_with_epsilon_next_to_zero():
    found = guarantees.fixed_batch_upper(rounds=2, noise_multiplier=1.0).delta([0.0, 1e-12, 1e-8, 1e-6])
    assert np.all(np.diff(found) <= 0), found


def test_losses_beyond_every_lattice_compose_to_no_promise():
    """A noise multiplier of .001: epsilon is half a million for one epoch."""
    two = guarantees.fixed_batch_upper(rounds=2, noise_multiplier=0.001).compose(2)
    assert two.delta(0.0) == two.delta(1e6) == 1.0
    assert two.epsilon(1e-5) == np.inf
