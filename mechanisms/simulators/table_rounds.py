"""Many rounds on gradients along the first axes, which read nothing of the full dimension and keep it only if
needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsgd_audit.later import jax, jnp
from mechanisms.contract import Collapsed, StructuredRelease
from mechanisms.pairs.neighbours import GradientTable
from mechanisms.randomness.noise import normal
from mechanisms.randomness.noise_sums import normal_sums
from mechanisms.sampling import Sampler, epoch_keys
from mechanisms.simulators.rounds import add_first, clipped_rows
from mechanisms.structure import structured


@structured(
    numbers=("rows", "deviation"),
    structure=("sampler", "epochs", "isolated", "final", "group", "counts", "dimension"),
)
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TableRounds(StructuredRelease):
    """The release of ``many_rounds`` on a table, from the same noise; the query is each record's row."""

    rows: np.ndarray
    """Clipped gradient of every group, shape (groups, rank)."""
    deviation: float
    sampler: Sampler
    epochs: int
    isolated: bool
    """Whether the other records' gradients are subtracted."""
    final: bool
    """Whether only the sum of all rounds is released."""
    group: int
    counts: tuple[int, ...]
    dimension: int

    def __call__(self, key: jax.Array) -> jax.Array:
        """The transcript (rounds, dimension), or its sum."""

        def released(number: jax.Array, total: jax.Array) -> jax.Array:
            noise = normal(jax.random.fold_in(key, number + 1), (self.dimension,))
            return add_first(self.deviation * noise, total)

        if not self.final:
            return self._by_rounds(key, released)
        numbers, totals = self._totals(key)

        def add(history: jax.Array, each: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return history + released(*each), None

        return jax.lax.scan(add, jnp.zeros(self.dimension, jnp.float32), (numbers, totals))[0]

    def sums(self, span: int) -> bool:
        """Whether the gradients end within the first ``span`` coordinates of every round, and there are others."""
        return not self.final and self.rows.shape[1] <= span < self.dimension

    def summary(self, key: jax.Array, span: int) -> Collapsed:
        """First ``span`` coordinates of every round, and mean square of the others; no round is kept as a vector."""

        def released(number: jax.Array, total: jax.Array) -> Collapsed:
            noise = normal_sums(jax.random.fold_in(key, number + 1), self.dimension, span)
            rest = 1.0 + noise.excess / (self.dimension - span)
            along = jnp.pad(total, (0, span - len(total))) + self.deviation * noise.first
            return Collapsed(along, rest * self.deviation**2)

        return self._by_rounds(key, released)

    def _by_rounds(self, key: jax.Array, released: Callable[[jax.Array, jax.Array], Any]) -> Any:
        """Apply a function to every round."""
        return jax.lax.map(lambda each: released(*each), self._totals(key))

    def _totals(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Numbers of the rounds, and the sums of their batches along the first axes, shape (rounds, rank)."""
        records = sum(self.counts)
        keys = epoch_keys(key, self.sampler, self.epochs)
        batches = jax.vmap(lambda own: self.sampler(own, records))(keys)
        index, mask = (part.reshape(-1, part.shape[-1]) for part in batches)
        if self.isolated:
            mask = mask * (index >= records - self.group)
        ends = np.cumsum(self.counts)
        group_of = jnp.asarray(np.searchsorted(ends, np.arange(records), side="right"), jnp.int32)
        rows = jnp.asarray(self.rows, jnp.float32)[group_of]

        def total(batch: tuple[jax.Array, jax.Array]) -> jax.Array:
            own, present = batch
            return jnp.dot(present, rows[own], precision=jax.lax.Precision.HIGHEST)

        return jnp.arange(len(index)), jax.lax.map(total, (index, mask))


def table_rounds(
    table: GradientTable,
    *,
    sampler: Sampler,
    clip: float,
    deviation: float,
    epochs: int,
    isolated: bool,
    final: bool,
    group: int,
) -> TableRounds:
    """The rounds on a table, with gradients clipped on the host."""
    return TableRounds(
        rows=clipped_rows(table.rows, clip).astype(np.float32),
        deviation=deviation,
        sampler=sampler,
        epochs=epochs,
        isolated=isolated,
        final=final,
        group=group,
        counts=tuple(int(count) for count in table.counts),
        dimension=table.dimension,
    )
