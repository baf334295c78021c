"""One round of DP-SGD, as structure and numbers for compiled programs."""

from __future__ import annotations

import dataclasses

import numpy as np

from dpsgd_audit.later import jax, jnp
from mechanisms.contract import Collapsed, StructuredRelease
from mechanisms.pairs.neighbours import GradientTable
from mechanisms.randomness.bits import Stream, Words, words
from mechanisms.randomness.chi_square import MeanSquare, mean_square_law
from mechanisms.randomness.counts import Tables, binomial_tables, joining, poisson_joins
from mechanisms.randomness.noise import normal
from mechanisms.randomness.noise_sums import normal_sums
from mechanisms.structure import next_power, pad_rows, round_up, structured

SMALLEST = 1e-18
"""Floor of a gradient's largest entry: XLA may square it separately, and smaller squares vanish."""
UNROLLED_RECORDS = 16
"""Most records whose sum is unrolled, which XLA fuses with the noise; a matrix product it does not."""


def clip_rows(gradients: jax.Array, clip: float) -> jax.Array:
    """Clip every row, ``g / max(1, |g|_2 / clip)``; the norm is scaled so that large gradients do not overflow."""
    largest = jnp.maximum(jnp.max(jnp.abs(gradients), axis=1, keepdims=True), SMALLEST)
    scaled = gradients / largest
    # at least 1 but for a zero gradient
    length = jnp.maximum(jnp.sqrt(jnp.sum(scaled * scaled, axis=1, keepdims=True)), 1.0)
    return gradients * jnp.minimum(1.0, clip / largest / length)


def batch_sum(batch: jax.Array, gradients: jax.Array) -> jax.Array:
    """Sum of the gradients in the batch."""
    if len(gradients) > UNROLLED_RECORDS:
        # A GPU would otherwise multiply in 10-bit mantissas.
        return jnp.dot(batch, gradients, precision=jax.lax.Precision.HIGHEST)
    total = batch[0] * gradients[0]
    for record in range(1, len(gradients)):
        total = total + batch[record] * gradients[record]
    return total


def add_first(vector: jax.Array, values: jax.Array) -> jax.Array:
    """Add ``values`` to the first coordinates of a vector."""
    if jax.default_backend() == "cpu" or len(values) > UNROLLED_RECORDS:
        return vector + jnp.pad(values, (0, len(vector) - len(values)))
    # A GPU would write the padded vector and read it again.
    place = jnp.arange(len(vector))
    for at in range(len(values)):
        vector = vector + jnp.where(place == at, values[at], 0.0)
    return vector


