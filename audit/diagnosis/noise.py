"""Outputs, split into what the gradients can move and what carries noise alone."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from distinguishers.directions import span_of
from guarantees.checks import require
from mechanisms.neighbours import Neighbours

MOST_COORDINATES = 2**18
"""Noise coordinates that are looked at; more would tell little more."""
Array = np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """Outputs of one side, split into what the gradients can move and what they cannot."""

    along: Array
    """Coordinate along the differing record's gradient, shape (trials,)."""
    rest: Array
    """Coordinates that carry noise alone, shape (trials, coordinates)."""

    @functools.cached_property
    def sizes(self) -> Array:
        """Root mean square of every trial's noise."""
        return np.sqrt(np.mean(self.rest**2, axis=1))

    @functools.cached_property
    def standard(self) -> Array:
        """Every trial's noise over its own root mean square: free of the divisor, a point on a sphere."""
        return self.rest / np.where(self.sizes > 0, self.sizes, 1.0)[:, None]


def read_noise(outputs: Array, neighbours: Neighbours) -> Noise:
    """Split full outputs (trials, dimension).

    Coordinates that no gradient touches are taken as they are; where gradients touch most of them, reflections turn
    the span onto the first axes and the others remain: orthonormal, so independent normals stay so.
    """
    values = np.asarray(outputs)
    frame, direction = span_of(neighbours)
    require("outputs", values.ndim == 2, "of shape (trials, coordinates)", values.shape)
    require("outputs", values.shape[1] == frame.dimension, f"of {frame.dimension} coordinates", values.shape)
    require("outputs", frame.dimension - frame.rank >= 2, "of two coordinates or more outside the span", frame.rank)
    require("outputs", bool(np.isfinite(values).all()), "finite", "NaN or infinity")
    last = frame.rank + MOST_COORDINATES
    if frame.basis is None:
        along = values[:, : frame.rank].astype(float) @ direction
        return Noise(along=along, rest=values[:, frame.rank : last].astype(float))
    basis = np.asarray(frame.basis, float)
    along = values @ (direction @ basis)
    untouched = np.flatnonzero(np.abs(basis).max(axis=0) == 0)
    if 2 * len(untouched) >= frame.dimension - frame.rank:
        return Noise(along=along, rest=values[:, untouched[:MOST_COORDINATES]].astype(float))
    return Noise(along=along, rest=_reflected(values.astype(float), basis)[:, frame.rank : last])


def _reflected(values: Array, basis: Array) -> Array:
    """Values after the Householder reflections that bring the rows of ``basis`` onto the first axes."""
    rows = basis.copy()
    for k in range(len(rows)):
        mirror = rows[k].copy()
        mirror[:k] = 0.0
        mirror[k] += np.copysign(np.linalg.norm(mirror), mirror[k])
        mirror /= np.linalg.norm(mirror)
        rows -= 2 * np.outer(rows @ mirror, mirror)
        values = values - 2 * np.outer(values @ mirror, mirror)
    return values
