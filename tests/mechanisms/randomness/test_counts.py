import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_rate_is
from scipy import stats

from mechanisms.randomness.bits import Stream, positions, words
from mechanisms.randomness.counts import binomial, binomial_table, poisson_batch, probability_to_integer

SEED = 411


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def draw(key, size, trials, rate):
    return binomial(key, positions((size,)), trials=trials, rate=rate)


@pytest.mark.parametrize(
    ("trials", "rate"), [(1, 0.3), (4, 0.05), (5, 0.999), (100, 0.5), (59_999, 0.005), (60_000, 0.7)]
)
def test_the_table_is_the_binomial_distribution_function_in_both_tails(trials, rate):
    table = binomial_table(trials, rate)
    steps = [(int(h) << 32) + int(lo) for h, lo in zip(table.high, table.low, strict=True)]
    counts = table.smallest + np.arange(len(steps))
    cdf, sf = stats.binom.cdf(counts, trials, rate), stats.binom.sf(counts, trials, rate)
    np.testing.assert_allclose([s / 2**64 for s in steps], cdf, rtol=1e-12, atol=2**-64)
    np.testing.assert_allclose([(2**64 - s) / 2**64 for s in steps], sf, rtol=1e-12, atol=2**-63)
    assert steps == sorted(steps)
    assert stats.binom.cdf(table.smallest - 1, trials, rate) < 2**-64
    assert stats.binom.sf(table.smallest + len(steps), trials, rate) < 2**-64


@pytest.mark.few(2)
@pytest.mark.parametrize(("trials", "rate"), [(1, 0.3), (4, 0.05), (59_999, 0.005)])
def test_counts_follow_the_binomial_law(trials, rate):
    drawn = np.asarray(draw(jax.random.key(SEED), 400_000, trials, rate))
    for level in (1e-5, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-5):
        k = int(stats.binom.ppf(level, trials, rate))
        assert_rate_is(int(np.sum(drawn <= k)), len(drawn), stats.binom.cdf(k, trials, rate))
        assert_rate_is(int(np.sum(drawn == k)), len(drawn), stats.binom.pmf(k, trials, rate))
    k = int(stats.binom.ppf(0.5, trials, rate))
    with pytest.raises(AssertionError, match="two-sided"):
        assert_rate_is(int(np.sum(drawn <= k)), len(drawn), stats.binom.cdf(k, trials, rate * 1.05))


def test_degenerate_counts_are_exact():
    assert np.all(np.asarray(draw(jax.random.key(0), 10, 7, 1.0)) == 7)
    assert np.all(np.asarray(draw(jax.random.key(0), 10, 0, 0.5)) == 0)


def test_counts_are_those_of_inverting_the_bits_one_by_one():
    counters = positions((2000,))
    bits = jax.jit(lambda c: words(jax.random.key(SEED), Stream.BATCH, c))(counters)
    uniform = [(int(h) << 32) + int(lo) for h, lo in zip(*map(np.asarray, bits), strict=True)]
    table = binomial_table(1000, 0.4)
    steps = [(int(h) << 32) + int(lo) for h, lo in zip(table.high, table.low, strict=True)]
    expected = table.smallest + np.searchsorted(np.array(steps, object), np.array(uniform, object), "right")
    np.testing.assert_array_equal(draw(jax.random.key(SEED), 2000, 1000, 0.4), expected)


def test_every_record_joins_a_poisson_batch_with_the_stated_rate_and_alone():
    keys = jax.random.split(jax.random.key(SEED), 200_000)
    batches = np.asarray(jax.jit(jax.vmap(lambda k: poisson_batch(k, records=4, rate=0.07)))(keys))
    for record in range(4):
        assert_rate_is(int(batches[:, record].sum()), len(keys), 0.07)
        assert_rate_is(int((batches[:, record] * batches[:, record - 1]).sum()), len(keys), 0.07**2)
    with pytest.raises(AssertionError, match="two-sided"):
        assert_rate_is(int(batches[:, 0].sum()), len(keys), 0.075)
    assert np.all(np.asarray(poisson_batch(keys[0], records=3, rate=1.0)) == 1)


def test_probabilities_become_integers_exactly():
    assert probability_to_integer(1.0) == 2**64
    assert probability_to_integer(0.5) == 2**63
    assert probability_to_integer(2.0**-64) == 1
    assert jnp.uint32(probability_to_integer(0.25) >> 32) == 2**30
