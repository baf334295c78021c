import pytest
from joint_judge import judge_jointly

import guarantees
from audit.bounds.clopper_pearson import ErrorCounts
from audit.power import power
from audit.verdict.judgement import conclude

GAUSSIAN = guarantees.gaussian(mu=1.0)


def reason(claim, trials_per_side=10_000):
    return conclude(claim, refuted=None, p=1.0, risk=0.05, delta=1e-5, trials_per_side=trials_per_side).reason


def test_power_is_claimed_for_the_thresholds_used_these_scores_this_pair_and_one_release_alone():
    told = reason(GAUSSIAN)
    assert told.startswith(
        "with power 0.8 this test would have found, at its thresholds, an advantage of 0.023 or more"
    )
    assert "or a Gaussian leak with epsilon 4.73 or more that shows most at one of them" in told
    assert told.endswith("(on this pair, with these scores, in one release).")


def test_a_gaussian_epsilon_that_only_repeats_the_claims_is_not_told():
    claim = guarantees.subsampled_gaussian(rate=0.01, noise_multiplier=0.5)
    found = power.detectable(claim, delta=1e-5, trials_per_side=100_000, risk=0.05)
    assert abs(found.epsilon - claim.epsilon(1e-5)) < 1e-3
    assert "Gaussian" not in reason(claim, 100_000)


@pytest.mark.long
def test_the_joint_test_says_that_nothing_could_refute_only_where_no_error_at_all_would_not():
    def few(errors, trials):
        counts = ErrorCounts(false_alarms=errors, trials_without=trials, misses=errors, trials_with=trials)
        return judge_jointly(counts, GAUSSIAN, risk=0.05, delta=1e-5)

    assert few(0, 5).verdict == "violation"
    assert "no counts" not in few(2, 5).reason
    assert "no counts" in few(1, 2).reason
