"""Pairs of neighbouring datasets, and the constructions that leak most."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Relation = Literal["add_remove", "zero_out", "substitution"]
RELATIONS = ("add_remove", "zero_out", "substitution")
DENSE_LIMIT = 2**28
"""Entries above which a dense array of gradients is refused (1 GiB of float32)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientTable:
    """Per-example gradients, grouped: row g of ``rows`` occurs ``counts[g]`` times.

    ``rows`` holds coordinates in an orthonormal basis of their span, shape (groups, rank); the gradients
    themselves live in ``dimension`` dimensions. With 60,000 equal gradients of 1.5 million coordinates this is
    two numbers. ``basis`` (rank, dimension) is None for the first ``rank`` coordinate axes.
    """

    rows: np.ndarray
    counts: tuple[int, ...]
    dimension: int
    basis: np.ndarray | None = None

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(self.counts)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return self.rows.shape[1]

    def dense(self) -> jax.Array:
        """All gradients as one array of shape (records, dimension)."""
        if self.records * self.dimension > DENSE_LIMIT:
            raise ValueError(
                f"{self.records} gradients of {self.dimension} coordinates are too large for a dense array; "
                "audit this pair with the collapsed simulator: mechanisms.one_round(...).collapsed()."
            )
        rows = jnp.asarray(self.rows, jnp.float32)
        if self.basis is None:
            full = jnp.pad(rows, ((0, 0), (0, self.dimension - self.rank)))
        else:
            full = rows @ jnp.asarray(self.basis, jnp.float32)
        return jnp.repeat(full, np.asarray(self.counts), axis=0, total_repeat_length=self.records)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Two datasets that differ in one record, and how they differ.

    A dataset is whatever the mechanism reads: a GradientTable (handed to ordinary mechanisms as a dense array), an
    array of gradients, images and labels, ...
    """

    without: Any
    with_record: Any
    relation: Relation
    name: str = "given"
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
