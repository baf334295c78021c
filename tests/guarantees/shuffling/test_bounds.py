from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import guarantees

# 003: noise multiplier, rounds, delta, and what the text prints about epsilon of the E_C event and of a fixed order
PRINTED = [
    (0.5, 10_000, 1e-6, 10.994, 10.997),
    (1.3, 10_000, 1e-6, 0.26, None),
    (0.4, 100_000, 1e-6, 14.45, 14.45),
    (1.3, 100_000, 1e-6, 0.029, None),
    (0.7, 1000, 1e-5, 6.528, 6.652),
    (1.3, 1000, 1e-5, 0.83, None),
]


@pytest.mark.few(3)
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


@pytest.mark.long
def test_the_event_is_proved_on_one_side_only():
    event = guarantees.fixed_batch_event(rounds=30, noise_multiplier=0.7)
    for curve in (event, event.compose(2)):
        assert curve.certificate.safe is None
        assert curve.certificate.leaked is not None
    assert guarantees.max_coordinate(rounds=30, noise_multiplier=0.7).certificate is None


def conditional_deltas(rng, rounds, sigma, epsilon, *, trials):
    """Draws whose mean is delta (with_given_without): all rounds but the largest drawn, that one integrated out.

    ``delta = E Z``, ``Z = Phi(mu - z_k) + (S - tT) Phi(-z_k)``, S and M the sum and the largest of T-1 rounds,
    ``k = max(M, tT - S)``, ``t = e^eps``, ``z_k = sigma ln k + mu/2``.
    """
    others = np.exp(rng.standard_normal((trials, rounds - 1)) / sigma - 0.5 / sigma**2)
    total, target = others.sum(axis=1), rounds * np.exp(epsilon)
    z = sigma * np.log(np.maximum(others.max(axis=1), target - total)) + 0.5 / sigma
    return np.clip(ndtr(1 / sigma - z) + (total - target) * ndtr(-z), 0.0, 1.0)


@pytest.mark.long
def test_balls_and_bins_agree_with_conditional_monte_carlo():
    rng = np.random.default_rng(41)
    for rounds, sigma, epsilon in ((1000, 0.7, 0.5), (100, 1.0, 0.3)):
        values = conditional_deltas(rng, rounds, sigma, epsilon, trials=8000)
        mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
        exact = guarantees.balls_and_bins(rounds=rounds, noise_multiplier=sigma).delta(epsilon, "with_given_without")
        # five standard errors: one in two million for a mean of 8,000
        assert abs(mean - exact) < 5 * error
        other = guarantees.balls_and_bins(rounds=rounds, noise_multiplier=sigma * 1.05).delta(epsilon)
        assert abs(mean - other) > 5 * error


@pytest.mark.long
def test_independent_batches_leak_less_than_fixed_ones():
    for sigma in (0.7, 1.0):
        independent = guarantees.balls_and_bins(rounds=1000, noise_multiplier=sigma, relation="add_remove")
        assert independent.covers("add_remove")
        fixed = guarantees.fixed_batch_event(rounds=1000, noise_multiplier=sigma)
        assert independent.epsilon(1e-5) < fixed.epsilon(1e-5)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="cut_step must be"):
        guarantees.fixed_batch_event(rounds=10, noise_multiplier=1.0, cut_step=-1.0)


@pytest.mark.parametrize("epsilon", [50.0, 100.0, 110.0])
def test_the_best_event_is_found_where_both_maxima_nearly_surely_exceed_it(epsilon):
    sigma, rounds = 0.0722, 2115
    cuts = np.arange(1, 300) * 0.01
    without, with_record = (
        np.exp(log_ndtr((cuts - at) / sigma) + (rounds - 1) * log_ndtr(cuts / sigma)) for at in (1, 2)
    )
    best = np.max(without - np.exp(epsilon) * with_record)
    claim = guarantees.fixed_batch_event(rounds=rounds, noise_multiplier=sigma)
    assert claim.delta(epsilon, "without_given_with") == pytest.approx(best, rel=1e-9)
