"""An output as one row of coordinates: its own, and differences in which noise that is used twice cancels."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechanisms.release import Layout

LONGEST = 2**16
"""Number of coordinates above which no differences are added."""
PAIRS = 8
"""Most pairs of neighbouring tensors that are compared."""
GROUPS = 12
"""Most tensors and rounds whose sizes are features; the last group combines the rest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """Coordinates of an output round by round, then differences of consecutive rounds and of neighbouring tensors.

    A generator that is seeded again for every round or tensor gives both the same noise, which cancels in the
    difference.
    """

    layout: Layout

    @property
    def own(self) -> int:
        """Number of coordinates of the output itself, which come first."""
        return self.layout.entries

    @property
    def rounds(self) -> int:
        """Number of rounds of the output; 1 if it is no transcript."""
        return self.layout.rounds or 1

    @property
    def groups(self) -> tuple[tuple[str, slice], ...]:
        """Tensors of the first round, and whole rounds, as slices of the output's own coordinates."""
        size = self.layout.size
        tensors = list(zip(self.layout.names, self.layout.slices, strict=True))
        rounds = [(f"round {i}", slice(i * size, (i + 1) * size)) for i in range(self.rounds)]
        return tuple(group for parts in (tensors, rounds) if len(parts) > 1 for group in _few(parts))

    @property
    def shares(self) -> np.ndarray:
        """Weights that average over each group, shape (groups, own coordinates)."""
        found = np.zeros((len(self.groups), self.own), np.float32)
        for row, (_, part) in zip(found, self.groups, strict=True):
            row[part] = 1 / (part.stop - part.start)
        return found

    def rows(self, outputs: Any) -> np.ndarray:
        """Many outputs on the host, (trials, coordinates)."""
        parts = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(outputs)]
        flat = np.concatenate([part.reshape(len(part), self.rounds, -1) for part in parts], axis=-1)
        return np.concatenate(self._parts(flat), axis=-1)

    def __call__(self, output: Any) -> jax.Array:
        """One output under JAX, (coordinates,)."""
        parts = [jnp.asarray(leaf, jnp.float32).reshape(self.rounds, -1) for leaf in jax.tree.leaves(output)]
        return jnp.concatenate(self._parts(jnp.concatenate(parts, axis=-1)), axis=-1)

    def _parts(self, flat: Any) -> list[Any]:
        """Parts of outputs (..., rounds, size), with NumPy or JAX."""

        def row(part: Any) -> Any:
            return part.reshape(*flat.shape[:-2], -1)

        found = [row(flat)]
        if self.own > LONGEST:
            return found
        if self.rounds > 1:
            found.append(row(flat[..., 1:, :] - flat[..., :-1, :]))
        slices = self.layout.slices[: PAIRS + 1]
        for one, other in itertools.pairwise(slices):
            size = min(one.stop - one.start, other.stop - other.start)
            found.append(row(flat[..., one.start : one.start + size] - flat[..., other.start : other.start + size]))
        return found


def _few(parts: list[tuple[str, slice]]) -> list[tuple[str, slice]]:
    """The nonempty parts, with those beyond the last group combined."""
    full = [part for part in parts if part[1].stop > part[1].start]
    if len(full) <= GROUPS:
        return full
    return [*full[: GROUPS - 1], ("others", slice(full[GROUPS - 1][1].start, full[-1][1].stop))]
