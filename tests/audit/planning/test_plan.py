import numpy as np
import pytest
from scipy.stats import binom

from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.inversion import joint_epsilon_bound
from audit.bounds.supporting_lines import tabulate
from audit.planning.plan import (
    STATEMENTS,
    expected_bounds,
    growth_rates,
    joint_power,
    operating_points,
    pilot_points,
    plan,
    within_pilot_error,
)
from audit.risk import shared
from audit.verdict.judgement import conclude
from guarantees.families import closed_form as families

CLAIM = families.gaussian(mu=1.0)


@pytest.fixture(scope="module")
def tenth_more():
    return plan(
        CLAIM,
        families.gaussian(mu=1.1),
        trials=10_000,
        risk=0.05,
        delta=1e-5,
        seconds_per_trial=1e-3,
    )


def test_trials_needed_for_a_tenth_more_than_claimed(tenth_more):
    refutation = tenth_more.refutation
    assert refutation.joint_trials == pytest.approx(2 * 2214, rel=0.1)
    assert tenth_more.seconds == pytest.approx(10.0)
    assert tenth_more.seconds_to_refute == pytest.approx(1e-3 * refutation.joint_trials)


def test_smallest_leak_is_consistent_with_trials_needed(tenth_more):
    leak = tenth_more.smallest_leak
    assert 1.09 < leak.mu < 1.1
    assert leak.epsilon == pytest.approx(float(families.gaussian(mu=leak.mu).epsilon(1e-5)))
    assert 0 < leak.tv_excess_joint < leak.tv_excess < 0.05


def test_of_a_sampled_claim_a_plan_says_which_noise_is_found_as_the_record_will():
    claim = families.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)
    noise = plan(claim, trials=10_000, risk=0.05, delta=1e-5).smallest_leak.noise_multiplier
    told = conclude(
        claim,
        refuted=None,
        p=1.0,
        risk=shared(0.05, STATEMENTS).verdict,
        delta=1e-5,
        trials_per_side=5000,
        jointly=True,
    ).reason
    assert f"a noise multiplier of {int(100 * noise) / 100:g} or less" in told


def test_largest_provable_epsilon_is_that_of_clean_sheets(tenth_more):
    clean = ErrorCounts(false_alarms=0, trials_without=5000, misses=0, trials_with=5000)
    assert tenth_more.largest_provable_epsilon == joint_epsilon_bound(clean, delta=1e-5, risk=0.05)


def test_expected_bound_is_the_best_median_bound():
    """To what the normal approximation is off by at a handful of false alarms."""
    expected = expected_bounds(CLAIM, trials_per_side=5000, delta=1e-5, risk=0.05)
    found = [
        joint_epsilon_bound(
            ErrorCounts(
                false_alarms=int(binom.median(5000, a)),
                trials_without=5000,
                misses=int(binom.median(5000, float(CLAIM.beta(a)))),
                trials_with=5000,
            ),
            delta=1e-5,
            risk=shared(0.05, ("verdict", "epsilon", "delta", "mu", "rest")).epsilon,
        )
        for a in np.geomspace(0.0003, 0.1, 25)
    ]
    assert expected.epsilon == pytest.approx(max(found), abs=0.1)
    assert 0.9 < expected.mu < 1.0
    assert 0 < expected.delta < CLAIM.total_variation


@pytest.mark.long
def test_no_noise_needs_a_handful_of_trials():
    found = plan(CLAIM, [(0.0, 0.0)], trials=40, risk=0.05, delta=1e-5).refutation
    assert found.joint_trials == 10
    assert found.anytime_trials < 24


def test_nothing_refutes_what_keeps_its_claim():
    seconds = {"seconds_per_trial": 1e-3, "seconds_before": 2.0}
    told = plan(CLAIM, families.gaussian(mu=0.9), trials=1000, risk=0.05, delta=1e-5, **seconds)
    assert told.seconds == pytest.approx(3.0), "what comes before the first judged trial takes time, too"
    found = told.refutation
    assert found.joint_trials is None
    assert found.anytime_trials is None


def test_unknown_mechanism_leaves_the_refutation_open():
    found = plan(CLAIM, trials=1000, risk=0.05, delta=0.0)
    assert found.refutation is None
    assert found.smallest_leak.epsilon is None
    assert found.smallest_leak.mu > 1
    assert found.seconds is None


@pytest.mark.long
def test_pilot_stands_in_for_the_curve():
    pilot = [ErrorCounts(false_alarms=15, trials_without=100, misses=16, trials_with=100)]
    points = pilot_points(pilot)
    assert points == (((15.5) / 101, (16.5) / 101),)
    found = plan(CLAIM, points, trials=200, risk=0.05, delta=1e-5).refutation
    assert found.joint_point == points[0]
    assert 20 < found.joint_trials < 240


def test_a_pilot_says_how_uncertain_its_number_is():
    """Rare errors, as an (epsilon, delta) claim needs them, are hardly known from 200 outputs a side."""
    clear = within_pilot_error(CLAIM, (0.1, 0.1), trials=200, pilot_per_side=200)
    assert clear[0] < 200 < clear[1] < 500
    more = within_pilot_error(CLAIM, (0.1, 0.1), trials=200, pilot_per_side=20_000)
    assert clear[0] < more[0] < 200 < more[1] < clear[1]
    rare = families.epsilon_delta(epsilon=3.0, delta=1e-5)
    assert within_pilot_error(rare, (0.0025, 0.92), trials=5342, pilot_per_side=200)[1] is None


def test_joint_power_matches_the_size_on_the_claim_itself():
    lines = tabulate(CLAIM, points=128)
    on_the_claim = joint_power(lines, (0.3, float(CLAIM.beta(0.3))), trials_per_side=500, risk=0.05)
    assert 0.03 < on_the_claim <= 0.05


def test_growth_is_zero_on_and_above_the_claim():
    lines = tabulate(CLAIM)
    points = operating_points(CLAIM)
    assert np.all(growth_rates(lines, points) < 1e-6)
    assert growth_rates(lines, [(0.9, 0.9), (0.2, 0.2)])[0] == 0.0
    assert growth_rates(lines, [(0.9, 0.9), (0.2, 0.2)])[1] > 0.01


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="power"):
        plan(CLAIM, trials=20, risk=0.05, delta=0.0, power=1.0)
    with pytest.raises(ValueError, match="trials must be even"):
        plan(CLAIM, trials=21, risk=0.05, delta=0.0)
    with pytest.raises(ValueError, match="pairs of rates"):
        plan(CLAIM, [(0.1, 1.2)], trials=20, risk=0.05, delta=0.0)
