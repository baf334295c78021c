"""Count scores into the cells of a grid, on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp

NONE_BROKEN = 2**31 - 1
"""Stands for the place of the first score that is not finite, where all are finite."""
APART = 1024
"""Number of tables that an accelerator fills in parallel."""


def count_cells(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """Count how many wanted scores (trials, members) fall in each cell; a score on an edge counts below it."""
    if jax.default_backend() == "cpu":
        # avoids tracing the other branch; elsewhere this one would be slower, not wrong
        return _count_together(scores, wanted, edges)
    return jax.lax.platform_dependent(scores, wanted, edges, cpu=_count_together, default=_count_apart)


def _count_together(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """Count all members with one scatter-add, as is fastest on a CPU."""
    members, cells = edges.shape[0], edges.shape[1] + 1
    cell = jax.vmap(lambda member_edges, member_scores: jnp.searchsorted(member_edges, member_scores, side="left"))(
        edges, scores.T
    )
    flat = cell + cells * jnp.arange(members)[:, None]
    weights = jnp.broadcast_to(wanted.astype(jnp.int32), flat.shape)
    counts = jnp.zeros(members * cells, jnp.int32).at[flat.ravel()].add(weights.ravel())
    return counts.reshape(members, cells)


def _count_apart(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """Count member by member into many tables and sum them: on a GPU a million additions to 200 cells collide.

    XLA for GPUs compiles a search over several members at once for minutes.
    """
    return jnp.stack(
        [
            _count_member(member_scores, wanted, member_edges)
            for member_scores, member_edges in zip(scores.T, edges, strict=True)
        ]
    )


def _count_member(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """Counts of one member."""
    cell = jnp.searchsorted(edges, scores, side="left", method="scan_unrolled")
    table = jnp.arange(len(scores)) % APART
    counts = jnp.zeros((APART, len(edges) + 1), jnp.int32).at[table, cell].add(wanted.astype(jnp.int32))
    return jnp.sum(counts, axis=0)
