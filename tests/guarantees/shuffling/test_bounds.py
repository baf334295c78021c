from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import guarantees
from guarantees.shuffling import balls_and_bins_estimate
from guarantees.shuffling.clones import Clones, UpperLaw, gaussian_delta

# 003: noise multiplier, rounds, delta, and what the text prints about epsilon of the E_C event and of a fixed order
PRINTED = [
    (0.5, 10_000, 1e-6, 10.994, 10.997),
    (1.3, 10_000, 1e-6, 0.26, None),
    (0.4, 100_000, 1e-6, 14.45, 14.45),
    (1.3, 100_000, 1e-6, 0.029, None),
    (0.7, 1000, 1e-5, 6.528, 6.652),
    (1.3, 1000, 1e-5, 0.83, None),
]


@pytest.mark.parametrize(("sigma", "rounds", "delta", "event", "order"), PRINTED)
def test_epsilons_printed_in_003(sigma, rounds, delta, event, order):
    found = guarantees.fixed_batch_event(rounds=rounds, noise_multiplier=sigma).epsilon(delta)
    assert event < found < 1.02 * event + 1e-3
    if order is not None:
        assert guarantees.deterministic_batches(noise_multiplier=sigma).epsilon(delta) == pytest.approx(order, abs=1e-3)


def test_deltas_printed_in_003():
    def event(sigma, rounds, epsilon):
        return guarantees.fixed_batch_event(rounds=rounds, noise_multiplier=sigma).delta(epsilon)

    assert event(0.4, 10_000, 4.0) == pytest.approx(0.226, abs=5e-4)
    assert guarantees.deterministic_batches(noise_multiplier=0.4).delta(4.0) == pytest.approx(0.244, abs=5e-4)
    assert event(1.0, 1000, 4.0) == pytest.approx(4.38e-7, rel=1e-3)
    # figure 7's caption gives at epsilon 1 what belongs to epsilon 1/2
    assert event(1.0, 1000, 1.0) == pytest.approx(0.001, abs=5e-5)
    assert event(1.0, 1000, 0.5) == pytest.approx(0.004, abs=5e-4)
    # three of the ">=" are rounded up
    for value, printed in (
        (event(0.4, 10_000, 12.0), 7.5e-5),
        (event(0.8, 1000, 1.0), 0.018),
        (event(0.8, 1000, 4.0), 1.6e-4),
    ):
        assert 0.99 * printed < value < printed


def test_event_is_the_best_of_its_cuts():
    sigma, rounds, epsilon = 0.9, 50, 0.7
    cuts = np.arange(0, 100, 0.01) / sigma
    log_others = (rounds - 1) * np.log(ndtr(cuts))
    rates = [1 - ndtr(cuts - k / sigma) * np.exp(log_others) for k in (1, 2)]
    expected = np.max(rates[1] - np.exp(epsilon) * rates[0])
    event = guarantees.fixed_batch_event(rounds=rounds, noise_multiplier=sigma)
    assert event.delta(epsilon, "with_given_without") == pytest.approx(expected, rel=1e-10)
    finer = guarantees.fixed_batch_event(rounds=rounds, noise_multiplier=sigma, cut_step=0.0)
    assert expected <= finer.delta(epsilon, "with_given_without") < expected * (1 + 1e-3)


def test_event_curve_passes_through_its_points():
    sigma, rounds, cut = 0.7, 30, 2.0
    event = guarantees.fixed_batch_event(rounds=rounds, noise_multiplier=sigma)
    alpha, beta = (ndtr((cut - k) / sigma) * ndtr(cut / sigma) ** (rounds - 1) for k in (1, 2))
    assert event.beta(1 - alpha) == pytest.approx(beta, abs=1e-12)
    levels = np.linspace(0.01, 0.99, 25)
    assert np.all(np.diff(event.beta(levels), n=2) > -1e-12)


def test_the_event_is_proved_on_one_side_only():
    event = guarantees.fixed_batch_event(rounds=30, noise_multiplier=0.7)
    for curve in (event, event.compose(2)):
        assert curve.certificate.safe is None
        assert curve.certificate.leaked is not None
    assert guarantees.max_coordinate(rounds=30, noise_multiplier=0.7).certificate is None


def clone_delta_by_convolution(clones, epsilon):
    beta = 2 * ndtr(0.5 / clones.noise_multiplier) - 1
    law, total = np.array([1.0]), 0.0
    for count in range(clones.rounds):
        values = np.arange(-count, count + 1)
        level = (count + 1) * np.tanh(epsilon / 2)
        above = [law[values > level + shift].sum() for shift in (-1, 0, 1)]
        part = (1 - beta) * above[1] * (1 - np.exp(epsilon)) + beta * (above[0] - np.exp(epsilon) * above[2])
        total += binom.pmf(count, clones.rounds - 1, clones.probability) * part
        law = np.convolve(law, [beta / 2, 1 - beta, beta / 2])
    return total + (1 + np.exp(epsilon)) * clones.additive


