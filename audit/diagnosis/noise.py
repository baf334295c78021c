"""Outputs, split into what the gradients can move and what carries noise alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from scipy.linalg import get_lapack_funcs

from audit.diagnosis.signal import Signal, read_signal
from guarantees.checks import require
from mechanisms.pairs.neighbours import Neighbours

MOST_COORDINATES = 2**18
"""Noise coordinates that are looked at; more would tell little more."""
LEAST = 1e-2
"""Of the mean variance: a coordinate is given no less at a time."""
MOST_TIMES = 5
ALIKE = 0.1
"""Of the mean variance, by which coordinates of one scale differ at most."""
PRECISE = 1e-4
"""Of the variances, beside which their errors are large."""
MOST_STEPS = 100
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
    return _split(values, signal)


def _split(values: Array, signal: Signal) -> Noise:
    beside = _outside(values, signal.basis)
    rest = beside if signal.parts is signal.basis else _outside(values, signal.parts)
    rotated = _untouched(signal.parts) is None
    return Noise(outputs=values, along=values @ signal.direction, beside=beside, rest=rest, rotated=rotated)


def on_one_scale(sides: tuple[Noise, Noise], signal: Signal) -> tuple[Noise, Noise]:
    """Outputs whose coordinates have noise of one scale, split again.

    Where a span is turned out, independent noise of different scales leaves coordinates that are correlated; of one
    scale it does not. Coordinates that are taken as they are stay as they are.
    """
    if not sides[0].rotated:
        return sides
    scale = np.sqrt(variances([side.outputs for side in sides], signal.parts))
    basis = scaled_span(signal.basis, scale)
    parts = basis if signal.parts is signal.basis else scaled_span(signal.parts, scale)
    even = dataclasses.replace(signal, basis=basis, parts=parts)
    return _split(sides[0].outputs / scale, even), _split(sides[1].outputs / scale, even)


def scaled_span(basis: Array, scale: Array) -> Array:
    """The same span where every coordinate is divided by its scale."""
    return np.linalg.qr((basis / scale).T)[0].T


def variances(outputs: Sequence[Array], basis: Array) -> Array:
    """Of the noise of every coordinate, whatever moves the span: those that explain the covariance outside it best.

    With ``M`` the projection that turns the span out and ``v`` the variances of what it leaves, least squares of
    ``M (S - diag d) M`` says ``sum_j M_ij^2 d_j = v_i``; again with every coordinate over the deviation found, until
    these are alike. What that leaves open stays at the mean.
    """
    degrees = sum(map(len, outputs)) - len(outputs)
    centred = [side - side.mean(axis=0, dtype=np.float64) for side in outputs]
    found = np.ones(basis.shape[1])
    for _ in range(MOST_TIMES):
        scale = np.sqrt(found)
        span = scaled_span(basis, scale)
        left = np.sum([np.sum(outside(rows / scale, span) ** 2, axis=0) for rows in centred], axis=0) / degrees
        usual = float(left.sum()) / (len(left) - len(span)) or 1.0
        again = np.maximum(seen_outside(left, span, start=usual), LEAST * usual)
        found = found * again
        if np.ptp(again) < ALIKE * usual:
            break
    return found


def outside(rows: Array, basis: Array) -> Array:
    """What is left of rows, in their own coordinates, where the span is turned out."""
    return rows - (rows @ basis.T) @ basis


def seen_outside(left: Array, basis: Array, *, start: float) -> Array:
    """The d of ``sum_j M_ij^2 d_j = left_i`` that is nearest to ``start``, by conjugate gradients."""
    from scipy.sparse.linalg import LinearOperator, cg

    of_all = LinearOperator((len(left), len(left)), matvec=lambda d: squared_outside(d, basis), dtype=float)
    return np.asarray(cg(of_all, left, x0=np.full(len(left), start), rtol=PRECISE, maxiter=MOST_STEPS)[0])


def squared_outside(d: Array, basis: Array) -> Array:
    """``sum_j M_ij^2 d_j``, with M the projection that turns the span out."""
    mixed = np.einsum("ki,kl,li->i", basis, (basis * d) @ basis.T, basis, optimize=True)
    return (1 - 2 * np.sum(basis**2, axis=0)) * d + mixed


def _outside(values: Array, basis: Array) -> Array:
    rank, untouched = len(basis), _untouched(basis)
    if untouched is not None:
        return values[:, untouched[:MOST_COORDINATES]].astype(float)
    return _reflected(values.astype(float), basis)[:, rank : rank + MOST_COORDINATES]


def alone(without: Noise, with_record: Noise, signal: Signal, *, whole: bool) -> Array | None:
    """The noise of both sides in the release's own coordinates, zero where batches move it; None where all are moved.

    Where the ``whole`` dataset is every batch they move none.
    """
    if without.rotated and not whole:
        return None
    noise = np.concatenate([side.outputs - side.outputs.mean(axis=0) for side in (without, with_record)])
    return noise if whole else noise * (np.abs(signal.parts).max(axis=0, initial=0.0) == 0)


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
