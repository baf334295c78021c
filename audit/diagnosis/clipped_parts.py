"""Gradients whose tensors or numbers are clipped one by one: how the record then moves the sum, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from guarantees.numerics.distributions import chi2
from mechanisms.release import Layout

Array = np.ndarray
ALIKE = 0.95
"""Cosine of two movements from which on they may be the same."""
FITS = 0.05
"""Smallest p-value of the residual at which a movement explains the difference of means."""


def moves_by_parts(added: Array, removed: Array, *, clip: float, layout: Layout | None) -> Mapping[str, Array]:
    """What the record adds to the sum if each of its numbers, or each tensor, is clipped to the bound separately."""
    sizes = {"each of its numbers": [1] * len(added)}
    if layout is not None and layout.rounds is None and len(layout.sizes) > 1:
        sizes["each of its tensors"] = list(layout.sizes)
    return {name: _clipped(added, parts, clip) - _clipped(removed, parts, clip) for name, parts in sizes.items()}


def as_parts(without: Array, with_record: Array, by_parts: Mapping[str, Array]) -> str:
    """Words for the one of these movements that explains the difference of the means; "" if none or several do."""
    sides = [np.asarray(side, np.float64) for side in (without, with_record)]
    apart = sides[1].mean(axis=0) - sides[0].mean(axis=0)
    found = [name for name, moves in by_parts.items() if _explains(sides, apart, moves)]
    return f", as if {found[0]} were clipped by itself" if len(found) == 1 else ""


def _explains(sides: list[Array], apart: Array, moves: Array) -> bool:
    """Whether the means of the sides differ along this movement, and nowhere else beyond chance."""
    length = float(np.linalg.norm(moves))
    if length == 0 or float(apart @ moves) < ALIKE * length * float(np.linalg.norm(apart)):
        return False
    direction = moves / length
    # the residual of each coordinate's mean difference, in standard errors
    error = np.sqrt(sum(side.var(axis=0, ddof=1) / len(side) for side in sides))
    residual = (apart - (apart @ direction) * direction) / np.maximum(error, 1e-300)
    return bool(chi2.sf(float(residual @ residual), len(residual) - 1) > FITS)


def _clipped(row: Array, sizes: list[int], clip: float) -> Array:
    """A row whose consecutive parts of these sizes are clipped separately."""
    starts = np.cumsum([0, *sizes[:-1]])
    lengths = np.sqrt(np.add.reduceat(row**2, starts))
    return row / np.repeat(np.maximum(lengths / clip, 1.0), sizes)
