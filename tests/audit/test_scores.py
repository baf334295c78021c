import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
from audit.bounds.clopper_pearson import ErrorCounts, epsilon_lower_bound
from audit.policies.candidates import choose, from_curve
from audit.verdict.goal import Goal

GAUSS = guarantees.gaussian(mu=1.0)


def scores(seed, n, shift):
    return np.random.default_rng(seed).normal(size=n) + shift


def test_scores_from_anywhere_give_bounds_below_the_truth():
    found = audit.from_scores(scores(0, 20_000, 0), scores(1, 20_000, 1), risk=0.05)
    assert 1.8 < found.epsilon(1e-5) < 4.377
    assert 0.34 < found.delta(0.0) < 0.3830
    assert 0.9 < found.mu < 1.0
    assert found.verdict is None
    assert any("independent" in condition for condition in found.conditions)


def test_fixed_thresholds_use_every_score_and_ask_the_user_to_vouch():
    found = audit.from_scores(scores(0, 5000, 0), scores(1, 5000, 1), risk=0.05, thresholds=(0.5,))
    assert found.counts[0].trials_without == 5000
    assert any("before looking" in condition for condition in found.conditions)


def test_a_claim_gets_a_verdict():
    weak, right = guarantees.gaussian(mu=0.7), guarantees.gaussian(mu=1.0)
    sides = scores(0, 5000, 0), scores(1, 5000, 1)
    assert audit.from_scores(*sides, risk=0.05, claim=weak).verdict == "violation"
    assert audit.from_scores(*sides, risk=0.05, claim=right).verdict == "no_violation_found"


def test_bounds_from_scores_hold_at_their_risk():
    truth, wrong, runs = float(GAUSS.epsilon(1e-2)), 0, 300
    for seed in range(runs):
        found = audit.from_scores(scores(2 * seed, 400, 0), scores(2 * seed + 1, 400, 1), risk=0.1, delta=1e-2)
        wrong += found.epsilon(1e-2) > truth
    assert_rate_at_most(wrong, runs, 0.1)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (np.zeros((3, 2)), "one-dimensional"),
        (np.zeros(2), "at least four"),
        (np.array([0.0, np.nan, 1.0, 2.0]), r"without\[1\] is nan"),
        (np.array(["a", "b", "c", "d"]), "array of numbers"),
    ],
)
def test_bad_scores_get_a_message(without, message):
    with pytest.raises(ValueError, match=message):
        audit.from_scores(without, np.zeros(10), risk=0.05)


@pytest.mark.parametrize(("trials_per_side", "least"), [(10**5, 2.76), (10**7, 3.75)])
def test_a_threshold_from_theory_proves_more_than_any_peer(trials_per_side, least):
    """Scores N(1,1) against N(0,1), delta 1e-5, 95%: the truth is 4.377, the best peer proves 2.60 at 1e5 a side."""
    goal = Goal(claim=GAUSS, delta=1e-5, trials_per_side=trials_per_side, risk=0.05)
    cut = choose(from_curve(GAUSS.curve), "epsilon", goal)
    alpha, beta = (float(np.squeeze(rate)) for rate in GAUSS.curve.errors(cut.threshold))
    rng = np.random.default_rng(5)
    proven = [
        epsilon_lower_bound(
            ErrorCounts(
                false_alarms=int(rng.binomial(trials_per_side, alpha)),
                trials_without=trials_per_side,
                misses=int(rng.binomial(trials_per_side, beta)),
                trials_with=trials_per_side,
            ),
            delta=1e-5,
            risk=0.05,
        )
        for _ in range(200)
    ]
    assert np.median(proven) >= least
    assert max(proven) < 4.3772
