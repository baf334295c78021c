import itertools

import numpy as np
import pytest
from scipy.stats import binom

from audit.bounds import product_region
from audit.bounds.clopper_pearson import ErrorCounts, limits
from audit.bounds.product_region import corners

TRIALS = 9, 12
RATES = (0.02, 0.1, 0.3, 0.5, 0.8)


def counted(a, m):
    return ErrorCounts(false_alarms=a, trials_without=TRIALS[0], misses=m, trials_with=TRIALS[1])


def chance_of_a_false_bound(alpha, beta, risk):
    """Probability, over all counts, that delta is bounded above the test's own at some epsilon of either direction."""
    slopes = np.exp(np.linspace(-6, 6, 241))
    # 1 - beta - e^epsilon alpha and its mirror image are both 1 - (beta + slope alpha) on the scale of the slope
    truth, wrong = beta + slopes * alpha, 0.0
    for a, m in itertools.product(range(TRIALS[0] + 1), range(TRIALS[1] + 1)):
        x, y = corners(counted(a, m), risk=risk)
        bounded = np.max(y[:, None] + slopes * x[:, None], axis=0)
        mass = binom.pmf(a, TRIALS[0], alpha) * binom.pmf(m, TRIALS[1], beta)
        wrong += mass * bool(np.any(bounded < truth * (1 - 1e-12)))
    return wrong


@pytest.mark.few(6)
@pytest.mark.parametrize("risk", [0.05, 0.3])
@pytest.mark.parametrize(("alpha", "beta"), list(itertools.product(RATES, RATES))[::3])
def test_the_bounds_on_delta_at_all_epsilons_fail_at_most_at_the_risk(alpha, beta, risk):
    assert chance_of_a_false_bound(alpha, beta, risk) <= risk


@pytest.mark.long
def test_a_product_no_smaller_than_the_risk_would_fail_more_often(monkeypatch):
    """The negative control: two p-values multiplied are no p-value."""
    monkeypatch.setattr(product_region, "_smallest_product", lambda risk: risk)
    assert max(chance_of_a_false_bound(a, b, 0.3) for a, b in itertools.product(RATES, RATES)) > 0.3


@pytest.mark.parametrize("risk", [1e-6, 0.0025, 0.05, 0.5])
def test_the_smallest_product_has_the_probability_of_the_risk(risk):
    least = product_region._smallest_product(risk)
    assert least * (1 - np.log(least)) == pytest.approx(risk, rel=1e-6)
    assert least * (1 - np.log(least)) <= risk


def test_it_proves_more_than_a_rectangle_at_the_same_risk():
    counts = ErrorCounts(false_alarms=150, trials_without=1000, misses=460, trials_with=1000)
    x, y = corners(counts, risk=0.01)
    corner = limits(counts, risk=0.01)
    assert 0.15 + 0.46 < np.max(x + y) < corner.alpha + corner.beta
