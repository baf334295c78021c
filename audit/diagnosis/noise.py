"""Split outputs into what the gradients can move and what carries noise alone."""

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
"""Most noise coordinates that are examined; more would add little."""
LEAST = 1e-2
"""Smallest variance that one iteration gives a coordinate, as a share of the mean."""
MOST_TIMES = 5
"""Most iterations of the estimate of variances."""
ALIKE = 0.1
"""Largest difference, as a share of the mean variance, between coordinates of one scale."""
PRECISE = 1e-4
"""Relative tolerance of the variances, far below their standard errors."""
MOST_STEPS = 100
"""Most steps of conjugate gradients."""
Array = np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """Outputs of one side, split into what the gradients can move and what they cannot."""

    outputs: Array
    """As drawn, shape (trials, coordinates)."""
    along: Array
    """Component along the differing record's clipped gradient, shape (trials,)."""
    beside: Array
    """Coordinates outside the span of the gradients, shape (trials, coordinates)."""
    rest: Array
    """Coordinates outside the span of every tensor's part of the gradients too, which clipping by tensor cannot
    reach."""
    rotated: bool
    """Whether ``rest`` holds mixtures of coordinates, independent only if the noise is normal."""

    @functools.cached_property
    def centred(self) -> Array:
        """``rest`` without its mean over the trials, which says nothing about what is shared or repeated."""
        return self.rest - self.rest.mean(axis=0)

    @functools.cached_property
    def sizes(self) -> Array:
        """Root mean square of every trial's noise."""
        return np.sqrt(np.mean(self.centred**2, axis=1))

    @functools.cached_property
    def standard(self) -> Array:
        """Every trial's noise over its own root mean square: a point on a sphere, free of the divisor."""
        return self.centred / np.where(self.sizes > 0, self.sizes, 1.0)[:, None]

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate."""
        return float(np.mean(self.sizes**2)) * len(self.sizes) / (len(self.sizes) - 1)


def read_noise(outputs: Array, neighbours: Neighbours, signal: Signal | None = None) -> Noise:
    """Split outputs of shape (trials, dimension) into what gradients can move and what they cannot.

    Coordinates that no gradient touches are taken as they are. Where gradients touch most of them, reflections turn the
    span onto the first axes and the remaining ones are taken: orthonormal, so that independent normals stay
    independent.
    """
    values, signal = np.asarray(outputs), signal or read_signal(neighbours)
    size = signal.dimension
    require("outputs", values.ndim == 2, "of shape (trials, coordinates)", values.shape)
    require("outputs", values.shape[1] == size, f"of {size} coordinates", values.shape)
    require("outputs", size - len(signal.parts) >= 2, "of two coordinates or more outside the span", len(signal.parts))
    require("outputs", bool(np.isfinite(values).all()), "finite", "NaN or infinity")
    return _split(values, signal)


def _split(values: Array, signal: Signal) -> Noise:
    """Split outputs whose shape fits the signal."""
    beside = _coordinates_outside(values, signal.basis)
    rest = beside if signal.parts is signal.basis else _coordinates_outside(values, signal.parts)
    rotated = _untouched(signal.parts) is None
    return Noise(outputs=values, along=values @ signal.direction, beside=beside, rest=rest, rotated=rotated)


def on_one_scale(sides: tuple[Noise, Noise], signal: Signal) -> tuple[Noise, Noise]:
    """Split the outputs again after dividing every coordinate by its noise's deviation.

    Where a span is projected out, independent noise of different scales leaves correlated coordinates; noise of one
    scale does not. Coordinates that are taken as they are stay so.
    """
    if not sides[0].rotated:
        return sides
    scale = np.sqrt(variances([side.outputs for side in sides], signal.parts))
    basis = scaled_span(signal.basis, scale)
    parts = basis if signal.parts is signal.basis else scaled_span(signal.parts, scale)
    rescaled = dataclasses.replace(signal, basis=basis, parts=parts)
    return _split(sides[0].outputs / scale, rescaled), _split(sides[1].outputs / scale, rescaled)


def scaled_span(basis: Array, scale: Array) -> Array:
    """Orthonormal basis of the span after every coordinate is divided by its scale."""
    return np.linalg.qr((basis / scale).T)[0].T


def variances(outputs: Sequence[Array], basis: Array) -> Array:
    """Estimate the noise variance of every coordinate, whatever happens in the span, from the covariance outside it.

    With ``M`` the projection that removes the span and ``v`` the variances of what it leaves, least squares of
    ``M (S - diag d) M`` says ``sum_j M_ij^2 d_j = v_i``. It is solved repeatedly, with every coordinate over the
    deviation found so far, until these are alike. Variances that the outputs do not determine stay at the mean.
    """
    degrees = sum(map(len, outputs)) - len(outputs)
    centred = [side - side.mean(axis=0, dtype=np.float64) for side in outputs]
    found = np.ones(basis.shape[1])
    for _ in range(MOST_TIMES):
        scale = np.sqrt(found)
        span = scaled_span(basis, scale)
        residual = np.sum([np.sum(project_out(rows / scale, span) ** 2, axis=0) for rows in centred], axis=0) / degrees
        mean = float(residual.sum()) / (len(residual) - len(span)) or 1.0
        factors = np.maximum(solve_projected_variances(residual, span, start=mean), LEAST * mean)
        found = found * factors
        if np.ptp(factors) < ALIKE * mean:
            break
    return found


def project_out(rows: Array, basis: Array) -> Array:
    """What is left of rows, in their own coordinates, after projecting out the span."""
    return rows - (rows @ basis.T) @ basis


def solve_projected_variances(left: Array, basis: Array, *, start: float) -> Array:
    """Solve ``sum_j M_ij^2 d_j = left_i`` for the d nearest to ``start``, by conjugate gradients."""
    from scipy.sparse.linalg import LinearOperator, cg

    projected = LinearOperator((len(left), len(left)), matvec=lambda d: projected_variances(d, basis), dtype=float)
    return np.asarray(cg(projected, left, x0=np.full(len(left), start), rtol=PRECISE, maxiter=MOST_STEPS)[0])


def projected_variances(d: Array, basis: Array) -> Array:
    """Compute ``sum_j M_ij^2 d_j``, with M the projection that removes the span."""
    mixed = np.einsum("ki,kl,li->i", basis, (basis * d) @ basis.T, basis, optimize=True)
    return (1 - 2 * np.sum(basis**2, axis=0)) * d + mixed


def _coordinates_outside(values: Array, basis: Array) -> Array:
    """Coordinates outside the span: those it leaves alone or, where these are few, reflected ones."""
    rank, untouched = len(basis), _untouched(basis)
    if untouched is not None:
        return values[:, untouched[:MOST_COORDINATES]].astype(float)
    return _reflected(values.astype(float), basis)[:, rank : rank + MOST_COORDINATES]


def unmoved_noise(without: Noise, with_record: Noise, signal: Signal, *, whole: bool) -> Array | None:
    """Centred noise in the release's own coordinates, zero where batches move them; None where batches move all.

    ``whole`` says that every batch is the whole dataset, so that batches move none.
    """
    if without.rotated and not whole:
        return None
    noise = np.concatenate([side.outputs - side.outputs.mean(axis=0) for side in (without, with_record)])
    return noise if whole else noise * (np.abs(signal.parts).max(axis=0, initial=0.0) == 0)


def _untouched(basis: Array) -> Array | None:
    """Coordinates on which the span is zero, if they are most of those outside it."""
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
