import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.special import ndtr, ndtri

from audit.bounds.attack_summary import attack_summary
from audit.bounds.local_levels import band_from_scores

AREA = float(ndtr(1 / np.sqrt(2)))
"""Of N(1,1) against N(0,1)."""
ACCURACY = float(ndtr(0.5))


def summary(seed, scores, *, risk=0.1):
    rng = np.random.default_rng(seed)
    sides = np.sort(rng.normal(size=scores)), np.sort(rng.normal(size=scores) + 1)
    return attack_summary(*sides, band_from_scores(*sides, risk=risk))


def power(rate):
    return float(ndtr(ndtri(rate) + 1))


def test_estimates_are_near_and_limits_below_the_truth():
    found = summary(0, 20_000)
    assert found.auroc == pytest.approx(AREA, abs=0.01)
    assert found.accuracy == pytest.approx(ACCURACY, abs=0.01)
    assert 0.73 < found.auroc_at_least < AREA
    assert 0.66 < found.accuracy_at_least < ACCURACY
    for entry in found.true_positive_rates[1:]:
        assert entry.at_least < power(entry.false_positive_rate)
        assert entry.at_least > 0.3 * power(entry.false_positive_rate)


def wrong(found):
    rates = any(entry.at_least > power(entry.false_positive_rate) for entry in found.true_positive_rates)
    return rates or found.auroc_at_least > AREA or found.accuracy_at_least > ACCURACY


def test_all_limits_hold_together():
    assert_rate_at_most(sum(wrong(summary(seed, 300)) for seed in range(200)), 200, 0.1)


@pytest.mark.long
def test_all_limits_hold_together_over_2000_runs():
    assert_rate_at_most(sum(wrong(summary(seed, 300)) for seed in range(2000)), 2000, 0.1)


def test_estimates_as_limits_would_not_hold():
    """Negative control."""
    found = [summary(seed, 300) for seed in range(200)]
    beyond = sum(entry.auroc > AREA or entry.accuracy > ACCURACY for entry in found)
    with pytest.raises(AssertionError):
        assert_rate_at_most(beyond, 200, 0.1)


def test_known_areas():
    apart = np.arange(100.0), np.arange(100.0) + 200
    band = band_from_scores(*apart, risk=0.1)
    assert attack_summary(*apart, band).auroc == 1.0
    assert attack_summary(*apart, band).accuracy == 1.0
    tied = np.zeros(50), np.zeros(50)
    found = attack_summary(*tied, band_from_scores(*tied, risk=0.1))
    assert found.auroc == 0.5
    assert found.auroc_at_least <= 0.5
    assert found.accuracy_at_least == 0.5
