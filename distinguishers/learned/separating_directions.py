"""Directions along which two samples of outputs separate, learnt from standardised coordinates on the host."""

from __future__ import annotations

import math

import numpy as np

WHITENED = 600
"""Coordinates up to which full covariances are inverted and compared."""
EACH = 2
"""Number of directions of each kind of spread."""
RIDGE = 1e-6
"""Ridge of the sharp inverse: a combination of coordinates without noise weighs a million times one with noise."""


def separating(
    first: np.ndarray, second: np.ndarray, deviation: np.ndarray, given: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Named unit directions in standardised coordinates, from rows (trials, coordinates) of both samples.

    The difference of the means as it is, with each coordinate over its variance [fisher1936], only where it is
    significant, and through the inverse covariance; where the spread changes most; where it is largest. ``given`` are
    directions in the outputs' own units, taken as they are and through the same inverses.
    """
    shift = second.mean(axis=0, dtype=np.float64) - first.mean(axis=0, dtype=np.float64)
    spread = deviation.astype(np.float64) / max(float(deviation.max()), 1e-300)
    found = {
        "mean_difference": shift * spread**2,
        "whitened_difference": shift,
        "sparse_difference": _sparse(shift, len(first), len(second)),
    }
    centred = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    wanted = {"difference": shift}
    for name, vector in given.items():
        full = np.pad(vector, (0, len(shift) - len(vector)))
        found[name] = full * spread
        found[f"whitened_{name}"] = wanted[name] = full / spread
    if 1 < len(shift) <= WHITENED:
        covariance = centred.T.astype(np.float64) @ centred / len(centred)
        soft = 0.1 + len(shift) / len(centred)
        for name, vector in wanted.items():
            found[f"decorrelated_{name}"] = _solve(covariance, vector, soft)
            if len(centred) > 4 * len(shift):
                found[f"sharp_{name}"] = _solve(covariance, vector, RIDGE)
    if 2 * EACH < len(shift) <= WHITENED:
        found.update(_changed_spread(centred, len(first)))
    return {name: _unit(vector) for name, vector in found.items() if np.isfinite(vector).all() and np.any(vector)}


def _unit(vector: np.ndarray) -> np.ndarray:
    scaled = vector / np.abs(vector).max()
    return scaled / np.linalg.norm(scaled)


def _sparse(shift: np.ndarray, first: int, second: int) -> np.ndarray:
    """Soft thresholding at what noise alone reaches in some coordinate, or the largest one alone."""
    noise = math.sqrt(2 * math.log(max(len(shift), 2)) * (1 / first + 1 / second))
    kept = np.sign(shift) * np.maximum(np.abs(shift) - noise, 0.0)
    return kept if np.any(kept) else np.where(np.arange(len(shift)) == np.abs(shift).argmax(), shift, 0.0)


def _solve(covariance: np.ndarray, vector: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.solve(covariance + ridge * np.eye(len(vector)), vector)


def _changed_spread(centred: np.ndarray, first: int) -> dict[str, np.ndarray]:
    """Eigenvectors of the difference of the two covariances at both ends, and of their sum at its upper one."""
    zero, one = (part.T.astype(np.float64) @ part / len(part) for part in (centred[:first], centred[first:]))
    changed, all_in_all = (np.linalg.eigh(matrix)[1] for matrix in (one - zero, one + zero))
    found = {}
    for i in range(EACH):
        found[f"more_spread_{i}"] = changed[:, -1 - i]
        found[f"less_spread_{i}"] = changed[:, i]
        found[f"widest_{i}"] = all_in_all[:, -1 - i]
    return found