def test_clone_bound_is_the_stated_sum():
    for probability, epsilon in ((0.1, 0.3), (0.5, 0.05)):
        clones = Clones(120, 2.0, probability, 500)
        assert clones.delta(epsilon) == pytest.approx(clone_delta_by_convolution(clones, epsilon), rel=1e-9)


def test_fewer_blocks_only_weaken_the_bound():
    values = [Clones(3000, 2.5, 0.02, blocks).delta(0.4) for blocks in (10, 30, 100, 1000)]
    assert np.all(np.diff(values) <= 1e-15)


def test_clone_symbols_simulated():
    """Step 5 of the proof: the likelihood ratio of the symbols, against its divergence."""
    rng, trials, count, epsilon, sigma = np.random.default_rng(31), 400_000, 6, 0.25, 1.0
    beta = 2 * ndtr(0.5 / sigma) - 1
    steps = rng.choice([-1, 0, 1], p=[beta / 2, 1 - beta, beta / 2], size=(trials, count)).sum(axis=1)
    telling = rng.random(trials) < beta
    level = (count + 1) * np.tanh(epsilon / 2)
    estimate = np.mean(steps + telling > level) - np.exp(epsilon) * np.mean(steps - telling > level)
    plan = Clones(count + 1, sigma, 1.0, 50)
    exact = plan.delta(epsilon) - (1 + np.exp(epsilon)) * plan.additive
    # Hoeffding for a difference of two means in [0, 1] and [0, e^eps], at one in a million
    assert abs(estimate - exact) < (1 + np.exp(epsilon)) * np.sqrt(np.log(4e6) / (2 * trials))


def test_guarantee_never_exceeds_the_fixed_order():
    for sigma, rounds in ((0.7, 100), (1.0, 1000), (3.0, 1000)):
        law = UpperLaw(rounds, sigma, 32)
        for epsilon in (0.0, 0.3, 2.0):
            assert law.delta(epsilon) <= gaussian_delta(epsilon, 1 / sigma)


def test_guarantee_gains_at_large_noise_and_is_symmetric():
    claim = guarantees.fixed_batch_upper(rounds=1000, noise_multiplier=3.0)
    assert claim.epsilon(1e-5) == pytest.approx(0.58, abs=0.005)
    assert claim.delta(0.4, "with_given_without") == claim.delta(0.4, "without_given_with")
    levels = np.array([0.01, 0.2, 0.5, 0.9])
    beta = claim.beta(levels)
    assert claim.reverse.beta(levels) == pytest.approx(beta)
    assert np.all(beta >= guarantees.deterministic_batches(noise_multiplier=3.0).beta(levels) - 1e-6)
    assert np.all(beta <= guarantees.fixed_batch_event(rounds=1000, noise_multiplier=3.0).beta(levels))


def test_balls_and_bins_agree_with_conditional_monte_carlo():
    rng = np.random.default_rng(41)
    for rounds, sigma, epsilon in ((1000, 0.7, 0.5), (100, 1.0, 0.3)):
        found = balls_and_bins_estimate(rng, rounds=rounds, noise_multiplier=sigma, epsilon=epsilon, trials=8000)
        exact = guarantees.balls_and_bins(rounds=rounds, noise_multiplier=sigma).delta(epsilon, "with_given_without")
        # five standard errors: one in two million for a mean of 8,000
        assert abs(found.mean - exact) < 5 * found.standard_error
        assert found.lower <= exact <= found.upper
        other = guarantees.balls_and_bins(rounds=rounds, noise_multiplier=sigma * 1.05).delta(epsilon)
        assert abs(found.mean - other) > 5 * found.standard_error


def test_independent_batches_leak_less_than_fixed_ones():
    for sigma in (0.7, 1.0):
        independent = guarantees.balls_and_bins(rounds=1000, noise_multiplier=sigma, relation="add_remove")
        assert independent.covers("add_remove")
        fixed = guarantees.fixed_batch_event(rounds=1000, noise_multiplier=sigma)
        assert independent.epsilon(1e-5) < fixed.epsilon(1e-5)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="cut_step must be"):
        guarantees.fixed_batch_event(rounds=10, noise_multiplier=1.0, cut_step=-1.0)
    with pytest.raises(ValueError, match="blocks must be"):
        guarantees.fixed_batch_upper(rounds=10, noise_multiplier=1.0, blocks=1)
    with pytest.raises(ValueError, match="trials must be"):
        balls_and_bins_estimate(np.random.default_rng(0), rounds=5, noise_multiplier=1.0, epsilon=0.1, trials=1)
