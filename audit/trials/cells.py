"""Scores counted into the cells of a grid, on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp

NONE_BROKEN = 2**31 - 1
"""The place of the first score that is not finite, where all are."""
APART = 1024
"""Tables of counts that an accelerator fills side by side."""


def count_cells(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """How many wanted scores (trials, members) fall in each cell; a score on an edge counts below it."""
    if jax.default_backend() == "cpu":
        # nothing else is then traced; on another device it would be slower and as right
        return _count_together(scores, wanted, edges)
    return jax.lax.platform_dependent(scores, wanted, edges, cpu=_count_together, default=_count_apart)


def _count_together(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    members, cells = edges.shape[0], edges.shape[1] + 1
    cell = jax.vmap(lambda row, own: jnp.searchsorted(row, own, side="left"))(edges, scores.T)
    flat = cell + cells * jnp.arange(members)[:, None]
    weights = jnp.broadcast_to(wanted.astype(jnp.int32), flat.shape)
    counts = jnp.zeros(members * cells, jnp.int32).at[flat.ravel()].add(weights.ravel())
    return counts.reshape(members, cells)


def _count_apart(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """A million additions to 200 cells collide on a GPU: every trial adds to one of many tables, which are then summed.

    Member by member: XLA for GPUs compiles a search over several members at once for minutes.
    """
    return jnp.stack([_count_one(own, wanted, row) for own, row in zip(scores.T, edges, strict=True)])


def _count_one(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    cell = jnp.searchsorted(edges, scores, side="left", method="scan_unrolled")
    table = jnp.arange(len(scores)) % APART
    counts = jnp.zeros((APART, len(edges) + 1), jnp.int32).at[table, cell].add(wanted.astype(jnp.int32))
    return jnp.sum(counts, axis=0)
