"""Counting cannot refute what no attack could contradict in so many trials."""

import pytest

from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import joint_p_value
from audit.planning.plan import refutable
from guarantees import epsilon_delta, gaussian


@pytest.mark.parametrize(
    ("claim", "trials", "expected"),
    [
        (epsilon_delta(epsilon=50.0, delta=0.0), 10**6, False),
        (epsilon_delta(epsilon=8.0, delta=0.0), 1000, False),
        (epsilon_delta(epsilon=8.0, delta=0.0), 100_000, True),
        (gaussian(mu=1.0), 100, True),
        (gaussian(mu=40.0), 10**6, False),
    ],
)
def test_what_counting_can_refute(claim, trials, expected):
    assert refutable(claim, trials_per_side=trials, risk=0.05) is expected


def test_the_joint_test_agrees():
    """The trials from which no error at all has a p-value below the risk."""
    claim = epsilon_delta(epsilon=6.0, delta=0.0)
    for trials in (200, 1000, 5000):
        none = ErrorCounts(false_alarms=0, trials_without=trials, misses=0, trials_with=trials)
        assert refutable(claim, trials_per_side=trials, risk=0.05) == (joint_p_value(none, claim) <= 0.05)
