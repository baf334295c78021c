"""Scores counted into the cells of a grid, on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp

NONE_BROKEN = 2**31 - 1
"""The place of the first score that is not finite, where all are."""


def count_cells(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """How many wanted scores (trials, members) fall in each cell; a score on an edge counts below it."""
    return jax.lax.platform_dependent(scores, wanted, edges, cpu=_count_by_scatter, default=_count_by_product)


def _count_by_scatter(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    members, cells = edges.shape[0], edges.shape[1] + 1
    cell = jax.vmap(lambda row, own: jnp.searchsorted(row, own, side="left"))(edges, scores.T)
    flat = cell + cells * jnp.arange(members)[:, None]
    weights = jnp.broadcast_to(wanted.astype(jnp.int32), flat.shape)
    counts = jnp.zeros(members * cells, jnp.int32).at[flat.ravel()].add(weights.ravel())
    return counts.reshape(members, cells)


def _count_by_product(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """A million additions to 200 cells collide on a GPU: one matrix product of two one-hot digits counts instead.

    Member by member: XLA for GPUs compiles a search and a product over several members at once for minutes. Exact: a
    chunk has fewer than 2^24 trials, and float32 counts that far.
    """
    return jnp.stack([_count_one(own, wanted, row) for own, row in zip(scores.T, edges, strict=True)])


def _count_one(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    cells = len(edges) + 1
    base = int(cells**0.5) + 1
    cell = jnp.searchsorted(edges, scores, side="left", method="scan_unrolled")
    digit = jnp.arange(base)[None]
    high = ((cell // base)[:, None] == digit) & wanted[:, None]
    low = (cell % base)[:, None] == digit
    digits = (high.astype(jnp.bfloat16), low.astype(jnp.bfloat16))
    counts = jnp.einsum("ti,tj->ij", *digits, preferred_element_type=jnp.float32)
    return counts.ravel()[:cells].astype(jnp.int32)
