"""Bounds and guarantees of normalised rounds: their order around the exact curve."""

import itertools

import numpy as np
import pytest
from scipy import stats

from guarantees.families.closed_form import subsampled_gaussian
from guarantees.normalised import revealed_size
from guarantees.normalised.bounds import clt_bound, normalised_guarantee, round_upper_bound
from guarantees.normalised.revealed_size import average_over_sizes, revealed_round
from guarantees.normalised.round import normalised_round

LEVELS = np.array([0.001, 0.1, 0.8])


def setting(normalise_by, records, rate, sigma, dimension):
    return {
        "normalise_by": normalise_by,
        "records": records,
        "rate": rate,
        "noise_multiplier": sigma,
        "dimension": dimension,
    }


def test_the_clt_bound_says_when_it_says_nothing():
    assert clt_bound(normaliser=59_999, dimension=26_010).vacuous
    assert not clt_bound(normaliser=4, dimension=100).vacuous


def test_a_large_normaliser_costs_the_clt_bound_no_digits():
    known, large = (clt_bound(normaliser=k, dimension=100, rounds=k**2).mu for k in (10**4, 10**15))
    assert large == pytest.approx(known, rel=1e-4)


def test_the_clt_bound_lies_above_the_exact_chi_square():
    bound = clt_bound(normaliser=4, dimension=100)
    exact = round_upper_bound(**setting("expected_batch", 4, 0.5, 1.0, 100))
    alpha = np.linspace(bound.gamma, 1 - bound.gamma, 9)
    gaussian = stats.norm.cdf(stats.norm.isf(alpha - bound.gamma) - bound.mu) + bound.gamma
    assert np.all(exact.beta(alpha) <= gaussian)


CASES = [
    ("expected_batch", 3, 0.3, 1.0, 6),
    ("expected_batch", 100, 0.1, 0.5, 200),
    ("floored_expected_batch", 9, 0.5, 1.0, 20),
    ("realised_batch", 4, 0.7, 2.0, 20),
    ("realised_batch", 3, 1.0, 2.0, 20),
    ("none", 4, 0.3, 1.0, 5),
]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guarantee_is_below_the_exact_curve_of_every_aligned_pair(case):
    promise = normalised_guarantee(**setting(*case))
    for shared, extra in ((-1.0, 1.0), (0.0, 0.0)):
        exact = normalised_round(**setting(*case), shared=shared, extra=extra)
        slack = 3 * exact.error + 1e-9
        assert np.all(exact.beta(LEVELS) >= promise.beta(LEVELS) - slack)
        assert np.all(exact.reverse.beta(LEVELS) >= promise.reverse.beta(LEVELS) - slack)


@pytest.mark.parametrize(("shared", "extra"), [(-1.0, 0.5), (0.0, 1.0), (1.0, 1.0), (1.0, -0.5), (0.5, 0.0)])
def test_the_guarantee_is_below_the_exact_curve_whatever_the_gradients(shared, extra):
    case = setting("expected_batch", 3, 0.5, 0.5, 3)
    promise, exact = normalised_guarantee(**case), normalised_round(**case, shared=shared, extra=extra)
    for eps in (0.0, 0.5, 2.0):
        assert exact.delta(eps) <= promise.delta(eps) + 1e-9


def test_every_claim_can_be_built_again_from_its_parameters():
    case = setting("expected_batch", 3, 0.5, 0.5, 3)
    for constructor in (normalised_guarantee, revealed_round, round_upper_bound, normalised_round):
        claim = constructor(**case)
        assert constructor(**claim.parameters).describe() == claim.describe()
        assert claim.name == constructor.__name__


def test_the_guarantee_is_exact_at_rate_one():
    case = setting("expected_batch", 5, 1.0, 2.0, 30)
    np.testing.assert_allclose(
        normalised_guarantee(**case).beta(LEVELS), normalised_round(**case).beta(LEVELS), rtol=1e-9
    )


def test_the_guarantee_without_normaliser_is_that_of_the_subsampled_gaussian():
    promise = subsampled_gaussian(rate=0.3, noise_multiplier=1.0)
    for name, records in (("none", 4), ("floored_expected_batch", 4)):
        found = normalised_guarantee(**setting(name, records, 0.3, 1.0, 5))
        np.testing.assert_allclose(found.beta(LEVELS), promise.beta(LEVELS), rtol=1e-12)


