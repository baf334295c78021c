"""Values that repeat from trial to trial: coordinates of few values, and on which side each value occurred."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from mechanisms.structure import structured

COORDINATES = 16
"""Number of coordinates that are used: those with most repetitions."""
SEARCHED = 4096
"""Coordinates that are searched for repetitions."""
VALUES = 128
"""Most values of a coordinate that are kept, the most frequent ones."""


@structured(numbers=("coordinates", "values", "evidence"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Repetition:
    """For each of a few coordinates, values that repeated in the fit trials and ln of how much oftener with the record.

    An output gets the sum of these logarithms, the largest and the smallest of them, and the share of its values that
    were never seen.
    """

    coordinates: np.ndarray
    values: np.ndarray
    """Sorted values, shape (coordinates, values), padded with infinity."""
    evidence: np.ndarray

    def __call__(self, row: jax.Array) -> jax.Array:
        """The four features of an output, shape (4,)."""
        seen = row[self.coordinates]
        values = jnp.asarray(self.values, jnp.float32)
        known = values == seen[:, None]
        evidence = jnp.sum(jnp.where(known, jnp.asarray(self.evidence, jnp.float32), 0.0), axis=1)
        return jnp.stack([evidence.sum(), evidence.max(), evidence.min(), 1.0 - jnp.mean(known.any(axis=1))])


def find_repetition(first: np.ndarray, second: np.ndarray) -> Repetition | None:
    """Tables of repeated values, if values repeat more often than float32 noise makes them; otherwise None."""
    searched = np.unique(np.linspace(0, first.shape[1] - 1, SEARCHED).astype(int))
    both = np.concatenate([first[:, searched], second[:, searched]])
    ordered = np.sort(both, axis=0)
    repeats = (ordered[1:] == ordered[:-1]).sum(axis=0)
    order = np.argsort(-repeats, kind="stable")[:COORDINATES]
    chosen = np.sort(order[repeats[order] > 5 + len(both) // 200])
    if not len(chosen):
        return None
    values = np.full((len(chosen), VALUES), np.inf, np.float32)
    evidence = np.zeros((len(chosen), VALUES), np.float32)
    for place, column in enumerate(chosen):
        found, counts = np.unique(both[:, column], return_counts=True)
        found = np.sort(found[np.argsort(-counts, kind="stable")[:VALUES]])
        zero, one = (_count(side[:, searched[column]], found) + 0.5 for side in (first, second))
        values[place, : len(found)] = found
        evidence[place, : len(found)] = np.log(one / zero) - np.log(len(second) / len(first))
    return Repetition(coordinates=searched[chosen], values=values, evidence=evidence)


def _count(column: np.ndarray, values: np.ndarray) -> np.ndarray:
    """How often each value occurs in a column."""
    ordered = np.sort(column)
    return np.searchsorted(ordered, values, side="right") - np.searchsorted(ordered, values, side="left")
