"""Outputs, split into what the gradients can move and what carries noise alone."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy.linalg import get_lapack_funcs

from audit.diagnosis.signal import Signal, read_signal
from guarantees.checks import require
from mechanisms.pairs.neighbours import Neighbours

MOST_COORDINATES = 2**18
"""Noise coordinates that are looked at; more would tell little more."""
Array = np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """Outputs of one side, split into what the gradients can move and what they cannot."""

    outputs: Array
    """As they were drawn, (trials, coordinates)."""
    along: Array
    """Coordinate along the differing record's clipped gradient, shape (trials,)."""
    beside: Array
    """Coordinates outside the span of the gradients, shape (trials, coordinates)."""
    rest: Array
    """Outside the span of every tensor's part of them too: what a tensor clipped by itself cannot reach."""
    rotated: bool
    """Whether the rest are mixtures of coordinates, which are independent only where the noise is normal."""

    @functools.cached_property
    def centred(self) -> Array:
        """The noise without its mean: a constant says nothing about what is shared or repeated."""
        return self.rest - self.rest.mean(axis=0)

    @functools.cached_property
    def sizes(self) -> Array:
        """Root mean square of every trial's noise."""
        return np.sqrt(np.mean(self.centred**2, axis=1))

    @functools.cached_property
    def standard(self) -> Array:
        """Every trial's noise over its own root mean square: free of the divisor, a point on a sphere."""
        return self.centred / np.where(self.sizes > 0, self.sizes, 1.0)[:, None]

    @property
    def variance(self) -> float:
        """Of one coordinate of the noise."""
        return float(np.mean(self.sizes**2)) * len(self.sizes) / (len(self.sizes) - 1)


def read_noise(outputs: Array, neighbours: Neighbours, signal: Signal | None = None) -> Noise:
    """Split full outputs (trials, dimension).

    Coordinates that no gradient touches are taken as they are; where gradients touch most of them, reflections turn
    the span onto the first axes and the others remain: orthonormal, so independent normals stay so.
    """
    values, signal = np.asarray(outputs), signal or read_signal(neighbours)
    size = signal.dimension
    require("outputs", values.ndim == 2, "of shape (trials, coordinates)", values.shape)
    require("outputs", values.shape[1] == size, f"of {size} coordinates", values.shape)
    require("outputs", size - len(signal.parts) >= 2, "of two coordinates or more outside the span", len(signal.parts))
    require("outputs", bool(np.isfinite(values).all()), "finite", "NaN or infinity")
    beside = _outside(values, signal.basis)
    rest = beside if signal.parts is signal.basis else _outside(values, signal.parts)
    rotated = _untouched(signal.parts) is None
    return Noise(outputs=values, along=values @ signal.direction, beside=beside, rest=rest, rotated=rotated)


def _outside(values: Array, basis: Array) -> Array:
    rank, untouched = len(basis), _untouched(basis)
    if untouched is not None:
        return values[:, untouched[:MOST_COORDINATES]].astype(float)
    return _reflected(values.astype(float), basis)[:, rank : rank + MOST_COORDINATES]


def _untouched(basis: Array) -> Array | None:
    """Coordinates that the span leaves alone, where they are most of those outside it."""
    rank, size = basis.shape
    found = np.flatnonzero(np.abs(basis).max(axis=0, initial=0.0) == 0)
    return found if 2 * len(found) >= size - rank else None


def _reflected(values: Array, basis: Array) -> Array:
    """Values after the Householder reflections that bring the rows of ``basis`` onto the first axes."""
    factor, multiply = get_lapack_funcs(("geqrf", "ormqr"), (basis,))
    mirrors, factors, _, _ = factor(basis.T)
    columns = np.asfortranarray(values.T)
    _, work, _ = multiply("L", "T", mirrors, factors, columns, -1)
    turned, _, _ = multiply("L", "T", mirrors, factors, columns, int(work[0]))
    return turned.T
