"""The likelihood ratio against slow float64 mixtures over all batches, and against the exact curves."""

from __future__ import annotations

import itertools
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_is
from scipy import stats
from scipy.special import logsumexp

import distinguishers
import guarantees
import mechanisms
from distinguishers.span_coordinates import Reading
from guarantees.normalised.variance_pair import variance_pair
from guarantees.vocabulary import NORMALISERS
from guarantees.vocabulary import PAIR_RELATIONS as RELATIONS
from mechanisms.contract import Collapsed
from mechanisms.pairs import gradient_pairs

KEY = jax.random.key(20240601)
DIMENSION = 12


def dense(table) -> np.ndarray:
    """All gradients in float64."""
    rows = np.repeat(np.asarray(table.rows, float), table.counts, axis=0)
    if table.basis is not None:
        return rows @ table.basis
    return np.pad(rows, ((0, 0), (0, table.dimension - rows.shape[1])))


def slow_log_density(step, gradients: np.ndarray, y: np.ndarray) -> np.ndarray:
    """ln density of outputs y (trials, dimension) by listing every subset of the records."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients = gradients / np.maximum(1, lengths / step.clip)
    records, n = gradients.shape
    divisors = {"none": 1.0, "expected_batch": records * step.rate}
    divisors["floored_expected_batch"] = max(math.floor(records * step.rate), 1)
    terms = []
    for bits in itertools.product((0, 1), repeat=records):
        size = sum(bits)
        divisor = divisors.get(step.normalise_by, max(size, 1))
        deviation = step.noise_multiplier * step.clip / divisor
        mean = np.asarray(bits, float) @ gradients / divisor
        weight = stats.bernoulli.logpmf(bits, step.rate).sum()
        terms.append(weight - n * math.log(deviation) - ((y - mean) ** 2).sum(axis=1) / (2 * deviation**2))
    return logsumexp(terms, axis=0)


def random_pair(relation):
    """Four gradients of which two are equal and one is clipped, in general position."""
    rng = np.random.default_rng(5)
    common = rng.normal(size=(3, DIMENSION)) * np.array([[0.1], [0.2], [3.0]])
    common = np.vstack([common, common[:1]])
    replacement = rng.normal(size=DIMENSION) * 0.1 if relation == "substitution" else None
    return mechanisms.neighbours_from_gradients(
        common, rng.normal(size=DIMENSION) * 0.2, relation=relation, replacement=replacement
    )


GEOMETRIES = {
    "aligned": lambda r: mechanisms.worst_case_pair(
        records=5, dimension=DIMENSION, clip=0.5, shared=-0.7, extra=0.9, relation=r
    ),
    "orthogonal": lambda r: gradient_pairs.orthogonal_pair(records=3, dimension=DIMENSION, clip=0.5, relation=r),
    "random": random_pair,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("normalise_by", NORMALISERS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_score_is_the_log_ratio_of_the_mixtures_over_all_batches(normalise_by, relation, geometry):
    pair = GEOMETRIES[geometry](relation)
    step = mechanisms.one_round(normalise_by=normalise_by, rate=0.4, clip=0.5, noise_multiplier=0.8)
    y = (np.random.default_rng(1).normal(size=(8, DIMENSION)) * 0.3).astype(np.float32)
    slow = slow_log_density(step, dense(pair.with_record), y.astype(float))
    slow -= slow_log_density(step, dense(pair.without), y.astype(float))
    score = distinguishers.likelihood_ratio(step, pair)
    fast = jax.jit(jax.vmap(lambda output: score(KEY, output)))(jnp.asarray(y))
    np.testing.assert_allclose(np.asarray(fast, float), slow, rtol=3e-6, atol=3e-5)
    assert slow.std() > 1e-3


@pytest.mark.few(1)
@pytest.mark.parametrize("normalise_by", ["expected_batch", "realised_batch"])
@pytest.mark.parametrize("geometry", ["aligned", "orthogonal"])
def test_an_accelerator_adds_the_same_terms(normalise_by, geometry):
    step = mechanisms.one_round(normalise_by=normalise_by, rate=0.3, clip=1.0, noise_multiplier=1.0)
    mixture = distinguishers.likelihood_ratio(step, GEOMETRIES[geometry]("substitution")).mixture
    rank = mixture.components[0].means.shape[1]
    for excess in (-0.5, 0.0, 2.0):
        reading = Reading(jnp.linspace(-1.0, 2.0, rank), jnp.float32(excess))
        np.testing.assert_allclose(
            mixture._term_by_term(reading), mixture._log_densities(reading), rtol=1e-5, atol=1e-6
        )


def test_equal_rows_cost_one_term_each_however_they_are_given():
    step = mechanisms.one_round(normalise_by="realised_batch", rate=0.3, clip=1.0, noise_multiplier=1.0)
    gradients = np.ones((30, 4)) / 4
    given = mechanisms.Neighbours(
        without=gradients, with_record=np.vstack([gradients, -gradients[:1]]), relation="add_remove"
    )
    assert distinguishers.likelihood_ratio(step, given).mixture.terms <= 31
    large = mechanisms.worst_case_pair(records=60_000, dimension=10, clip=1.0)
    score = distinguishers.likelihood_ratio(step, large)
    assert score.mixture.terms < 2500
    assert score.remainder < 1e-18
    with pytest.raises(ValueError, match="distinct batches"):
        distinguishers.likelihood_ratio(step, gradient_pairs.orthogonal_pair(records=16, dimension=20, clip=1.0))


def slow_aligned(step, pair, along: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The ratio in float64 from the statistics, all N + 1 batch sizes, for 1.5 million coordinates."""
    n, clip = pair.without.dimension, step.clip
    sides = []
    for table in (pair.without, pair.with_record):
        extra = table.records - table.counts[0]
        k = np.arange(table.counts[0] + 1)
        terms = []
        for bit in range(extra + 1):
            sums = table.rows[0, 0] * k + bit * table.rows[-1, 0]
            sizes = np.maximum(k + bit, 1.0)
            fixed = step.divisor(table.records)
            divisor = sizes if fixed is None else np.full(len(k), fixed)
            deviation = step.noise_multiplier * clip / divisor
            weight = stats.binom.logpmf(k, table.counts[0], step.rate) + stats.binom.logpmf(bit, extra, step.rate)
            square = (n - 1) * rest[:, None] + (along[:, None] - sums / divisor) ** 2
            terms.append(weight - n * np.log(deviation) - square / (2 * deviation**2))
        sides.append(logsumexp(np.concatenate(terms, axis=1), axis=1))
    return sides[1] - sides[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("normalise_by", NORMALISERS)
def test_score_is_stable_in_float32_at_sixty_thousand_records_and_large_dimension(normalise_by, draw_outputs):
    records, n = 59_999, 1_485_217
    pair = mechanisms.worst_case_pair(records=records, dimension=n, clip=0.1)
    step = mechanisms.one_round(normalise_by=normalise_by, rate=0.005, clip=0.1, noise_multiplier=10.0).collapsed()
    outputs = draw_outputs(step, pair.without, 16, 17)
    score = distinguishers.likelihood_ratio(step, pair)
    fast = np.asarray(jax.jit(jax.vmap(lambda output: score(KEY, output)))(outputs), float)
    slow = slow_aligned(step, pair, np.asarray(outputs.along[:, 0], float), np.asarray(outputs.rest, float))
    # float64 itself is good to 1e-9 here; the density's terms are of size 1e7
    assert np.abs(fast - slow).max() < 2e-3 * slow.std()


def test_score_of_a_full_vector_is_stable_at_large_dimension():
    records, n = 59_999, 1_485_217
    pair = mechanisms.worst_case_pair(records=records, dimension=n, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.005, clip=0.1, noise_multiplier=10.0)
    y = np.random.default_rng(3).normal(size=n).astype(np.float32) / np.float32(records * 0.005)
    y[0] -= np.float32(0.1)
    wide = y.astype(float)
    slow = slow_aligned(step, pair, wide[:1], np.array([np.mean(wide[1:] ** 2)]))[0]
    score = distinguishers.likelihood_ratio(step, pair)
    assert abs(float(jax.jit(score)(KEY, jnp.asarray(y))) - slow) < 1e-3 * 0.0287


@pytest.mark.few(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_vector_and_collapsed_readings_of_one_output_agree(geometry):
    pair = GEOMETRIES[geometry]("add_remove")
    step = mechanisms.one_round(normalise_by="realised_batch", rate=0.4, clip=0.5, noise_multiplier=0.8)
    score = jax.jit(distinguishers.likelihood_ratio(step, pair))
    table = pair.without
    basis = np.eye(DIMENSION)[: table.rank] if table.basis is None else table.basis
    for seed in range(2):
        y = np.random.default_rng(seed).normal(size=DIMENSION)
        along = basis @ y
        rest = (y @ y - along @ along) / (DIMENSION - table.rank)
        collapsed = Collapsed(jnp.asarray(along, jnp.float32), jnp.asarray(rest, jnp.float32))
        assert float(score(KEY, jnp.asarray(y, jnp.float32))) == pytest.approx(float(score(KEY, collapsed)), abs=2e-4)


def gold(name: str) -> float:
    path = pathlib.Path(__file__).parents[2] / "data" / "gold.json"
    entries = json.loads(path.read_text())
    entries = entries["entries"] if isinstance(entries, dict) else entries
    return next(entry["value"] for entry in entries if entry["name"] == name)


def easgm(records=4, dimension=100):
    pair = mechanisms.worst_case_pair(records=records, dimension=dimension, clip=0.1)
    return mechanisms.one_round(normalise_by="expected_batch", rate=0.05, clip=0.1, noise_multiplier=10.0), pair


def test_error_rates_at_threshold_zero_are_the_exact_ones(draw_scores):
    step, pair = easgm()
    without, with_record = draw_scores(distinguishers.likelihood_ratio(step, pair), step, pair, 20_000)
    assert_rate_is(int((without > 0).sum()), 20_000, gold("EASGM_LR_alpha_at_t0"))
    assert_rate_is(int((with_record <= 0).sum()), 20_000, gold("EASGM_LR_beta_at_t0"))
    with pytest.raises(AssertionError):
        assert_rate_is(int((without > 1).sum()), 20_000, gold("EASGM_LR_alpha_at_t0"))


def assert_is_its_own_ratio(without: np.ndarray, with_record: np.ndarray) -> None:
    """E_without min(1, e^L) = E_with min(1, e^-L), both 1 - TV: Hoeffding's bound on the difference of two means.

    The bounded form of E_without e^L = 1, whose own variance can be infinite.
    """
    gap = np.minimum(1, np.exp(np.minimum(without, 0))).mean() - np.exp(-np.maximum(with_record, 0)).mean()
    limit = math.sqrt(math.log(2 / FALSE_FAILURE) / len(without))
    assert abs(gap) < limit, f"the two means differ by {gap:.4f}, more than {limit:.4f}"


@pytest.mark.few(2)
@pytest.mark.parametrize("normalise_by", NORMALISERS)
def test_score_is_the_ratio_of_its_own_laws(normalise_by, draw_scores):
    pair = mechanisms.worst_case_pair(records=4, dimension=30, clip=1.0)
    step = mechanisms.one_round(normalise_by=normalise_by, rate=0.7, clip=1.0, noise_multiplier=1.0).collapsed()
    without, with_record = draw_scores(distinguishers.likelihood_ratio(step, pair), step, pair, 8_000)
    assert_is_its_own_ratio(without, with_record)
    with pytest.raises(AssertionError):
        assert_is_its_own_ratio(without + 0.5, with_record + 0.5)


def test_curve_is_exact_where_it_is_known_and_none_elsewhere():
    step, pair = easgm()
    curve = distinguishers.likelihood_ratio(step, pair).curve
    assert curve is not None
    alpha, beta = curve.errors(0.0)
    assert alpha == pytest.approx(gold("EASGM_LR_alpha_at_t0"), abs=1e-6)
    assert beta == pytest.approx(gold("EASGM_LR_beta_at_t0"), abs=1e-6)
    orthogonal = gradient_pairs.orthogonal_pair(records=3, dimension=12, clip=0.1)
    assert distinguishers.likelihood_ratio(step, orthogonal).curve is None
    whole = mechanisms.one_round(normalise_by="expected_batch", rate=1.0, clip=0.1, noise_multiplier=2.0)
    found = distinguishers.likelihood_ratio(whole, orthogonal).curve
    assert found is not None
    # sums 3 e_i / 3 and 4 e_i / 4: the means differ by sqrt(3 (1/12)^2 + (1/4)^2) clips, the noise is 2/3 clip
    shift = math.sqrt(3 / 144 + 1 / 16) / (2 / 3)
    exact = variance_pair(dimension=12, scale=0.75, shift=shift)
    assert found.beta(0.1) == pytest.approx(exact.beta(0.1), abs=1e-9)


def test_curve_of_zero_out_neighbours_predicts_the_errors(draw_scores):
    pair = mechanisms.worst_case_pair(records=3, dimension=5, clip=1.0, relation="zero_out")
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=1.0, noise_multiplier=0.5).collapsed()
    score = distinguishers.likelihood_ratio(step, pair)
    assert score.curve is not None
    alpha, beta = score.curve.errors(0.1)
    without, with_record = draw_scores(score, step, pair, 5_000)
    assert_rate_is(int((without > 0.1).sum()), 5_000, float(alpha))
    assert_rate_is(int((with_record <= 0.1).sum()), 5_000, float(beta))


def test_a_wrong_model_gives_finite_scores():
    _, pair = easgm()
    model = mechanisms.one_round(normalise_by="realised_batch", rate=0.05, clip=0.1, noise_multiplier=0.01)
    score = jax.jit(distinguishers.likelihood_ratio(model, pair))
    for size in (0.0, 1e-6, 1.0, 1e6):
        assert np.isfinite(float(score(KEY, np.full(100, size, np.float32))))


def test_the_ratio_of_gaussians_is_the_difference_of_the_log_densities():
    pair = mechanisms.scalar_pair(sensitivity=2.0)
    y = np.linspace(-4, 6, 23).astype(np.float32)
    normal = distinguishers.likelihood_ratio(mechanisms.gaussian_mechanism(noise_multiplier=1.5, sensitivity=2.0), pair)
    exact = stats.norm.logpdf(y, 2, 3) - stats.norm.logpdf(y, 0, 3)
    np.testing.assert_allclose(jax.jit(jax.vmap(normal, (None, 0)))(KEY, y[:, None]), exact, atol=1e-6)
    assert normal.curve is not None
    assert normal.curve.total_variation == pytest.approx(guarantees.gaussian(mu=2 / 3).total_variation)


def test_unknown_models_and_unreadable_pairs_are_refused():
    step, pair = easgm()
    with pytest.raises(ValueError, match="is not known"):
        distinguishers.likelihood_ratio(mechanisms.mechanism(lambda key, d: d[0]), pair)
    with pytest.raises(ValueError, match="GradientTable"):
        distinguishers.likelihood_ratio(
            step, mechanisms.Neighbours(without="a", with_record="b", relation="add_remove")
        )
    far = mechanisms.Neighbours(without=np.zeros((2, 3)), with_record=np.ones((3, 3)), relation="add_remove")
    with pytest.raises(ValueError, match="differ in one record"):
        distinguishers.likelihood_ratio(step, far)
    with pytest.raises(ValueError, match="shape"):
        distinguishers.likelihood_ratio(step, pair)(KEY, jnp.zeros(99))
