import dataclasses
import math
import re

import pytest
from joint_judge import judge_jointly

import guarantees
from audit.bounds.clopper_pearson import ErrorCounts
from audit.power import power
from audit.power.less_noise import AT_BEST
from audit.verdict.judgement import HALF, NOISELESS, conclude

GAUSSIAN = guarantees.gaussian(mu=1.0)
RARE = guarantees.subsampled_gaussian(rate=1e-4, noise_multiplier=1.0)


def reason(claim, trials_per_side=10_000):
    return conclude(claim, refuted=None, p=1.0, risk=0.05, delta=1e-5, trials_per_side=trials_per_side).reason


def test_power_is_claimed_for_the_thresholds_used_these_scores_this_pair_and_one_release_alone():
    told = reason(GAUSSIAN)
    assert told.startswith("in 8 of 10 runs this audit would have found an advantage of 0.024 or more")
    assert "or a Gaussian leak with mu 1.07 or more in place of 1, if the thresholds suit it" in told
    assert told.endswith("(on this pair, with these scores and thresholds, in one release).")


def test_a_claim_in_mu_is_told_in_mu_and_one_in_epsilon_in_epsilon():
    assert "miss a Gaussian leak with mu 1.41, where 1 is claimed" in reason(GAUSSIAN, 60)
    assert "in place of 2, if" in reason(guarantees.gaussian(mu=1.0).compose(4))
    pair = guarantees.epsilon_delta(epsilon=4.377, delta=1e-5)
    assert re.search(r"a Gaussian leak with epsilon \d", reason(pair, 10**6))


def test_a_gaussian_epsilon_that_only_repeats_the_claims_is_not_told():
    claim = dataclasses.replace(guarantees.subsampled_gaussian(rate=0.01, noise_multiplier=0.5), name="a curve")
    found = power.detectable(claim, delta=1e-5, trials_per_side=100_000, risk=0.05)
    assert abs(found.epsilon - claim.epsilon(1e-5)) < 1e-3
    assert "Gaussian" not in reason(claim, 100_000)


def test_less_noise_than_a_sampled_claim_names_is_told_as_its_noise_multiplier_and_once():
    told = reason(guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0), 2000)
    assert re.search(r"found an advantage of 0\.\d+ or more above the claim \(on this pair", told)
    assert re.search(rf"trials can find a noise multiplier of 0\.\d+ or less in place of 1\. {AT_BEST}\.$", told)
    assert "Gaussian" not in told
    assert "noise" not in reason(GAUSSIAN)


