import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_has_law, assert_same_law
from scipy import stats

from guarantees.vocabulary import NORMALISERS
from mechanisms import neighbours_from_gradients, one_round, worst_case_pair
from mechanisms.contract import Collapsed
from mechanisms.pairs import gradient_pairs
from mechanisms.pairs.neighbours import GradientTable, materialise
from mechanisms.simulators.one_round import collapsed_round, divisor
from mechanisms.simulators.rounds import batch_sum, clip_rows

SEED = 1_729
TRIALS = 20_000


def given_pair(rank):
    """Nine records whose gradients span ``rank`` dimensions of eleven; some are longer than the clip."""
    rng = np.random.default_rng(rank)
    rows = rng.normal(size=(10, rank)) @ rng.normal(size=(rank, 11)) / 4
    rows[3] = rows[2]
    return neighbours_from_gradients(rows[:9], rows[9])


PAIRS = {
    "aligned": worst_case_pair(records=4, dimension=9, clip=0.5),
    "rank 2": given_pair(2),
    "rank 3": given_pair(3),
}
CASES = [(normaliser, "aligned", "with_record") for normaliser in NORMALISERS]
CASES += [("realised_batch", "rank 3", "with_record"), ("expected_batch", "rank 2", "without")]
CASES += [
    pytest.param(normaliser, pair, side, marks=pytest.mark.long)
    for normaliser in NORMALISERS
    for pair in PAIRS
    for side in ("without", "with_record")
]


def simulate(step, dataset, trials=TRIALS, seed=SEED):
    keys = jax.random.split(jax.random.key(seed), trials)
    return jax.jit(jax.vmap(lambda key: step(key, dataset)))(keys)


def collapse(outputs, table):
    """The statistics of full vectors that the collapsed simulator draws directly."""
    outputs = np.asarray(outputs, np.float64)
    basis = np.eye(table.rank, table.dimension) if table.basis is None else table.basis
    along = outputs @ basis.T
    rest = (outputs**2).sum(1) - (along**2).sum(1)
    return Collapsed(along, rest / (table.dimension - table.rank))


@pytest.mark.few(1)
@pytest.mark.parametrize(("normaliser", "pair", "side"), CASES)
def test_full_and_collapsed_simulators_have_one_law(normaliser, pair, side):
    dataset = getattr(PAIRS[pair], side)
    step = one_round(normalise_by=normaliser, rate=0.6, clip=0.5, noise_multiplier=0.8)
    full = collapse(simulate(step, dataset), dataset)
    short = simulate(step.collapsed(), dataset, seed=SEED + 1)
    for axis in range(dataset.rank):
        assert_same_law(full.along[:, axis], np.asarray(short.along[:, axis]))
    assert_same_law(full.rest, np.asarray(short.rest))
    size = dataset.dimension - dataset.rank
    norms = [(np.asarray(c.along) ** 2).sum(1) + size * np.asarray(c.rest) for c in (full, short)]
    assert_same_law(*norms)
    mixed = [np.asarray(c.along)[:, 0] * np.sqrt(np.asarray(c.rest)) for c in (full, short)]
    assert_same_law(*mixed)


@pytest.mark.long
def test_simulators_of_different_divisors_are_told_apart():
    step = one_round(normalise_by="expected_batch", rate=0.6, clip=0.5, noise_multiplier=0.8)
    full = collapse(simulate(step, PAIRS["aligned"].without), PAIRS["aligned"].without)
    short = simulate(step.collapsed(), PAIRS["aligned"].with_record)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_same_law(full.rest, np.asarray(short.rest))


def mixture_cdf(x, *, records, rate, shift, deviation):
    """Law of the aligned sum: a binomial number of shifts plus normal noise."""
    counts = np.arange(records + 1)
    weights = stats.binom.pmf(counts, records, rate)
    return (weights[:, None] * stats.norm.cdf((x - shift * counts[:, None]) / deviation)).sum(0)


@pytest.mark.few(1)
@pytest.mark.parametrize("collapsed", [False, True])
def test_the_sum_along_the_gradients_has_its_exact_law(collapsed):
    pair = worst_case_pair(records=7, dimension=3, clip=0.5)
    step = one_round(normalise_by="none", rate=0.3, clip=0.5, noise_multiplier=0.7)
    found = simulate(step.collapsed() if collapsed else step, pair.without, 100_000)
    sample = np.asarray(found.along if collapsed else found)[:, 0]
    exact = functools.partial(mixture_cdf, records=7, shift=-0.5, deviation=0.35)
    assert_has_law(sample, functools.partial(exact, rate=0.3))
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(sample, functools.partial(exact, rate=0.32))


