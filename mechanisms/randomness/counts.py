"""Who is in the batch: Bernoulli draws and binomial counts, exact to 2^-64."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpsgd_audit.later import jax, jnp
from guarantees.numerics.distributions import binom
from guarantees.numerics.search import first
from mechanisms.randomness.bits import Stream, Words, below, positions, words
from mechanisms.structure import next_power, pad_rows, structured

TABLE_SIZES = (32, 32)
"""Entries of the smallest table, and how much longer the next size is: a bisection costs the logarithm."""


def poisson_batch(key: jax.Array, *, records: int, rate: float) -> jax.Array:
    """One for every record that joins the batch, independently with probability ``rate``; else zero."""
    return poisson_joins(key, records, joining(rate))


def joining(rate: float) -> Words | None:
    """Threshold on 64 bits below which a record joins; None if every record does."""
    return None if rate >= 1 else integer_words(probability_to_integer(rate))


def poisson_joins(key: jax.Array, records: int, threshold: Words | None) -> jax.Array:
    """Who joins a Poisson batch, from a threshold that may be traced."""
    if threshold is None:
        return jnp.ones((records,), jnp.float32)
    return below(words(key, Stream.BATCH, positions((records,))), threshold).astype(jnp.float32)


def probability_to_integer(probability: float) -> int:
    """The threshold below which 64 bits, read as an integer, fall with this probability."""
    return round(Fraction(probability) * 2**64)


def integer_words(number: int) -> Words:
    """An integer below 2^64 as two words."""
    return Words(np.uint32(number >> 32), np.uint32(number & 0xFFFFFFFF))  # type: ignore[arg-type]


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
    if trials == 0 or rate >= 1:
        return StepTable(trials, np.zeros(0, np.uint32), np.zeros(0, np.uint32))
    smallest, largest = int(binom.ppf(2.0**-66, trials, rate)), largest_count(trials, rate)
    values = np.arange(smallest, largest)
    return step_table(binom.cdf(values, trials, rate), binom.sf(values, trials, rate), smallest=smallest)


def largest_count(trials: int, rate: float) -> int:
    """The smallest count exceeded with probability at most 2^-66; so far out scipy's ``isf`` answers ``trials``."""
    return first(lambda count: bool(binom.sf(count, trials, rate) <= 2.0**-66), int(trials * rate) - 1, trials)


@structured(numbers=("high", "low", "smallest", "entries", "group"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """Step tables of several laws, padded to one length, and which of them each draw is from."""

    high: np.ndarray
    low: np.ndarray
    smallest: np.ndarray
    entries: np.ndarray
    """Number of entries of each table before padding."""
    group: np.ndarray
    """Index of each draw's table."""

    def look_up(self, bits: Words) -> jax.Array:
        """The value (int32) that 64 bits give by inversion: how many entries of its table are not above them."""
        high, low, own = jnp.asarray(self.high), jnp.asarray(self.low), self.group
        entries = self.entries[own]

        def passed(place: jax.Array) -> jax.Array:
            entry = Words(high.at[own, place].get(mode="clip"), low.at[own, place].get(mode="clip"))
            return _not_above(entry, bits) & (place < entries)

        return _bisect(passed, high.shape[1], bits.high.shape) + self.smallest[own]


def binomial_tables(counts: np.ndarray, rate: float, *, draws: int) -> Tables:
    """Tables of Binomial(count, rate) draws for all counts, padded with draws that are zero."""
    every = np.pad(np.asarray(counts, np.int64), (0, draws - len(counts)))
    kinds, group = np.unique(every, return_inverse=True)
    tables = [binomial_table(int(count), rate) for count in kinds]
    rows = next_power(len(tables), least=2)
    least, base = TABLE_SIZES
    width = next_power(max(len(table.high) for table in tables), base=base, least=least)

    def stack(parts: list[np.ndarray]) -> np.ndarray:
        return pad_rows(np.stack([pad_rows(part, width) for part in parts]), rows)

    return Tables(
        high=stack([table.high for table in tables]),
        low=stack([table.low for table in tables]),
        smallest=pad_rows(np.array([table.smallest for table in tables], np.int32), rows),
        entries=pad_rows(np.array([len(table.high) for table in tables], np.int32), rows),
        group=group.astype(np.int32),
    )


def _not_above(entry: Words, bits: Words) -> jax.Array:
    return (entry.high < bits.high) | ((entry.high == bits.high) & (entry.low <= bits.low))


def _bisect(passed: Callable[[jax.Array], jax.Array], length: int, shape: tuple[int, ...]) -> jax.Array:
    """How many leading places have been passed, of ``length`` at most."""
    steps = length.bit_length()

    def step(number: jax.Array, found: jax.Array) -> jax.Array:
        place = found + (jnp.int32(1) << (steps - 1 - number)) - 1
        return jnp.where(passed(place), place + 1, found)

    # A loop, not unrolled: each step reads the last one twice, and XLA would fuse and copy the whole chain.
    return jax.lax.fori_loop(0, steps, step, jnp.zeros(shape, jnp.int32))


def look_up(bits: Words, table: StepTable) -> jax.Array:
    """The value (int32) that 64 random bits give by inversion: how many entries are not above them.

    A bisection of two-word integers.
    """
    high, low = jnp.asarray(table.high), jnp.asarray(table.low)

    def passed(place: jax.Array) -> jax.Array:
        entry = Words(high.at[place].get(mode="clip"), low.at[place].get(mode="clip"))
        return _not_above(entry, bits) & (place < len(table.high))

    return _bisect(passed, len(table.high), bits.high.shape) + table.smallest


def binomial(key: jax.Array, counters: jax.Array, *, trials: int, rate: float) -> jax.Array:
    """Binomial counts (float32, exact to 2^24 trials), one for each counter, by inversion of 64 random bits."""
    if trials == 0 or rate >= 1:
        return jnp.full(counters.shape, float(trials), jnp.float32)
    bits = words(key, Stream.BATCH, counters)
    return look_up(bits, binomial_table(trials, rate)).astype(jnp.float32)
