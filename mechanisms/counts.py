"""Who is in the batch: Bernoulli draws and binomial counts, exact to 2^-64."""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from mechanisms.bits import Stream, Words, below, positions, words


def poisson_batch(key: jax.Array, *, records: int, rate: float) -> jax.Array:
    """One for every record that joins the batch, independently with probability ``rate``; else zero."""
    if rate >= 1:
        return jnp.ones((records,), jnp.float32)
    return below(words(key, Stream.BATCH, positions((records,))), probability_to_integer(rate)).astype(jnp.float32)


def probability_to_integer(probability: float) -> int:
    """The threshold below which 64 bits, read as an integer, fall with this probability."""
    return round(Fraction(probability) * 2**64)


@dataclasses.dataclass(frozen=True, eq=False)
class BinomialTable:
    """Where the cumulative distribution function steps, in units of 2^-64: P(K <= smallest + i) ends at entry i."""

    smallest: int
    high: np.ndarray
    low: np.ndarray


@functools.lru_cache(maxsize=64)
def binomial_table(trials: int, rate: float) -> BinomialTable:
    """Inverse table of Binomial(trials, rate), each tail from its own side; what it cuts has mass below 2^-64."""
    law = stats.binom(trials, rate)
    smallest, largest = int(law.ppf(2.0**-66)), int(law.isf(2.0**-66))
    steps = []
    for lower, upper in zip(law.cdf(np.arange(smallest, largest)), law.sf(np.arange(smallest, largest)), strict=True):
        step = probability_to_integer(lower) if lower < 0.5 else 2**64 - probability_to_integer(upper)
        steps.append(min(step, 2**64 - 1))
    entries = np.array(steps, np.uint64)
    return BinomialTable(smallest, (entries >> np.uint64(32)).astype(np.uint32), entries.astype(np.uint32))


def binomial(key: jax.Array, counters: jax.Array, *, trials: int, rate: float) -> jax.Array:
    """Binomial counts (float32, exact to 2^24 trials), one for each counter, by inversion of 64 random bits.

    The count is the number of table entries that are not above the bits: a bisection of two-word integers.
    """
    if trials == 0 or rate >= 1:
        return jnp.full(counters.shape, float(trials), jnp.float32)
    table = binomial_table(trials, rate)
    bits = words(key, Stream.BATCH, counters)
    high, low = jnp.asarray(table.high), jnp.asarray(table.low)
    steps = len(table.high).bit_length()

    def bisect(step: jax.Array, found: jax.Array) -> jax.Array:
        place = found + (jnp.int32(1) << (steps - 1 - step)) - 1
        entry = Words(high.at[place].get(mode="clip"), low.at[place].get(mode="clip"))
        passed = (entry.high < bits.high) | ((entry.high == bits.high) & (entry.low <= bits.low))
        return jnp.where(passed & (place < len(table.high)), place + 1, found)

    # A loop, not unrolled: each step reads the last one twice, and XLA would fuse and copy the whole chain.
    found = jax.lax.fori_loop(0, steps, bisect, jnp.zeros(counters.shape, jnp.int32))
    return (found + table.smallest).astype(jnp.float32)
