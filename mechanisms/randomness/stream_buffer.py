"""A stream of records through a shuffle buffer: where the differing record stands, and when it leaves."""

from __future__ import annotations

import numpy as np

from dpsgd_audit.later import jax, jnp
from guarantees.checks import require


def stream_position(position: int | None, records: int, kept: int) -> int:
    """Where in the stream the differing record stands: as given, or last of those that are kept."""
    if position is None:
        return kept - 1
    require("position", 0 <= position < records, f"in [0, {records})", position)
    return position


def stream(position: int | None, records: int, kept: int) -> jax.Array:
    """All records in order, the last one (the differing one) moved to its place."""
    order = np.arange(records - 1)
    return jnp.asarray(np.insert(order, stream_position(position, records, kept), records - 1), jnp.int32)


def leaving_law(buffer: int, position: int, records: int) -> np.ndarray:
    """Probability of each of the draws 0..records-1 to be the one in which the record at ``position`` leaves a buffer.

    Draw k sees the records up to k + buffer - 1; while the stream lasts each held record leaves with probability
    1/buffer, afterwards with one over what is left.
    """
    first = max(0, position - buffer + 1)
    chance = 1 / np.minimum(buffer, records - np.arange(records))
    chance[:first] = 0.0
    stays = np.concatenate([[1.0], np.cumprod(1 - chance)[:-1]])
    return stays * chance