def test_the_revealed_tails_are_averages_over_batches():
    """One batch size at a time, from the plain noncentral chi-square law."""
    records, rate, sigma, n, t = 3, 0.4, 1.5, 8, 0.7
    s = records / (records + 1)
    alpha = power = 0.0
    for k, bit in itertools.product(range(records + 1), (0, 1)):
        weight = stats.binom.pmf(k, records, rate) * (rate if bit else 1 - rate)
        mu = ((1 - s) * k + s * bit) / sigma
        c = mu / (1 - s**2)
        square = (-n * np.log(s) + mu**2 / (2 * (1 - s**2)) - t) * 2 * s**2 / (1 - s**2)
        alpha += weight * stats.ncx2.cdf(square, n, max(c**2, 1e-12))
        power += weight * stats.ncx2.cdf(square / s**2, n, max(s**2 * c**2, 1e-12))
    tails = revealed_round(**setting("expected_batch", records, rate, sigma, n)).curve.law.tails(np.array([t]))
    np.testing.assert_allclose([tails.without_above[0], tails.with_above[0]], [alpha, power], rtol=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "case",
    [
        ("expected_batch", 3000, 0.3, 0.05, 50),
        ("floored_expected_batch", 999, 0.1, 0.5, 40),
        ("realised_batch", 1000, 0.5, 1.0, 10),
    ],
    ids=str,
)
def test_the_gauss_rule_agrees_with_the_sum_over_all_batch_sizes(case, monkeypatch):
    t = np.array([-2.0, 0.01, 2.0])
    quick = revealed_round(**setting(*case)).curve.law.tails(t)
    monkeypatch.setattr(revealed_size, "NODES", 10**9)
    full = revealed_round(**setting(*case)).curve.law.tails(t)
    np.testing.assert_allclose(quick.without_above, full.without_above, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(quick.with_below, full.with_below, rtol=1e-12, atol=1e-14)


def test_runs_of_sizes_keep_their_moments():
    nodes, weights, lost = average_over_sizes(4000, 0.3, lambda sizes: np.full(len(sizes), 60.0))
    assert len(nodes) < 250
    assert abs(weights.sum() - 1) < 1e-12 + lost
    for power in (1, 2, 9):
        expected = (stats.binom.pmf(np.arange(4001), 4000, 0.3) * (np.arange(4001) / 1200) ** power).sum()
        assert weights @ (nodes / 1200) ** power == pytest.approx(expected, rel=1e-12)


def test_the_guarantee_sums_over_sizes_where_the_shift_changes_fast():
    """FEASGM, a shift that grows by 1 with each record: every size by its own noncentral chi-square law."""
    records, rate, n, sigma, eps = 1499, 1 / 150, 10, 0.1, 12.0
    s = 9 / 10
    k = np.arange(60)
    total = 0.0
    for bit, chance in ((0, 1 - rate), (1, rate)):
        mu = ((1 - s) * k + s * bit) / sigma
        c = np.maximum(mu / (1 - s**2), 1e-9)
        square = np.maximum(0, -n * np.log(s) + mu**2 / (2 * (1 - s**2)) - eps) * 2 * s**2 / (1 - s**2)
        leak = stats.ncx2.cdf(square / s**2, n, s**2 * c**2) - np.exp(eps) * stats.ncx2.cdf(square, n, c**2)
        total += chance * (stats.binom.pmf(k, records, rate) * leak).sum()
    claim = normalised_guarantee(**setting("floored_expected_batch", records, rate, sigma, n))
    assert abs(claim.delta(eps, "with_given_without") - total) < 1e-9


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_the_upper_bound_of_a_fixed_divisor_lies_above_every_exact_curve(case):
    exact, bound = normalised_round(**setting(*case)), round_upper_bound(**setting(*case))
    assert np.all(exact.beta(LEVELS) <= bound.beta(LEVELS) + 1e-9)


def test_the_upper_bound_of_realised_batches_is_the_papers_mixture():
    case = setting("realised_batch", 4, 0.7, 10.0, 100)
    weight = 0.7 - 0.7 * 0.3**4
    pair = stats.chi2.sf(stats.chi2.ppf(LEVELS, 99) / 0.8**2, 99)
    np.testing.assert_allclose(
        round_upper_bound(**case).beta(LEVELS), weight * pair + (1 - weight) * (1 - LEVELS), rtol=1e-9
    )


def test_a_moment_that_is_all_atom_raises_no_warning():
    claim = normalised_guarantee(
        normalise_by="realised_batch", records=3200, rate=6.146608282628335e-06, noise_multiplier=0.138, dimension=922
    )
    twice, once = claim.compose(2).total_variation, claim.total_variation
    assert once < twice <= 2 * once
