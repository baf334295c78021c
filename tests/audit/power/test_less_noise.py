"""What an audit of sampled batches would have found, as a noise multiplier in the place of the claimed one."""

import dataclasses

import numpy as np
import pytest

import guarantees
from audit.power.joint_power import jointly_refuting
from audit.power.less_noise import LEVELS, Sampled, in_its_place, most_noise_found, sampled
from audit.power.power import POWER, refuting
from guarantees.laws import kept

STEP = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)
TRAINING = guarantees.poisson_training(rate=0.1, noise_multiplier=2.0, steps=10, accountant="certified")


def best_power(claim, leak, *, test, trials_per_side):
    """Of all thresholds, by the exact curve of what leaks."""
    power = test(claim, trials_per_side=trials_per_side, risk=0.02)
    return float(np.max(power(LEVELS, np.asarray(leak.beta(LEVELS), float))))


@pytest.mark.parametrize(("test", "trials"), [(refuting, 500), (jointly_refuting, 20_000)])
def test_the_noise_that_is_found_in_one_step_has_the_power_and_a_little_more_has_not(test, trials):
    noise = most_noise_found(STEP, trials_per_side=trials, risk=0.02, test=test)

    def power(of):
        leak = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=of)
        return best_power(STEP, leak, test=test, trials_per_side=trials)

    assert 0.1 < noise < 1
    assert power(noise) >= POWER > power(noise + 0.02)


def test_of_a_training_all_steps_leak_together():
    noise = most_noise_found(TRAINING, trials_per_side=2000, risk=0.02, test=jointly_refuting)

    def power(of):
        leak = guarantees.poisson_training(rate=0.1, noise_multiplier=of, steps=10, accountant="certified")
        return best_power(TRAINING, leak, test=jointly_refuting, trials_per_side=2000)

    assert power(noise) >= POWER > power(noise + 0.05)
    # a step of the same claim, which its accountant composed ten times
    composed = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=2.0).compose(10)
    assert most_noise_found(composed, trials_per_side=2000, risk=0.02, test=jointly_refuting) == pytest.approx(noise)


def test_a_record_that_joins_too_few_batches_hides_any_noise():
    rare = guarantees.subsampled_gaussian(rate=1e-4, noise_multiplier=1.0)
    assert most_noise_found(rare, trials_per_side=1000, risk=0.02, test=jointly_refuting) is None


def test_only_claims_about_poisson_batches_with_noise_are_told_so():
    assert sampled(guarantees.gaussian(mu=1.0)) is None
    assert sampled(guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)) is None
    assert sampled(STEP).steps == 1
    history = guarantees.claim_from_history([(1.0, 0.1, 3), (1.0, 0.1, 2)])
    assert sampled(history) == dataclasses.replace(sampled(STEP), steps=5)
    assert sampled(guarantees.claim_from_history([(1.0, 0.1, 3), (2.0, 0.1, 2)])) is None
    assert sampled(TRAINING).steps == 10
    assert most_noise_found(guarantees.gaussian(mu=1.0), trials_per_side=1000, risk=0.02, test=refuting) is None


@pytest.mark.parametrize(("noise", "told"), [(0.5796, "0.57"), (123.4, "120"), (7.96, "7.9"), (0.0, "0")])
def test_a_noise_multiplier_is_rounded_down_to_two_digits(noise, told):
    said = in_its_place(noise, dataclasses.replace(sampled(STEP), noise_multiplier=200.0))
    assert said.startswith(f"a noise multiplier of {told} ")


def test_that_no_noise_is_found_is_kept_too(tmp_path, monkeypatch):
    rare = guarantees.subsampled_gaussian(rate=1e-4, noise_multiplier=1.0)
    monkeypatch.setattr(kept, "WORTH_KEEPING", 0.0)
    with kept.laws_kept_in(tmp_path):
        for _ in range(2):
            assert most_noise_found(rare, trials_per_side=1000, risk=0.02, test=jointly_refuting) is None


@pytest.mark.parametrize(
    ("noise", "variation", "epsilon"), [(0.02, 0.6323045, 9632.3), (0.1, 0.6322978, 341.26), (0.2, 0.5529135, 61.965)]
)
def test_rare_batches_with_little_noise_are_found_by_their_largest_loss(noise, variation, epsilon):
    # the truth is from a lattice of a million points
    rare = Sampled(rate=0.001, noise_multiplier=2 * noise, steps=1000, relation="add_remove", group=1)
    missed = rare.missed(noise)
    assert np.all(missed >= rare.never_drawn * (1 - LEVELS) - 1e-12)
    assert 0.99 * variation < np.max(1 - LEVELS - missed) <= variation + 1e-6
    assert 10 < rare.leaks(noise, delta=1e-5) <= epsilon
