"""Every bound at the ends of what it may be asked: few trials, risks near 0 and 1, deltas 0 and near 1."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu
from audit.bounds.clopper_pearson import (
    ErrorCounts,
    clopper_pearson_lower,
    clopper_pearson_upper,
    delta_lower_bound,
    epsilon_lower_bound,
    mu_lower_bound,
)
from audit.bounds.inversion import joint_bound, joint_delta_bound, joint_epsilon_bound, joint_mu_bound
from audit.bounds.joint import joint_p_value
from guarantees import epsilon_delta, gaussian

RISKS = st.sampled_from([1e-12, 1e-6, 0.05, 0.3, 0.49, 0.5, 0.50001, 0.6, 0.9, 0.999, 1 - 1e-9])
DELTAS = st.sampled_from([0.0, 1e-300, 1e-12, 1e-5, 0.1, 0.5, 0.9, 1 - 1e-6, 1 - 1e-15])
EPSILONS = st.sampled_from([0.0, 1e-12, 0.1, 1.0, 20.0, 700.0])


def counted(false_alarms, trials_without, misses, trials_with):
    return ErrorCounts(false_alarms=false_alarms, trials_without=trials_without, misses=misses, trials_with=trials_with)


@st.composite
def tiny_counts(draw):
    n0, n1 = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    return counted(draw(st.integers(0, n0)), n0, draw(st.integers(0, n1)), n1)


CLEAN = counted(0, 10, 0, 10)


@given(tiny_counts(), RISKS, DELTAS, EPSILONS)
@example(CLEAN, 0.5, 0.0, 0.0)
@example(CLEAN, 0.9, 0.0, 0.0)
def test_every_bound_of_any_counts_is_a_number_in_its_range(counts, risk, delta, epsilon):
    for bound in (epsilon_lower_bound, joint_epsilon_bound):
        assert 0 <= bound(counts, delta=delta, risk=risk) <= 700
    for bound in (delta_lower_bound, joint_delta_bound):
        assert 0 <= bound(counts, epsilon=epsilon, risk=risk) <= 1
    for bound in (mu_lower_bound, joint_mu_bound):
        assert 0 <= bound(counts, risk=risk) <= 70


CLAIMS = [gaussian(mu=0.1), gaussian(mu=5.0), *(epsilon_delta(epsilon=0.0, delta=d) for d in (0.0, 0.5, 1 - 1e-6))]


@given(tiny_counts(), st.sampled_from([1e-12, 1e-3, 0.01, 0.5, 0.999]), st.sampled_from(CLAIMS))
def test_every_p_value_of_any_counts_is_a_probability(counts, gamma, claim):
    assert gamma <= joint_p_value(counts, claim, gamma=gamma) <= 1


@pytest.mark.few(6)
@pytest.mark.parametrize("risk", [0.5, 0.7, 0.95])
@pytest.mark.parametrize("question", [EpsilonAt(delta=0.0), EpsilonAt(delta=0.3), DeltaAt(epsilon=0.5), Mu()])
def test_a_bound_at_a_large_risk_exceeds_the_truth_at_most_at_that_risk_by_enumeration(question, risk):
    n0, n1 = 4, 3
    seen = [[counted(a, n0, m, n1) for m in range(n1 + 1)] for a in range(n0 + 1)]
    bounds = np.array([[joint_bound(counts, question, risk=risk) for counts in row] for row in seen])
    assert bounds.max() > 0
    alpha = np.concatenate([np.linspace(0, 1, 401), np.logspace(-5, -1, 100)])
    for theta in np.unique(bounds[bounds > 0]) * (1 - 1e-9):
        mass0 = binom.pmf(np.arange(n0 + 1)[:, None], n0, alpha)
        mass1 = binom.pmf(np.arange(n1 + 1)[:, None], n1, question.curve(theta, alpha))
        wrong = np.einsum("ax,am,mx->x", mass0, (bounds > theta).astype(float), mass1).max()
        assert wrong <= risk, theta


def test_limits_at_the_smallest_risks_are_numbers():
    for trials in (1, 5, 12, 1000):
        errors = np.arange(trials + 1)
        for risk in 10.0 ** -np.arange(1, 308, 17):
            low, high = (side(errors, trials, risk=risk) for side in (clopper_pearson_lower, clopper_pearson_upper))
            assert np.all((low >= 0) & (low <= errors / trials) & (errors / trials <= high) & (high <= 1))
