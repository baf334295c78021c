"""That an advantage of the printed size is found in 8 of 10 runs, at whichever error rates: sums of binomials."""

import numpy as np
import pytest

import guarantees
from audit.bounds.supporting_lines import tabulate
from audit.power.joint_power import critical_statistic, joint_power, jointly_refuting
from audit.power.power import (
    ONE_BY_ONE,
    POWER,
    TOGETHER,
    detectable,
    is_conclusive,
    left_errors,
    refutation_power,
    refuting,
)

CLAIMS = {
    "randomised response": guarantees.randomised_response(epsilon=1.0),
    "pure epsilon": guarantees.epsilon_delta(epsilon=3.0, delta=0.0),
    "delta alone": guarantees.epsilon_delta(epsilon=0.0, delta=0.3),
    "table": guarantees.claim_from_table(points=[(0.0, 0.2), (1.0, 0.1), (3.0, 1e-3)]),
    "laplace": guarantees.laplace(epsilon=1.0),
    "sampled": guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=0.5),
}
TRIALS, RISK = 1000, 0.01


def with_advantage(claim, excess):
    """Error rates of tests with this advantage above the claim's, from no false alarm to no miss."""
    left = sum(left_errors(claim)) - excess
    alpha = left * np.concatenate([np.linspace(0, 1, 9), np.linspace(0.42, 0.58, 9)])
    return zip(alpha.tolist(), (left - alpha).tolist(), strict=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_the_rectangle_finds_the_printed_advantage_at_whichever_error_rates(claim):
    excess = detectable(claim, delta=1e-5, trials_per_side=TRIALS, risk=RISK, test=refuting).tv_excess
    found = [
        refutation_power(claim, alpha=a, beta=b, trials_per_side=TRIALS, risk=RISK)
        for a, b in with_advantage(claim, excess)
    ]
    assert POWER - 0.005 < min(found) < POWER + 0.02


@pytest.mark.few(2)
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_the_joint_test_finds_the_printed_advantage_at_whichever_error_rates(claim):
    """Its size is found by a normal law that is off by one or two per cent of the leak, three of its power."""
    size = {"trials_per_side": TRIALS, "risk": RISK}
    excess = detectable(claim, delta=1e-5, test=jointly_refuting, at_once=TOGETHER, **size).tv_excess
    lines = tabulate(claim)
    middle = (sum(left_errors(claim)) - excess) / 2
    critical = critical_statistic(lines, (middle, middle), **size)
    found = [joint_power(lines, point, critical=critical, **size) for point in with_advantage(claim, excess)]
    assert POWER - 0.03 < min(found) < POWER + 0.05


def conclusive(claim, trials, test, at_once):
    found = detectable(claim, delta=1e-5, trials_per_side=trials, risk=0.02, test=test, at_once=at_once)
    power = test(claim, trials_per_side=trials, risk=0.02)
    return found.conclusive, is_conclusive(claim, delta=1e-5, trials_per_side=trials, power=power)


@pytest.mark.parametrize("trials", [12_800, 13_200, 13_800])
def test_trials_that_are_said_to_be_enough_are_those_at_which_a_verdict_is_conclusive(trials):
    """At 13,200 and 13,800 a verdict was, and more trials were asked for."""
    claim = guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)
    assert conclusive(claim, trials, jointly_refuting, TOGETHER) == (trials > 13_000, trials > 13_000)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CLAIMS)
def test_whether_a_moderate_leak_is_found_is_told_without_the_smallest(name):
    found = {conclusive(CLAIMS[name], 100 * 2**size, refuting, ONE_BY_ONE) for size in range(8)}
    assert found <= {(True, True), (False, False)}
