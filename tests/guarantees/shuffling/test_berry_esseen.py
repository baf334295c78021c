from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

import guarantees
from guarantees.shuffling import shuffle_mu
from papers.shuffled import coefficient_ratio, coefficient_ratio_midpoint, largest_delta, largest_noise_multiplier

# Table 1 of 001: noise multiplier, both rounds columns as printed, smallest data set
TABLE_1 = [
    (0.5, 1.57e9, 7.87e9),
    (0.75, 3.72e6, 2.79e7),
    (1.0, 1.14e6, 1.14e7),
    (1.5, 3.23e6, 4.85e7),
    (2.0, 1.49e7, 2.98e8),
]


@pytest.mark.parametrize(("sigma", "rounds", "records"), TABLE_1)
def test_table_1(sigma, rounds, records):
    closed = guarantees.rounds_needed(delta=0.01, noise_multiplier=sigma, exact=False)
    theorem = guarantees.rounds_needed(delta=0.01, noise_multiplier=sigma)
    assert closed == pytest.approx(rounds, rel=0.004)
    assert theorem == pytest.approx(rounds, rel=0.004)
    assert sigma * theorem / 0.1 == pytest.approx(records, rel=0.004)
    assert guarantees.shuffle_berry_esseen(rounds=theorem, noise_multiplier=sigma).delta <= 0.01
    assert guarantees.shuffle_berry_esseen(rounds=theorem - 1, noise_multiplier=sigma).delta > 0.01


def test_numbers_printed_about_many_epochs():
    assert guarantees.rounds_needed(delta=1e-4, noise_multiplier=1.0, exact="closed_form") == pytest.approx(
        1.14e10, rel=0.001
    )
    assert guarantees.rounds_needed(delta=1 / 400, noise_multiplier=1.0) == pytest.approx(1.82e7, rel=0.003)
    assert largest_noise_multiplier(0.01) == pytest.approx(3.71, abs=0.005)
    assert largest_delta(1.0) == pytest.approx(0.20, abs=0.005)


def test_bound_lies_above_the_truth_and_far_above():
    bound = guarantees.shuffle_berry_esseen(rounds=10_000, noise_multiplier=1.0)
    truth = guarantees.isolated_shuffle(rounds=10_000, noise_multiplier=1.0).total_variation
    assert bound.holds
    assert sum(bound.terms) == pytest.approx(bound.delta)
    assert 10 * truth < bound.delta
    assert bound.epochs(4) == pytest.approx(1 - (1 - bound.delta) ** 4)


def test_condition_fails_below_the_regime():
    assert not guarantees.shuffle_berry_esseen(rounds=1000, noise_multiplier=0.5).holds


@pytest.mark.long
def test_true_rounds_are_hundreds_of_times_fewer():
    """For TV <= .01 theorem 4.1 asks for 400 to 33,000 times the rounds that are needed."""
    for sigma, truth in ((0.75, 7764), (2.0, 452)):
        found = guarantees.rounds_needed(delta=0.01, noise_multiplier=sigma, exact="truth")
        assert found == truth
        assert 400 < guarantees.rounds_needed(delta=0.01, noise_multiplier=sigma) / found < 33_000


@pytest.mark.long
def test_true_rounds_at_little_noise():
    found = guarantees.rounds_needed(delta=0.01, noise_multiplier=0.5, exact="truth")
    assert found == pytest.approx(78268, abs=3)


def test_theorem_does_not_cover_fixed_batches():
    """Where theorem 4.1 promises delta, the E_C event of 003 alone leaks more."""
    for sigma, delta, rounds, leak in ((0.5, 1e-3, 1.574e11, 1.24e-3), (0.3, 1e-4, 2.7e22, 3.6e-4)):
        assert guarantees.shuffle_berry_esseen(rounds=rounds, noise_multiplier=sigma).delta <= 1.01 * delta
        event = guarantees.fixed_batch_event(rounds=int(rounds), noise_multiplier=sigma, cut_step=0.0)
        assert event.total_variation >= 0.99 * leak > delta


def test_ratio_of_coefficients_falls_from_root_two_to_one():
    ratios = [coefficient_ratio(s) for s in (0.05, 0.5, 1, 2, 5, 50)]
    assert ratios[0] == pytest.approx(np.sqrt(2))
    assert np.all(np.diff(ratios) < 0)
    assert ratios[-1] == pytest.approx(1.0, abs=0.01)
    assert coefficient_ratio_midpoint() == pytest.approx(1.668, abs=5e-4)


@pytest.mark.long
def test_asymptotic_mu_approaches_the_truth():
    errors = []
    for rounds in (100, 10_000):
        limit = 2 * ndtr(shuffle_mu(rounds=rounds, noise_multiplier=1.0) / 2) - 1
        truth = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=1.0).total_variation
        errors.append(abs(limit / truth - 1))
    assert errors[1] < 0.05 * errors[0]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"delta": 0.0, "noise_multiplier": 1.0}, "delta"),
        ({"delta": 0.1, "noise_multiplier": -1.0}, "noise_multiplier"),
        ({"delta": 0.1, "noise_multiplier": 1.0, "exact": "roughly"}, "exact"),
    ],
)
def test_bad_arguments_are_refused(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        guarantees.rounds_needed(**arguments)