@pytest.mark.parametrize("claim", [RARE, guarantees.claim_from_history([(1.0, 1e-4, 1)])], ids=lambda own: own.name)
def test_an_audit_that_would_miss_a_step_without_noise_is_inconclusive(claim):
    """Although it would find a Gaussian leak of moderate size, which a rare record cannot show."""
    size = {"refuted": None, "p": 1.0, "risk": 0.05, "delta": 1e-5}
    found = conclude(claim, **size, trials_per_side=2000)
    assert found.detectable.conclusive
    assert found.verdict == "inconclusive"
    assert found.reason.startswith(f"these trials are too few: they would often miss {NOISELESS}. ")
    assert found.reason.endswith(f"With the best score {found.trials_needed:,} trials would be enough.")
    enough = conclude(claim, **size, trials_per_side=found.trials_needed // 2)
    assert enough.verdict == "no_violation_found"
    assert "noise multiplier of" in enough.reason
    assert conclude(claim, **size, trials_per_side=int(0.97 * found.trials_needed / 2)).verdict == "inconclusive"


@pytest.mark.long
def test_an_audit_that_would_miss_half_of_the_noise_is_inconclusive_although_it_finds_a_gaussian_leak():
    """Half of the noise has epsilon 6.58 where 1.68 is claimed; a Gaussian leak of 2.87 shows sooner."""
    claim = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)
    size = {"refuted": None, "p": 1.0, "risk": 0.001, "delta": 1e-5}
    found = conclude(claim, **size, trials_per_side=800)
    assert found.detectable.conclusive
    assert found.verdict == "inconclusive"
    assert found.reason.startswith(
        f"these trials are too few: they would often miss {HALF}. In 8 of 10 runs they find a noise"
    )
    assert found.reason.endswith(f"With the best score {found.trials_needed:,} trials would be enough.")
    enough = conclude(claim, **size, trials_per_side=found.trials_needed // 2)
    assert enough.verdict == "no_violation_found"
    multiplier = re.search(r"a noise multiplier of (\S+) or less in place of 1", enough.reason)
    assert float(multiplier[1]) >= 0.5
    assert conclude(claim, **size, trials_per_side=int(0.97 * found.trials_needed / 2)).verdict == "inconclusive"


@pytest.mark.long
def test_a_claim_whose_noise_hides_nothing_is_not_held_to_finding_releases_without_any():
    """At multiplier .1 the claim allows what they show, although most batches hold the record."""
    found = reason(guarantees.subsampled_gaussian(rate=0.6, noise_multiplier=0.1), 2000)
    assert found.startswith("in 8 of 10 runs this audit would have found an advantage of")


def test_half_of_the_noise_may_be_missed_where_it_leaks_little():
    """Epsilon .037 where .0144 is claimed: nobody needs the millions of trials that would tell them apart."""
    claim = guarantees.subsampled_gaussian(rate=0.05, noise_multiplier=10.0)
    found = conclude(claim, refuted=None, p=1.0, risk=0.05, delta=1e-5, trials_per_side=5000)
    assert found.verdict == "no_violation_found"
    assert re.search(r"a noise multiplier of [0-4]\.?\d* or less in place of 10\. This assumes", found.reason)


@pytest.mark.long
def test_the_joint_test_says_that_nothing_could_refute_only_where_no_error_at_all_would_not():
    def few(errors, trials):
        counts = ErrorCounts(false_alarms=errors, trials_without=trials, misses=errors, trials_with=trials)
        return judge_jointly(counts, GAUSSIAN, risk=0.05, delta=1e-5)

    assert few(0, 5).verdict == "violation"
    assert "no counts" not in few(2, 5).reason
    assert "no counts" in few(1, 2).reason


PAIR_OF_NUMBERS = guarantees.epsilon_delta(epsilon=3.0, delta=1e-5)
"""Allows an advantage of 0.905, so that hardly any Gaussian leak shows there."""


def judged(claim, trials_per_side):
    counts = ErrorCounts(
        false_alarms=trials_per_side // 4,
        trials_without=trials_per_side,
        misses=trials_per_side // 4,
        trials_with=trials_per_side,
    )
    return judge_jointly(counts, claim, risk=0.01, delta=1e-5)


def test_an_audit_that_would_miss_three_times_the_claimed_epsilon_is_inconclusive():
    """1,000 trials per side find Gaussian leaks from epsilon 10.9 on where 3 is claimed."""
    found = judged(PAIR_OF_NUMBERS, 1000)
    assert found.detectable.tv_excess < 0.1
    assert found.detectable.epsilon > 3 * 3.0
    assert found.verdict == "inconclusive"
    assert "would often miss a Gaussian leak with epsilon 4.5 at delta 1e-05, where 3 is claimed" in found.reason
    assert 100_000 < found.trials_needed < 10_000_000
    assert judged(PAIR_OF_NUMBERS, found.trials_needed // 2).verdict == "no_violation_found"


@pytest.mark.few(2)
@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0])
def test_what_counts_for_a_gaussian_claim_is_what_its_advantage_says(mu):
    """A Gaussian leak whose advantage is 0.1 above the claim's shows at the claim's best level or better elsewhere."""
    claim = guarantees.gaussian(mu=mu)
    found = judged(claim, 1000).detectable
    assert (found.tv_excess <= 0.1, found.conclusive) == (True, True)


def test_a_pure_epsilon_is_judged_by_advantages_of_which_some_are_left():
    """No Gaussian mechanism keeps it; where hardly any advantage is left, 0.1 more is a release without noise."""
    sizes = [power.moderate(guarantees.epsilon_delta(epsilon=own, delta=0.0), delta=1e-5) for own in (1.0, 3.0, 6.0)]
    room = [1 / (1 + math.exp(own)) for own in (1.0, 3.0, 6.0)]
    assert [size.tv_excess for size in sizes] == pytest.approx([0.1, room[1] / 2, room[2] / 2])
    assert judged(guarantees.epsilon_delta(epsilon=3.0, delta=0.0), 150).verdict == "inconclusive"
    assert judged(guarantees.epsilon_delta(epsilon=3.0, delta=0.0), 2000).verdict == "no_violation_found"


def test_where_nothing_is_claimed_at_the_audits_delta_the_advantage_counts():
    claim = guarantees.epsilon_delta(epsilon=0.0, delta=0.36)
    assert power.moderate(claim, delta=1e-5) == power.Moderate(tv_excess=0.1, epsilon=None)
