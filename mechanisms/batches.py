"""The batches of an epoch, what a sampler must answer, and what samplers share."""

from __future__ import annotations

import functools
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dpsgd_audit.later import jax, jnp
from dpsgd_audit.spelling import counted
from guarantees.checks import require
from mechanisms.contract import Described
from mechanisms.randomness.bits import Stream, positions, words
from mechanisms.randomness.counts import StepTable, look_up, step_table


class Batches(NamedTuple):
    """The batches of one epoch, padded to one size."""

    records: jax.Array
    """Indices of the records, int32, shape (rounds, size)."""
    mask: jax.Array
    """1 for a record, 0 for a dummy, float32, shape (rounds, size)."""


class Attendance(NamedTuple):
    """The batches of one epoch, for an observer to whom all records but one are alike."""

    others: jax.Array
    """Number of other records in each batch, float32, shape (rounds,)."""
    record: jax.Array
    """1 where the differing record is, else 0, shape (rounds,); for a group, how many of it are there."""


@runtime_checkable
class Sampler(Described, Protocol):
    """Draws the batches of an epoch. Pure and traceable by JAX."""

    def rounds(self, records: int) -> int:
        """Batches in an epoch."""
        ...

    def __call__(self, key: jax.Array, records: int) -> Batches:
        """The batches of one epoch."""
        ...

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """Attendance with the law of the batches: alike records are counted; the last ``group`` records differ."""
        ...


@runtime_checkable
class FixedBatches(Sampler, Protocol):
    """Samplers whose batches all have ``batch_size`` records and that meet a record at most once an epoch."""

    batch_size: int

    def places(self, records: int) -> np.ndarray:
        """Probability of each batch to hold the differing record, shape (rounds,); the rest: it was dropped."""
        ...


def require_one_record(group: int) -> None:
    """Refuse a group, for samplers whose law of a group's places is unknown."""
    require("group", group == 1, "1 except for Poisson and deterministic batches (the full simulator takes any)", group)


def full_batches(order: jax.Array, rounds: int, size: int) -> Batches:
    """Consecutive stretches of an order of the records, the remainder dropped."""
    index = order[: rounds * size].reshape(rounds, size).astype(jnp.int32)
    return Batches(index, jnp.ones(index.shape, jnp.float32))


def members(attends: jax.Array, size: int) -> Batches:
    """Indices of the attending records, (rounds, records) booleans, gathered to the front of ``size`` places."""

    def gather(row: jax.Array) -> tuple[jax.Array, jax.Array]:
        (index,) = jnp.nonzero(row, size=size, fill_value=0)
        return index.astype(jnp.int32), (jnp.arange(size) < jnp.sum(row)).astype(jnp.float32)

    return Batches(*jax.vmap(gather)(attends))


def one_place(key: jax.Array, weights: np.ndarray) -> jax.Array:
    """One-hot vector of one place drawn with these weights; all zero with the remaining probability."""
    table = place_table(weights.tobytes())
    place = look_up(words(key, Stream.PLACE, positions(())), table)
    return (jnp.arange(len(weights)) == place).astype(jnp.float32)


@functools.lru_cache(maxsize=64)
def place_table(weights: bytes) -> StepTable:
    """The cumulative weights of the places, as a lookup table."""
    return step_table(np.cumsum(np.frombuffer(weights)))


class OncePerEpoch(Described):
    """Base of samplers of fixed-size batches: the record takes one place, and the others fill the rest."""

    batch_size: int

    def rounds(self, records: int) -> int:
        """Whole batches in an epoch."""
        require("batch_size", self.batch_size <= records, f"at most the {counted(records, 'record')}", self.batch_size)
        return records // self.batch_size

    def places(self, records: int) -> np.ndarray:
        """Probability of each batch, uniform over the places of the epoch."""
        return np.full(self.rounds(records), self.batch_size / records)

    def attendance(self, key: jax.Array, records: int, group: int = 1) -> Attendance:
        """Attendance with one place for the record; every batch is full."""
        require_one_record(group)
        record = one_place(key, self.places(records))
        return Attendance(self.batch_size - record, record)
