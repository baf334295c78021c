"""Algorithm 1: its statistics against independent implementations, its power against the paper's setting."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_is
from scipy import stats

import distinguishers
import mechanisms
from distinguishers.model_free.normal_statistics import STATISTICS, critical_value, deviance
from mechanisms.contract import Collapsed
from mechanisms.pairs import gradient_pairs

KEY = jax.random.key(20240602)
SAMPLES = [
    np.random.default_rng(seed).normal(loc, size, 57) for seed, (loc, size) in enumerate([(0, 1), (0.4, 1), (0, 2)])
]


def from_scipy(test: str, x: np.ndarray) -> float:
    if test == "kolmogorov_smirnov":
        return stats.kstest(x, "norm").statistic
    if test == "cramer_von_mises":
        return stats.cramervonmises(x, "norm").statistic
    if test == "anderson_darling":
        known = {"loc": 0, "scale": 1}
        return stats.goodness_of_fit(stats.norm, x, known_params=known, statistic="ad", n_mc_samples=1).statistic
    if test == "chi_square":
        return len(x) * (np.mean(x**2) - 1 - np.log(np.mean(x**2)))
    hermite = [np.polynomial.hermite_e.hermeval(x, [0] * k + [1]) for k in range(1, 5)]
    return sum(len(x) * h.mean() ** 2 / f for h, f in zip(hermite, (1, 2, 6, 24), strict=True))


@pytest.mark.few(2)
@pytest.mark.parametrize("test", STATISTICS)
def test_statistics_agree_with_independent_implementations(test):
    for x in SAMPLES:
        found = float(jax.jit(STATISTICS[test])(jnp.asarray(x, jnp.float32)))
        assert found == pytest.approx(from_scipy(test, x), rel=2e-5, abs=2e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize("test", STATISTICS)
@pytest.mark.parametrize("rank", [0, 3])
def test_vectors_that_share_their_rest_have_the_statistics_of_whole_ones(test, rank):
    draw = np.random.default_rng(rank).normal(size=(5, 61)).astype(np.float32)
    rest, heads = draw[0, rank:], draw[1:, :rank]
    heads[:, 1:] = rest[: max(rank - 1, 0)]
    rest[5:8] = 0.25
    scales, which = np.array([1.0, 0.8], np.float32), np.array([0, 1, 1, 0])
    found = STATISTICS[test].beside(jnp.asarray(rest), jnp.asarray(scales), jnp.asarray(heads), which)
    vectors = [np.concatenate([head, rest * scale]) for head, scale in zip(heads, scales[which], strict=True)]
    np.testing.assert_allclose(found, [from_scipy(test, x.astype(float)) for x in vectors], rtol=2e-5, atol=2e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize("test", ["chi_square", "kolmogorov_smirnov", "moments"])
def test_an_output_that_is_not_finite_has_no_score(test):
    step, pair = paper_setting()
    score = jax.jit(distinguishers.normality_test(step, pair, test=test))
    y = np.random.default_rng(2).normal(size=100).astype(np.float32)
    assert np.isfinite(score(KEY, y))
    for value in (np.nan, np.inf):
        y[7] = value
        assert not np.isfinite(score(KEY, y))


def test_deviance_keeps_its_digits_where_the_mean_square_is_close_to_one():
    x = np.concatenate([-np.logspace(-6, -0.01, 60), np.logspace(-6, 2, 60)])
    exact = np.where(np.abs(x) < 1e-3, x**2 / 2 - x**3 / 3 + x**4 / 4, x - np.log1p(x))
    np.testing.assert_allclose(deviance(jnp.asarray(x, jnp.float32), 1000) / 1000, exact, rtol=2e-4)


def test_critical_values_are_those_of_scipy_and_of_published_tables():
    low, high = (stats.chi2.ppf(p, 1) for p in (0.949, 0.951))
    assert low < critical_value("chi_square", 1_485_217, 0.05) < high
    assert critical_value("kolmogorov_smirnov", 50, 0.05) == pytest.approx(stats.kstwo.isf(0.05, 50))
    # Anderson-Darling, parameters known: 2.492 and 3.857 (5%, 1%); Cramer-von Mises: .461 and .743
    for level, anderson, cramer in ((0.05, 2.492, 0.461), (0.01, 3.878, 0.743)):
        assert critical_value("anderson_darling", 10**6, level) == pytest.approx(anderson, abs=6e-4)
        assert critical_value("cramer_von_mises", 10**6, level) == pytest.approx(cramer, abs=6e-4)


def test_the_norm_passes_at_exactly_the_stated_level():
    n, trials, level = 20, 20_000, 0.05
    x = np.random.default_rng(7).normal(size=(trials, n))
    found = np.asarray(deviance(jnp.asarray((x**2).mean(axis=1) - 1, jnp.float32), n))
    assert_rate_is(int((found > critical_value("chi_square", n, level)).sum()), trials, level)
    with pytest.raises(AssertionError):
        assert_rate_is(int((found > critical_value("chi_square", n, 0.06)).sum()), trials, level)


def paper_setting():
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    return mechanisms.one_round(normalise_by="expected_batch", rate=0.05, clip=0.1, noise_multiplier=10.0), pair


def proven_delta(without: np.ndarray, with_record: np.ndarray) -> float:
    """1 - alpha - beta with Clopper-Pearson limits at 2.5% each."""
    alpha, beta = ((errors.sum(), len(errors)) for errors in (without > 0, with_record <= 0))
    upper = [stats.beta.ppf(0.975, k + 1, n - k) for k, n in (alpha, beta)]
    return 1 - sum(upper)


def test_chi_square_and_majority_prove_what_the_paper_proves(draw_scores):
    step, pair = paper_setting()
    score = distinguishers.normality_test(step, pair)
    assert proven_delta(*draw_scores(score, step.collapsed(), pair, 5000)) >= 0.79
    compared = distinguishers.normality_test(step, pair, level=None)
    assert proven_delta(*draw_scores(compared, step.collapsed(), pair, 5000)) >= 0.85


@pytest.mark.long
def test_kolmogorov_smirnov_proves_far_less_unless_statistics_are_compared(draw_scores):
    step, pair = paper_setting()
    passing = distinguishers.normality_test(step, pair, test="kolmogorov_smirnov")
    compared = distinguishers.normality_test(step, pair, test="kolmogorov_smirnov", level=None)
    without, with_record = draw_scores(passing, step, pair, 2000)
    advantage = (with_record > 0).mean() - (without > 0).mean()
    # 5,000 per side prove .104 (the exact advantage is about .13); Hoeffding's limit for 2,000 per side is .085
    limit = np.sqrt(np.log(2 / FALSE_FAILURE) / 2000)
    assert abs(advantage - 0.13) < limit
    without, with_record = draw_scores(compared, step, pair, 1000)
    assert (with_record > 0).mean() - (without > 0).mean() > 0.5


def test_vector_and_collapsed_outputs_get_the_same_votes():
    step, pair = paper_setting()
    score = jax.jit(distinguishers.normality_test(step, pair))
    y = np.random.default_rng(2).normal(size=100) * 5.0
    collapsed = Collapsed(jnp.asarray(y[:1], jnp.float32), jnp.asarray(np.mean(y[1:] ** 2), jnp.float32))
    assert float(score(KEY, jnp.asarray(y, jnp.float32))) == float(score(KEY, collapsed))


def test_norm_statistics_of_all_batches_are_those_of_the_normalised_vectors():
    pair = gradient_pairs.orthogonal_pair(records=3, dimension=12, clip=0.5)
    step = mechanisms.one_round(normalise_by="realised_batch", rate=0.4, clip=0.5, noise_multiplier=0.8)
    score = distinguishers.normality_test(step, pair)
    y = jnp.asarray(np.random.default_rng(4).normal(size=12), jnp.float32)
    z, chi_square = score.frame.standardised(y), jax.jit(STATISTICS["chi_square"])
    for component, found in zip(score.components, jax.jit(score._norm_statistics)(y), strict=True):
        for mean, precision, value in zip(component.means, component.precision, found, strict=True):
            whole = (z - score.frame.embedded(jnp.asarray(mean, jnp.float32))) * np.sqrt(precision)
            assert float(value) == pytest.approx(float(chi_square(whole)), rel=1e-4, abs=1e-4)


def test_scores_are_those_of_a_loop_over_all_subsets_with_scipy():
    step, pair = paper_setting()
    score = jax.jit(distinguishers.normality_test(step, pair, test="kolmogorov_smirnov", level=None))
    for y in np.random.default_rng(8).normal(size=(2, 100)) * 5.0:
        votes = []
        for batch, extra in itertools.product(range(5), (0, 1)):
            found = []
            for records, total in ((4, -batch), (5, extra - batch)):
                z = y * 0.05 * records
                z[0] -= total / 10
                found.append(stats.kstest(z, "norm").statistic)
            votes.append(math.comb(4, batch) * ((found[1] < found[0]) - 0.5) / 32)
        assert float(score(KEY, jnp.asarray(y, jnp.float32))) == pytest.approx(sum(votes), abs=2e-6)


def test_each_subset_of_records_has_one_vote_and_equal_hypotheses_have_none():
    step, pair = paper_setting()
    score = distinguishers.normality_test(step, pair)
    np.testing.assert_allclose(np.sort(score.weights[0] * 32), [1, 1, 4, 4, 6])
    assert score.weights.sum() == pytest.approx(1)
    realised = mechanisms.one_round(normalise_by="realised_batch", rate=0.5, clip=0.1, noise_multiplier=1.0)
    assert len(distinguishers.normality_test(realised, pair).duels) == 1
    equal = mechanisms.zero_pair(records=3, dimension=5, clip=0.1, relation="zero_out")
    blind = distinguishers.normality_test(realised, equal)
    drawn = np.asarray(jax.jit(jax.vmap(blind, (0, None)))(jax.random.split(KEY, 64), np.ones(5, np.float32)))
    assert 0 < (drawn > 0).sum() < 64


def test_bad_arguments_are_refused():
    step, pair = paper_setting()
    with pytest.raises(ValueError, match="test must be one of"):
        distinguishers.normality_test(step, pair, test="shapiro")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="level must be"):
        distinguishers.normality_test(step, pair, level=0.0)
    with pytest.raises(ValueError, match="needs a model of one round"):
        distinguishers.normality_test(mechanisms.gaussian_mechanism(noise_multiplier=1.0), pair)