@pytest.mark.long
def test_tables_and_dense_arrays_give_the_same_output():
    step = one_round(normalise_by="realised_batch", rate=0.5, clip=0.5, noise_multiplier=0.8)
    table = worst_case_pair(records=40, dimension=20, clip=0.5).with_record
    found, dense = (simulate(step, data, trials=64) for data in (table, materialise(table)))
    np.testing.assert_allclose(found, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_many_groups_are_summed_as_few_are():
    rows = np.random.default_rng(0).normal(size=(30, 3))
    table = GradientTable(rows=rows, counts=(1, 2, 3) * 10, dimension=5)
    step = one_round(normalise_by="realised_batch", rate=0.5, clip=0.5, noise_multiplier=0.8)
    found, dense = (simulate(step, data, trials=16) for data in (table, table.dense()))
    np.testing.assert_allclose(found, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_an_everyday_audit_of_sixty_thousand_records_resolves_the_divisor():
    pair = worst_case_pair(records=59_999, dimension=1_485_217, clip=0.1)
    step = one_round(normalise_by="expected_batch", rate=0.005, clip=0.1, noise_multiplier=10.0).collapsed()
    found = simulate(step, pair.with_record, 1_000_000)
    degrees, unit = 1_485_216, (1.0 / (60_000 * 0.005)) ** 2
    rest = np.asarray(found.rest, np.float64) / unit * degrees
    assert_has_law(rest, stats.chi2(degrees).cdf)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(rest * (60_000 / 59_999) ** 2, stats.chi2(degrees).cdf)
    along = np.asarray(found.along, np.float64)[:, 0] * 300
    mean, variance = -0.1 * 59_999 * 0.005 + 0.1 * 0.005, 0.01 * 60_000 * 0.005 * 0.995 + 1
    assert abs(along.mean() - mean) < 5 * np.sqrt(variance / 1e6)


def test_divisors_follow_the_conventions_of_the_definitions():
    assert divisor("none", records=4, rate=0.05) == 1.0
    assert divisor("expected_batch", records=4, rate=0.05) == pytest.approx(0.2)
    assert divisor("floored_expected_batch", records=4, rate=0.05) == 1.0
    assert divisor("floored_expected_batch", records=140_200, rate=0.005) == 701.0
    assert divisor("realised_batch", records=4, rate=0.05) is None


def test_an_empty_batch_is_divided_by_one():
    plain, realised = (
        one_round(normalise_by=by, rate=1e-9, clip=0.5, noise_multiplier=0.8) for by in ("none", "realised_batch")
    )
    dataset = PAIRS["aligned"].without
    np.testing.assert_array_equal(simulate(plain, dataset, 10), simulate(realised, dataset, 10))


def test_a_full_batch_is_divided_by_its_size():
    step = one_round(normalise_by="realised_batch", rate=1.0, clip=0.5, noise_multiplier=1e-6)
    found = simulate(step, PAIRS["aligned"].without, 5)
    np.testing.assert_allclose(found[:, 0], -0.5, atol=1e-5)


def test_clipping_shortens_long_gradients_and_leaves_the_others():
    rows = jnp.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [3e30, 4e30], [1e-30, 0.0]])
    found = np.asarray(clip_rows(rows, 1.0))
    np.testing.assert_allclose(found[0], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(found[1:3], rows[1:3])
    np.testing.assert_allclose(found[3], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(found[4], rows[4])


def test_long_and_short_batches_are_summed_alike():
    rows = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    batch = np.random.default_rng(2).integers(0, 2, 40).astype(np.float32)
    np.testing.assert_allclose(batch_sum(jnp.asarray(batch), jnp.asarray(rows)), batch @ rows, rtol=1e-4)
    np.testing.assert_allclose(
        batch_sum(jnp.asarray(batch[:7]), jnp.asarray(rows[:7])), batch[:7] @ rows[:7], rtol=1e-4
    )


def test_no_rest_where_the_gradients_fill_the_space():
    pair = gradient_pairs.orthogonal_pair(records=2, dimension=3, clip=1.0)
    step = one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0).collapsed()
    found = simulate(step, pair.with_record, 4)
    assert found.along.shape == (4, 3)
    assert not np.asarray(found.rest).any()


@pytest.mark.long
def test_outputs_do_not_depend_on_how_many_are_drawn_at_once():
    step = one_round(normalise_by="realised_batch", rate=0.5, clip=0.5, noise_multiplier=0.8)
    keys = jax.random.split(jax.random.key(SEED), 100)
    program = jax.jit(jax.vmap(lambda key: step(key, worst_case_pair(records=4, dimension=101, clip=0.5).without)))
    parts = [program(keys[start : start + 7]) for start in range(0, 98, 7)]
    np.testing.assert_allclose(jnp.concatenate(parts), program(keys)[:98], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0 and finite, got 0.0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be > 0 and finite, got -1.0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier must be"),
        ({"rate": 1.5}, r"rate must be in \(0, 1\], got 1.5"),
        ({"rate": 0.0}, "rate must be"),
        ({"rate": float("nan")}, "rate must be"),
        ({"clip": 0.0}, "clip must be > 0 and finite, got 0.0"),
        ({"normalise_by": "expected"}, "did you mean 'expected_batch'"),
        ({"normalise_by": "realized_batch"}, "did you mean 'realised_batch'"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    good = {"normalise_by": "none", "rate": 0.5, "clip": 0.1, "noise_multiplier": 1.0}
    with pytest.raises(ValueError, match=message):
        one_round(**{**good, **arguments})
    with pytest.raises(ValueError, match=message):
        collapsed_round(**{**good, **arguments})


def test_datasets_of_the_wrong_shape_are_refused():
    step = one_round(normalise_by="none", rate=0.5, clip=0.1, noise_multiplier=1.0)
    with pytest.raises(ValueError, match=r"shape \(records, dimension\)"):
        step(jax.random.key(0), np.ones(3))
    with pytest.raises(ValueError, match="records >= 1"):
        step(jax.random.key(0), np.ones((0, 3)))
    with pytest.raises(ValueError, match="reads a GradientTable"):
        step.collapsed()(jax.random.key(0), np.ones((2, 3)))
