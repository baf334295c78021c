"""What could have been found is what a test that was paid for would have found, whatever numbers are stated."""

import numpy as np
import pytest
from scipy.special import ndtr

import audit
import guarantees
from audit.goal import Goal
from audit.power import power
from audit.trials.source import Tally

TRIALS = 5000
CLAIM = guarantees.gaussian(mu=1.0)
GOAL = Goal(claim=CLAIM, delta=1e-5, trials_per_side=TRIALS, risk=0.05)


def typical(edges, moved):
    """The counts that are expected of log-likelihood ratios, those with the record moved up."""
    sides = []
    for centre in (-0.5, 0.5 + moved):
        below = np.rint(TRIALS * np.append(ndtr(edges[0].astype(float) - centre), 1.0)).astype(int)
        sides.append(np.diff(below, prepend=0)[None])
    return Tally(without=sides[0], with_record=sides[1], trials_per_side=TRIALS)


def judged(*targets, moved=0.0):
    policy = audit.FromTheory(targets=targets)
    test = policy.fix(CLAIM.curve, lambda _: pytest.fail("theory is known"), GOAL)
    return policy.judge(typical(test.edges, moved), test, GOAL), test


def test_an_advantage_that_would_have_been_found_is_found_where_only_mu_is_stated():
    quiet, test = judged("mu")
    assert abs(test.cuts[0].threshold) < 0.02  # where an advantage shows
    excess = quiet.judgement.detectable.tv_excess
    moved = next(m for m in np.linspace(0, 1, 1001) if ndtr(0.5 + m) - ndtr(0.5) >= excess)
    leaking, _ = judged("mu", moved=moved)
    assert quiet.judgement.verdict == "no_violation_found"
    assert leaking.judgement.verdict == "violation"


def test_the_test_of_one_number_is_not_taken_for_the_joint_test():
    found, test = judged("epsilon")
    rectangle = power.detectable(CLAIM, delta=GOAL.delta, trials_per_side=TRIALS, risk=test.cuts[0].risk)
    assert found.judgement.detectable == rectangle


def test_the_order_of_the_targets_says_nothing_about_power():
    one, other = judged("verdict", "epsilon")[0], judged("epsilon", "verdict")[0]
    assert one.judgement.detectable == other.judgement.detectable
