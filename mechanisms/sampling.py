"""How batches are formed over an epoch: index sets with a mask, and attendance as sufficient statistics.

A sampler draws one epoch. The differing record is the last of the dataset. Batches are padded to one size; a dummy
entry has mask 0 and contributes exactly zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsgd_audit.later import jax, jnp
from dpsgd_audit.spelling import counted
from guarantees.checks import Count, Rate, checked, require
from guarantees.numerics.distributions import binom
from mechanisms.batches import (
    Attendance,
    Batches,
    OncePerEpoch,
    Sampler,
    full_batches,
    members,
    place_table,
    require_one_record,
)
from mechanisms.batches import FixedBatches as FixedBatches
from mechanisms.contract import Described
from mechanisms.randomness.bits import Stream, below, positions, words
from mechanisms.randomness.counts import binomial, look_up, probability_to_integer
from mechanisms.randomness.stream_buffer import leaving_law, stream, stream_position


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisson(Described):
    """Every record joins every batch independently with probability ``rate``: what accountants assume.

    Args:
      rate: probability with which a record joins a batch, in (0, 1].
      steps: batches in one epoch, at least 1.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.poisson(rate=0.1, steps=20).rounds(1000)
      20
    """

    rate: Rate
    steps: Count

    def rounds(self, records: int) -> int:
        """The number of rounds that was asked for."""
        return self.steps

    def _attends(self, key: jax.Array, records: int) -> jax.Array:
        bits = words(key, Stream.BATCH, positions((self.steps, records)))
        return below(bits, probability_to_integer(self.rate))

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """Batches, padded to a size that is exceeded with probability below 2^-64."""
        size = int(binom.isf(2.0**-66, records, self.rate)) if self.rate < 1 else records
        return members(self._attends(key, records), min(max(size, 1), records))

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """A binomial count and a coin per round or, for a group, two binomial counts."""
        rounds = positions((self.steps,))
        others = binomial(key, rounds, trials=records - group, rate=self.rate)
        if group > 1:
            return Attendance(others, binomial(key, self.steps + rounds, trials=group, rate=self.rate))
        record = below(words(key, Stream.PLACE, rounds), probability_to_integer(self.rate))
        return Attendance(others, record.astype(jnp.float32))


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedPoisson(Described):
    """Poisson batches of which at most ``most`` records are kept, drawn at random: what fits into memory.

    Args:
      rate: probability with which a record joins a batch before the cut, in (0, 1].
      steps: batches in one epoch, at least 1.
      most: records that are kept at most, at least 1.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.truncated_poisson(rate=0.1, steps=20, most=128).rounds(1000)
      20
    """

    rate: Rate
    steps: Count
    most: Count

    def rounds(self, records: int) -> int:
        """The number of rounds that was asked for."""
        return self.steps

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """The records that attend, in random order, cut to ``most``."""
        key_batch, key_order = jax.random.split(key)
        attends = Poisson(rate=self.rate, steps=self.steps)._attends(key_batch, records)
        size = min(self.most, records)

        def cut(own: jax.Array, row: jax.Array) -> Batches:
            order = jax.random.permutation(own, records)
            (place,) = jnp.nonzero(row[order], size=size, fill_value=0)
            mask = (jnp.arange(size) < jnp.sum(row)).astype(jnp.float32)
            return Batches(order[place].astype(jnp.int32), mask)

        return jax.vmap(cut)(jax.random.split(key_order, self.steps), attends)

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """Attendance if the record stays in an overfull batch with probability ``most`` over its size."""
        require_one_record(group)
        whole = Poisson(rate=self.rate, steps=self.steps).attendance(key, records)
        size = whole.others + whole.record
        stays = jax.random.uniform(key, (self.steps,)) * size < self.most
        record = whole.record * stays
        return Attendance(jnp.minimum(size, float(self.most)) - record, record)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffle(OncePerEpoch):
    """A random permutation cut into batches of equal size, the remainder dropped: what data loaders do.

    Args:
      batch_size: records in a batch, at least 1.
      same_order: keep one permutation for all epochs; by default each epoch draws its own.

    Raises:
      ValueError: ``batch_size`` is below 1.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.shuffle(batch_size=32).rounds(1000)
      31
    """

    batch_size: Count
    same_order: bool = False

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """A random permutation cut into consecutive batches."""
        return full_batches(jax.random.permutation(key, records), self.rounds(records), self.batch_size)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Deterministic(OncePerEpoch):
    """The records in the order of the dataset, the remainder dropped.

    Args:
      batch_size: records in a batch, at least 1.
      position: the place of the differing record in that order; by default the last one that is not dropped.

    Raises:
      ValueError: ``batch_size`` is below 1.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.deterministic(batch_size=2, position=0).places(6).tolist()
      [1.0, 0.0, 0.0]
    """

    batch_size: Count
    position: int | None = None

    def places(self, records: int) -> np.ndarray:
        """Probability 1 for the one batch that holds the record."""
        weights = np.zeros(self.rounds(records))
        place = stream_position(self.position, records, self.rounds(records) * self.batch_size)
        if place // self.batch_size < len(weights):
            weights[place // self.batch_size] = 1.0
        return weights

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """Attendance of the record, or of a group of neighbours in the stream, in its one place."""
        if group == 1:
            return super().attendance(key, records)
        together = self.position is None and records % self.batch_size == 0 and group <= self.batch_size
        require("group", together, "within the last batch (no position=, no remainder, at most batch_size)", group)
        record = jnp.asarray(group * self.places(records), jnp.float32)
        return Attendance(self.batch_size - record, record)

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """Consecutive stretches of the stream."""
        del key
        rounds = self.rounds(records)
        return full_batches(stream(self.position, records, rounds * self.batch_size), rounds, self.batch_size)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedSize(Described):
    """``batch_size`` records without replacement, drawn again for every batch.

    Args:
      batch_size: records in a batch, at least 1.
      steps: batches in one epoch, at least 1.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.fixed_size(batch_size=32, steps=20).rounds(1000)
      20
    """

    batch_size: Count
    steps: Count

    def rounds(self, records: int) -> int:
        """The number of rounds that was asked for."""
        require("batch_size", self.batch_size <= records, f"at most the {counted(records, 'record')}", self.batch_size)
        return self.steps

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """The first records of a new permutation for every batch."""
        keys = jax.random.split(key, self.rounds(records))
        orders = jax.vmap(lambda own: jax.random.permutation(own, records))(keys)
        index = orders[:, : self.batch_size].astype(jnp.int32)
        return Batches(index, jnp.ones(index.shape, jnp.float32))

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """A coin with probability ``batch_size`` over the records for every batch; every batch is full."""
        require_one_record(group)
        threshold = probability_to_integer(self.batch_size / records)
        bits = words(key, Stream.PLACE, positions((self.rounds(records),)))
        record = below(bits, threshold).astype(jnp.float32)
        return Attendance(self.batch_size - record, record)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class BallsAndBins(Described):
    """Every record draws one of ``steps`` batches, independently: batch sizes vary. [chua2025]

    Args:
      steps: batches in one epoch, at least 1.

    Raises:
      ValueError: ``steps`` is below 1.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.balls_and_bins(steps=20).rounds(1000)
      20
    """

    steps: Count

    def rounds(self, records: int) -> int:
        """The number of rounds that was asked for."""
        return self.steps

    def _bins(self, key: jax.Array, records: int) -> jax.Array:
        table = place_table(np.full(self.steps, 1 / self.steps).tobytes())
        return jnp.minimum(look_up(words(key, Stream.PLACE, positions((records,))), table), self.steps - 1)

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """Batches, padded to a size that each exceeds with probability below 2^-64."""
        size = int(binom.isf(2.0**-66 / self.steps, records, 1 / self.steps)) if self.steps > 1 else records
        attends = self._bins(key, records)[None, :] == jnp.arange(self.steps)[:, None]
        return members(attends, min(max(size, 1), records))

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """The draws of all records, counted; the last record is the differing one."""
        require_one_record(group)
        bins = self._bins(key, records)
        others = jnp.zeros((self.steps,), jnp.float32).at[bins[:-1]].add(1.0)
        return Attendance(others, (jnp.arange(self.steps) == bins[-1]).astype(jnp.float32))


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffleBuffer(OncePerEpoch):
    """A stream of records through a buffer, as tf.data shuffles: each batch draws from the buffer.

    A record enters once a place is free, and each draw then takes it with probability 1/buffer. A buffer of 1 keeps the
    order, one of all records is a random permutation.

    Args:
      batch_size: records in a batch, at least 1.
      buffer: places in the buffer, at least 1.
      position: the place of the differing record in the stream, which decides when it leaves; by default the last.

    Raises:
      ValueError: ``batch_size`` or ``buffer`` is below 1.

    Examples:
      >>> from mechanisms import sampling
      >>> sampling.shuffle_buffer(batch_size=1, buffer=1, position=0).places(3).tolist()
      [1.0, 0.0, 0.0]
    """

    batch_size: Count
    buffer: Count
    position: int | None = None

    def places(self, records: int) -> np.ndarray:
        """The exact law of the batch in which the record leaves the buffer."""
        rounds = self.rounds(records)
        leaves = leaving_law(min(self.buffer, records), stream_position(self.position, records, records), records)
        return leaves[: rounds * self.batch_size].reshape(rounds, self.batch_size).sum(axis=1)

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """The buffer simulated draw by draw."""
        size = min(self.buffer, records)
        arriving = stream(self.position, records, records)
        coming = jnp.concatenate([arriving[size:], jnp.full((size,), -1, jnp.int32)])
        left = jnp.minimum(size, records - jnp.arange(records))

        def draw(held: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
            own, following, filled = step
            place = jax.random.randint(own, (), 0, filled)
            # once nothing comes, the last one held fills the gap
            new = jnp.where(following >= 0, following, held[filled - 1])
            return held.at[place].set(new), held[place]

        steps = (jax.random.split(key, records), coming, left)
        _, order = jax.lax.scan(draw, arriving[:size], steps)
        return full_batches(order, self.rounds(records), self.batch_size)


poisson = Poisson
truncated_poisson = TruncatedPoisson
shuffle = Shuffle
deterministic = Deterministic
fixed_size = FixedSize
balls_and_bins = BallsAndBins
shuffle_buffer = ShuffleBuffer

SAMPLERS: Mapping[str, Any] = MappingProxyType(
    {
        "poisson": poisson,
        "truncated_poisson": truncated_poisson,
        "shuffle": shuffle,
        "deterministic": deterministic,
        "fixed_size": fixed_size,
        "balls_and_bins": balls_and_bins,
        "shuffle_buffer": shuffle_buffer,
    }
)
"""Samplers by the names that suites use."""


def sampler(given: Sampler | Mapping[str, Any]) -> Sampler:
    """A sampler as it is, or built from a table ``{"kind": "shuffle", "batch_size": 1}`` as suites write it."""
    if isinstance(given, str):
        given = {"kind": given}
    if not isinstance(given, Mapping):
        return given
    table = dict(given)
    kind = table.pop("kind", None)
    require("sampler", kind in SAMPLERS, f"a table whose kind is one of {tuple(SAMPLERS)}", dict(given))
    fields = {field.name: field for field in dataclasses.fields(SAMPLERS[kind])}
    needed = [name for name, field in fields.items() if field.default is field.default_factory is dataclasses.MISSING]
    lacks, unknown = [name for name in needed if name not in table], [name for name in table if name not in fields]
    written = f'sampler = {{ kind = "{kind}", {", ".join(f"{name} = ..." for name in needed)} }}'
    if unknown:
        raise ValueError(f"sampler {kind!r} has no {unknown[0]!r}; it takes {', '.join(fields)}.")
    if lacks:
        raise ValueError(f"sampler {kind!r} needs {' and '.join(lacks)}: {written}.")
    return SAMPLERS[kind](**table)


def is_ours(given: Sampler) -> bool:
    """Whether a sampler is one of this module, whose parameters say all that it does, and not a user's."""
    return type(given) in SAMPLERS.values()


def epoch_keys(key: jax.Array, sampler: Callable[[jax.Array, int], Any], epochs: int) -> jax.Array:
    """One key per epoch for its batches; the same for all epochs if the order is kept."""
    base = jax.random.fold_in(key, 0)
    same = isinstance(sampler, Shuffle) and sampler.same_order
    return jax.vmap(lambda epoch: jax.random.fold_in(base, epoch * (1 - same)))(jnp.arange(epochs))
