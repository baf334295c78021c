from __future__ import annotations

import numpy as np
import pytest

import guarantees
from guarantees.shuffling import fixed_point_separation
from guarantees.shuffling.separation import single_epoch_ceiling

# Table 10 of 004: rounds, separation and epsilon for shuffling, then for Poisson sampling
TABLE_10 = [
    (1_000, 0.316, 0.96, 0.200, 0.58),
    (3_000, 0.318, 0.97, 0.201, 0.59),
    (10_000, 0.321, 0.98, 0.203, 0.59),
    (30_000, 0.322, 0.98, 0.204, 0.59),
    (100_000, 0.324, 0.99, 0.205, 0.60),
    (300_000, 0.325, 1.00, 0.206, 0.60),
    (1_000_000, 0.327, 1.00, 0.207, 0.60),
    (3_000_000, 0.328, 1.00, 0.207, 0.60),
    (5_000_000, 0.328, 1.01, 0.207, 0.60),
]


@pytest.mark.parametrize(("rounds", "shuffle", "epsilon", "poisson", "poisson_epsilon"), TABLE_10)
def test_table_10(rounds, shuffle, epsilon, poisson, poisson_epsilon):
    for sampler, separation, floor in (("shuffle", shuffle, epsilon), ("poisson", poisson, poisson_epsilon)):
        found = guarantees.separation_bound(rounds=rounds, sampler=sampler)
        assert found == pytest.approx(separation, abs=6e-4)
        assert guarantees.epsilon_floor(separation=found, delta=1e-8) == pytest.approx(floor, abs=6e-3)


def test_thresholds_printed_in_the_text():
    assert guarantees.noise_threshold(rounds=5e3) == pytest.approx(0.24, abs=0.005)
    assert guarantees.noise_threshold(rounds=2.3e7) == pytest.approx(0.17, abs=0.005)


@pytest.mark.few(1)
@pytest.mark.parametrize("rounds", [2, 3, 5, 10, 100, 3000])
def test_bound_holds_at_the_threshold_without_the_dropped_factor(rounds):
    sigma = guarantees.noise_threshold(rounds=rounds)
    exact = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma).separation
    largest = guarantees.max_coordinate(rounds=rounds, noise_multiplier=sigma).separation
    assert guarantees.separation_bound(rounds=rounds) <= largest + 1e-9 <= exact + 2e-9


def test_fixed_point_understates_an_asymmetric_curve():
    sigma = guarantees.noise_threshold(rounds=1000)
    claim = guarantees.max_coordinate(rounds=1000, noise_multiplier=sigma)
    wrong = fixed_point_separation(rounds=1000, noise_multiplier=sigma)
    point = (1 - wrong * np.sqrt(2)) / 2
    assert claim.beta(point) == pytest.approx(point, abs=1e-9)
    assert wrong < claim.separation - 0.01


def test_floor_inverts_the_separation_of_epsilon_delta():
    for epsilon, delta in ((0.5, 1e-3), (2.0, 0.0), (1e-3, 1e-6)):
        separation = guarantees.epsilon_delta(epsilon=epsilon, delta=delta).separation
        assert guarantees.epsilon_floor(separation=separation, delta=delta) == pytest.approx(epsilon, rel=1e-9)
    assert guarantees.epsilon_floor(separation=0.01, delta=0.5) == 0.0


def test_one_poisson_epoch_cannot_reach_the_largest_separation():
    """004's appendix F.1 predicts 1/sqrt(2) in the limit; the record is never sampled with probability 1/e."""
    assert single_epoch_ceiling(rounds=2, sampler="poisson") == pytest.approx(0.530, abs=5e-4)
    assert single_epoch_ceiling(rounds=10**9, sampler="poisson") == pytest.approx(0.447, abs=5e-4)
    assert single_epoch_ceiling(rounds=10**9) == pytest.approx(1 / np.sqrt(2))
    for rounds in (2, 100):
        assert guarantees.separation_bound(rounds=rounds, sampler="poisson") < single_epoch_ceiling(
            rounds=rounds, sampler="poisson"
        )


def test_one_round_is_refused():
    for call in (guarantees.separation_bound, guarantees.noise_threshold):
        with pytest.raises(ValueError, match="rounds must be >= 2"):
            call(rounds=1)
    with pytest.raises(ValueError, match="sampler must be"):
        guarantees.separation_bound(rounds=10, sampler="cyclic")
    with pytest.raises(ValueError, match="separation must be"):
        guarantees.epsilon_floor(separation=0.8, delta=0.0)
