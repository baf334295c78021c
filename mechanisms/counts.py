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
class StepTable:
    """Where a cumulative distribution function steps, in units of 2^-64: P(K <= smallest + i) ends at entry i."""

    smallest: int
    high: np.ndarray
    low: np.ndarray


def step_table(below: np.ndarray, above: np.ndarray | None = None, *, smallest: int = 0) -> StepTable:
    """From P(K <= k) and, where it is known better than as one minus that, P(K > k), for k = smallest, ...

    The last value, whose P(K <= k) is 1, may be left out; bits beyond the last entry give the value after it.
    """
    steps = []
    for lower, upper in zip(below, 1 - below if above is None else above, strict=True):
        step = probability_to_integer(lower) if lower < 0.5 else 2**64 - probability_to_integer(max(upper, 0.0))
        steps.append(min(step, 2**64 - 1))
    entries = np.array(steps, np.uint64)
    return StepTable(smallest, (entries >> np.uint64(32)).astype(np.uint32), entries.astype(np.uint32))


@functools.lru_cache(maxsize=64)
def binomial_table(trials: int, rate: float) -> StepTable:
    """Inverse table of Binomial(trials, rate), each tail from its own side; what it cuts has mass below 2^-64."""
    law = stats.binom(trials, rate)
    smallest, largest = int(law.ppf(2.0**-66)), int(law.isf(2.0**-66))
    values = np.arange(smallest, largest)
    return step_table(law.cdf(values), law.sf(values), smallest=smallest)


def look_up(bits: Words, table: StepTable) -> jax.Array:
    """The value (int32) that 64 random bits give by inversion: how many entries are not above them.

    A bisection of two-word integers.
    """
    high, low = jnp.asarray(table.high), jnp.asarray(table.low)
    steps = len(table.high).bit_length()

    def bisect(step: jax.Array, found: jax.Array) -> jax.Array:
        place = found + (jnp.int32(1) << (steps - 1 - step)) - 1
        entry = Words(high.at[place].get(mode="clip"), low.at[place].get(mode="clip"))
        passed = (entry.high < bits.high) | ((entry.high == bits.high) & (entry.low <= bits.low))
        return jnp.where(passed & (place < len(table.high)), place + 1, found)

    # A loop, not unrolled: each step reads the last one twice, and XLA would fuse and copy the whole chain.
    found = jax.lax.fori_loop(0, steps, bisect, jnp.zeros(bits.high.shape, jnp.int32))
    return found + table.smallest


def binomial(key: jax.Array, counters: jax.Array, *, trials: int, rate: float) -> jax.Array:
    """Binomial counts (float32, exact to 2^24 trials), one for each counter, by inversion of 64 random bits."""
    if trials == 0 or rate >= 1:
        return jnp.full(counters.shape, float(trials), jnp.float32)
    bits = words(key, Stream.BATCH, counters)
    return look_up(bits, binomial_table(trials, rate)).astype(jnp.float32)