@structured(numbers=("gradients", "clip", "joins", "deviation", "shrink"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DenseRound(StructuredRelease):
    """A round on an array of gradients (records, dimension)."""

    gradients: jax.Array
    clip: float
    joins: Words | None
    """Threshold of 64 bits below which a record joins the batch; None if all do."""
    deviation: float
    shrink: float | None
    """One over the divisor; None if the size of the batch divides."""

    def __call__(self, key: jax.Array) -> jax.Array:
        """The update for one key."""
        records, dimension = self.gradients.shape
        batch = poisson_joins(key, records, self.joins)
        total = batch_sum(batch, clip_rows(self.gradients, self.clip))
        return (total + self.deviation * normal(key, (dimension,))) * shrunk(self.shrink, jnp.sum(batch))


@structured(
    numbers=("rows", "starts", "ends", "records", "joins", "deviation", "shrink"), structure=("places", "dimension")
)
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TableRound(StructuredRelease):
    """A round on gradients along the first axes, which reads nothing of the full dimension."""

    rows: np.ndarray
    """Clipped gradient of every group, shape (groups, rank); padded with zeros."""
    starts: np.ndarray | None
    """Index of each group's first record; None if every record is a group."""
    ends: np.ndarray | None
    records: int
    joins: Words | None
    deviation: float
    shrink: float | None
    places: int
    """Number of records, padded."""
    dimension: int

    def __call__(self, key: jax.Array) -> jax.Array:
        """The update for one key."""
        total, size = self._summed(key)
        noisy = add_first(self.deviation * normal(key, (self.dimension,)), total)
        return noisy * shrunk(self.shrink, size)

    def sums(self, span: int) -> bool:
        """Whether the gradients end within the first ``span`` coordinates, and there are others."""
        return self.rows.shape[1] <= span < self.dimension

    def summary(self, key: jax.Array, span: int) -> Collapsed:
        """The update's first ``span`` coordinates and the mean square of the others, from the same noise."""
        total, size = self._summed(key)
        noise = normal_sums(key, self.dimension, span)
        scale = shrunk(self.shrink, size)
        along = jnp.pad(total, (0, span - len(total))) + self.deviation * noise.first
        rest = 1.0 + noise.excess / (self.dimension - span)
        return Collapsed(along * scale, rest * (self.deviation * scale) ** 2)

    def _summed(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sum of the batch's gradients along the first axes, and the batch's size."""
        # a record's draw depends on the key and its place alone: those beyond the last one change nothing
        present = jnp.arange(self.places) < self.records
        batch = poisson_joins(key, self.places, self.joins) * present
        return batch_sum(self._joined(batch), jnp.asarray(self.rows)), jnp.sum(batch)

    def _joined(self, batch: jax.Array) -> jax.Array:
        """Number of records of each group in the batch."""
        if self.starts is None or self.ends is None:
            return batch
        if len(self.rows) > UNROLLED_RECORDS:
            summed = jnp.concatenate([jnp.zeros(1, jnp.float32), jnp.cumsum(batch)])
            return summed[self.ends] - summed[self.starts]
        place = jnp.arange(self.places)
        inside = [(place >= self.starts[g]) & (place < self.ends[g]) for g in range(len(self.rows))]
        return jnp.stack([jnp.sum(jnp.where(own, batch, 0.0)) for own in inside])


def table_round(
    table: GradientTable, *, clip: float, rate: float, deviation: float, divisor: float | None
) -> TableRound:
    """A round on a table, with gradients clipped and groups counted on the host and padded to a few sizes."""
    places = round_up(table.records)
    rows = clipped_rows(table.rows, clip)
    alone = len(table.counts) == table.records
    groups = places if alone else next_power(len(rows), least=2)
    if not alone and groups > UNROLLED_RECORDS:
        groups = round_up(len(rows))
    ends = np.cumsum(table.counts).astype(np.int32)
    padded = np.pad(ends, (0, groups - len(ends)), mode="edge")
    return TableRound(
        rows=pad_rows(rows, groups).astype(np.float32),
        starts=None if alone else np.concatenate([[0], padded[:-1]]).astype(np.int32),
        ends=None if alone else padded,
        records=table.records,
        joins=joining(rate),
        deviation=deviation,
        shrink=inverse(divisor),
        places=places,
        dimension=table.dimension,
    )


@structured(numbers=("rows", "tables", "deviation", "shrink", "rest"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CollapsedTable(StructuredRelease):
    """A round by sufficient statistics: a count for every group, one chi-square number for the rest."""

    rows: np.ndarray
    """Clipped gradient of every group, shape (groups, rank); padded with zeros."""
    tables: Tables
    """Laws of the number of records of each group in the batch."""
    deviation: float
    shrink: float | None
    """One over the divisor; None if the size of the batch divides."""
    rest: MeanSquare | None

    def __call__(self, key: jax.Array) -> Collapsed:
        """The statistics for one key."""
        # the counter of a group's draw is its place
        drawn = self.tables.look_up(words(key, Stream.BATCH, jnp.arange(len(self.rows), dtype=jnp.uint32)))
        counts = drawn.astype(jnp.float32)
        total = jnp.sum(counts[:, None] * self.rows, axis=0)
        along = total + self.deviation * normal(key, (self.rows.shape[1],))
        rest = jnp.float32(0.0) if self.rest is None else self.rest(key)
        scale = shrunk(self.shrink, jnp.sum(counts))
        return Collapsed(along * scale, rest if self.shrink is not None else rest * scale**2)


def collapsed_table(
    table: GradientTable, *, clip: float, rate: float, deviation: float, divisor: float | None
) -> CollapsedTable:
    """The statistics of a round on a table, with gradients clipped and laws of counts tabulated on the host."""
    groups = next_power(len(table.rows), least=2)
    degrees = table.dimension - table.rank
    variance = (deviation if divisor is None else deviation / divisor) ** 2
    return CollapsedTable(
        rows=pad_rows(clipped_rows(table.rows, clip), groups).astype(np.float32),
        tables=binomial_tables(np.asarray(table.counts), rate, draws=groups),
        deviation=deviation,
        shrink=inverse(divisor),
        rest=mean_square_law(degrees, scale=variance) if degrees else None,
    )


def inverse(divisor: float | None) -> float | None:
    """One over the divisor; None if it depends on the batch."""
    return None if divisor is None else 1 / divisor


def shrunk(shrink: float | None, size: jax.Array) -> jax.Array | float:
    """Factor on the noisy sum."""
    return 1 / jnp.maximum(size, 1.0) if shrink is None else shrink


def clipped_rows(rows: np.ndarray, clip: float) -> np.ndarray:
    """Clip rows on the host: coordinates in an orthonormal basis have the norms of the gradients."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(1.0, lengths / clip)
