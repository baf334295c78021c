"""Distributions of our own against those of scipy.stats, and what is imported for them."""

import numpy as np
import pytest
from scipy import stats

from guarantees.numerics import distributions
from guarantees.numerics.ranks import rank_sum_p, ranks_of

LEVELS = np.concatenate([[0.0, 1.0], np.logspace(-30, -0.01, 40), 1 - np.logspace(-15, -1, 20)])
COUNTS = (0, 1, 7, 400, 59_999, 10**7)
RATES = (0.0, 1e-9, 1e-3, 0.3, 0.5, 0.999, 1.0)


def assert_same(own, theirs):
    np.testing.assert_array_equal(np.asarray(own), np.asarray(theirs))


@pytest.mark.parametrize("question", ["pmf", "cdf", "sf"])
def test_binomial_probabilities_are_those_of_scipy_stats(question):
    for n in COUNTS:
        k = np.unique(np.concatenate([[-2, -1, 0, 0.5, 1, n - 1, n, n + 1], np.linspace(0, n, 50).round()]))
        for p in RATES:
            assert_same(getattr(distributions.binom, question)(k, n, p), getattr(stats.binom, question)(k, n, p))


@pytest.mark.filterwarnings("ignore:Error in function boost")
@pytest.mark.parametrize("question", ["ppf", "isf"])
def test_binomial_quantiles_are_those_of_scipy_stats(question):
    for n in COUNTS[1:]:
        for p in RATES:
            own, theirs = (getattr(each.binom, question)(LEVELS, n, p) for each in (distributions, stats))
            assert_same(own, theirs)
        # SciPy 1.15 answers -1 at one level
        for p in (-0.1, 1.1):
            assert np.isnan(getattr(distributions.binom, question)(LEVELS, n, p)).all()


def test_logarithms_are_those_of_scipy_stats():
    for n in COUNTS[1:5]:
        k = np.arange(0, n + 1, max(1, n // 100))
        for p in RATES[1:-1]:
            assert_same(distributions.binom.logpmf(k, n, p), stats.binom.logpmf(k, n, p))
            assert_same(distributions.poisson.logpmf(k, n * p), stats.poisson.logpmf(k, n * p))


def test_continuous_ones_are_those_of_scipy_stats():
    x = np.concatenate([[-1.0, 0.0, np.inf], np.logspace(-8, 5, 60)])
    for degrees in (1, 3.5, 400, 1e6):
        for question in ("cdf", "sf"):
            assert_same(getattr(distributions.chi2, question)(x, degrees), getattr(stats.chi2, question)(x, degrees))
        for question in ("ppf", "isf"):
            own, theirs = (getattr(each.chi2, question)(LEVELS, degrees) for each in (distributions, stats))
            assert_same(own, theirs)
        assert_same(distributions.student.sf(x, degrees), stats.t.sf(x, degrees))
        assert_same(distributions.student.isf(LEVELS, degrees), stats.t.isf(LEVELS, degrees))
        assert_same(distributions.fisher.sf(x, degrees, 7), stats.f.sf(x, degrees, 7))
        assert_same(distributions.poisson.sf(x, degrees), stats.poisson.sf(x, degrees))
    assert_same(distributions.norm.sf(x), stats.norm.sf(x))
    assert_same(distributions.norm.isf(LEVELS), stats.norm.isf(LEVELS))


def test_other_questions_go_to_scipy_stats():
    assert distributions.binom.median(10, 0.3) == stats.binom.median(10, 0.3)
    assert distributions.student.cdf(1.0, 3) == stats.t.cdf(1.0, 3)
    with pytest.raises(AttributeError):
        _ = distributions.norm.__wrapped__


def test_ranks_are_those_of_scipy_stats():
    draws = np.random.default_rng(0)
    for values in (draws.normal(size=500), draws.integers(0, 20, 500), draws.integers(0, 9, (300, 4)), np.zeros(3)):
        assert_same(ranks_of(values), stats.rankdata(values, axis=0))


def test_the_rank_test_is_that_of_scipy_stats():
    draws = np.random.default_rng(1)
    for first, second in ((300, 200), (9, 40), (5, 6), (8, 1000)):
        for ties in (False, True):
            x, y = draws.normal(size=first), draws.normal(0.2, 1, size=second)
            x, y = (x.round(1), y.round(1)) if ties else (x, y)
            assert rank_sum_p(x, y) == pytest.approx(stats.mannwhitneyu(x, y).pvalue, rel=1e-12)
