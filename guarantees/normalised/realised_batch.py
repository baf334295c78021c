"""Division by the realised batch size (ASGM): a loss in two dimensions that is monotone in neither."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.special import expit

from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.kept import kept
from guarantees.laws.law import LossLaw
from guarantees.normalised.batch_cells import BatchMixture, Cells, Sides, Strip, cells_of, coarse_strips, finer_strips
from guarantees.normalised.bracket import BracketedLaw, Gathering
from guarantees.normalised.line_law import LineLaw
from guarantees.numerics.array import Array
from guarantees.numerics.search import halved

COARSE = 0.3
"""Step of the first partition, in standard deviations."""
FINEST = 0.002
SMOOTH = 0.01
JOINED = 4
COST = 1e6
"""Work to spend on one law, in about microseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Measured:
    """Measurements on a coarse strip, which say how fine it should be."""

    strip: Strip
    mass: float
    along: float
    """Mean variation of the loss over a cell along u."""
    across: float
    square: float
    """Mean square of the loss, each loss capped at 1."""


def _measured(cells: Cells, rate: float) -> _Measured:
    with np.errstate(divide="ignore", invalid="ignore"):
        g = np.nan_to_num(np.log(cells.masses[1]) - np.log(cells.masses[0]), nan=0.0, posinf=1e9, neginf=-1e9)
    weights = cells.masses.sum(axis=0)
    mass = float(weights.sum()) + 1e-300
    # Where g is far below zero the loss is flat: there the variation of g is not felt.
    felt = weights * expit(g + math.log(rate) - math.log1p(-rate)) / mass
    loss = np.clip(rate * np.expm1(np.minimum(g, 50.0)), -1.0, 1.0)
    along, across = (float((felt * np.minimum(part, 30.0)).sum()) + 1e-12 for part in (cells.along, cells.across))
    return _Measured(
        strip=cells.strip, mass=mass, along=along, across=across, square=float((weights * loss**2).sum()) / mass
    )


def _steps(parts: list[_Measured]) -> list[tuple[float, float]]:
    """For each strip, a step along u and into how many rows to cut each (below 1: join them).

    The least squared variation for the work: a strip of mass m whose loss varies by a and b over a cell of area 1
    costs c/x and errs by about m a b x when the area is x and both directions vary alike, so x is proportional to
    sqrt(c / (m a b)). Variations below SMOOTH of the loss itself are fine enough.
    """
    mass, along, across, square = (
        np.array([getattr(part, name) for part in parts]) for name in ("mass", "along", "across", "square")
    )
    # Neither direction can be left uncut, so a flat one must not make the area large.
    along, across = np.maximum(along, 0.01 * across), np.maximum(across, 0.01 * along)
    cost = np.array([part.strip.cost for part in parts])
    wanted = np.sqrt(cost / (mass * along * across))
    enough = SMOOTH**2 * float((mass * square).sum() / mass.sum()) / (along * across)
    finest = np.clip(enough, (FINEST / COARSE) ** 2, 1.0)

    def chosen(level: float) -> tuple[Array, Array]:
        area = np.clip(np.exp(level) * wanted, finest, 1.0)
        rows = np.clip(np.sqrt(across / along / area), 1 / JOINED, COARSE / FINEST)
        rows = np.where(rows > 1, np.ceil(rows), 1 / np.floor(1 / np.minimum(rows, 1.0)))
        return np.clip(area * rows, FINEST / COARSE, 1.0), rows

    def affordable(level: float) -> bool:
        step, rows = chosen(level)
        return not (cost * rows / step).sum() > COST

    _, level = halved(affordable, -80.0, 80.0, rounds=50)
    return [(COARSE * float(step), float(rows)) for step, rows in zip(*chosen(level), strict=True)]


def cell_law(sides: Sides, *, degrees: float, rate: float, lost: float) -> BracketedLaw:
    """The bracketed law, from a partition of the plane that is made fine where the loss varies."""
    middle, safe, leaked = kept(
        "cells of realised batches", (sides, degrees, rate, lost), lambda: _gathered(sides, degrees, rate, lost)
    )
    return BracketedLaw(middle=middle, safe=safe, leaked=leaked)


def _gathered(sides: Sides, degrees: float, rate: float, lost: float) -> tuple[DiscreteLaw, DiscreteLaw, DiscreteLaw]:
    gathering = Gathering()
    coarse = []
    for strip in coarse_strips(sides, degrees, step=COARSE):
        found = cells_of(strip)
        if strip.columns.regular.any():
            coarse.append(_measured(found, rate))
        else:
            gathering.add(found)
    for part, (along, parts) in zip(coarse, _steps(coarse), strict=True):
        for finer in finer_strips(part.strip, along=along, parts=parts):
            gathering.add(cells_of(finer))
    found = gathering.bracket(rate, lost=lost)
    return found.middle, found.safe, found.leaked


def realised_batch_law(
    sizes: Array,
    log_weights: Array,
    lost: float,
    *,
    rate: float,
    shared: float,
    extra: float,
    dimension: int,
) -> LossLaw:
    """Law of ASGM with aligned gradients of length ``shared`` and ``extra`` in units of the noise, rate < 1.

    ``ln p = logsumexp_k [ln W_k + n ln j_k - j_k^2 (w + (u - m_k)^2)/2]``, j = max(batch size, 1): in one
    dimension a mixture on the line, exactly; otherwise from cells of the plane of (u, w).
    """
    divisors, more = np.maximum(sizes, 1.0), sizes + 1.0
    without = BatchMixture(log_weights=log_weights, means=shared * sizes / divisors, divisors=divisors)
    sampled = BatchMixture(log_weights=log_weights, means=(shared * sizes + extra) / more, divisors=more)
    if dimension == 1:
        roughness = max(1.0, abs(shared), abs(extra), abs(extra - shared))
        return LineLaw(
            without=without.line(),
            sampled=sampled.line(),
            rate=rate,
            roughness=roughness,
            error=1e-13 + lost,
        )
    return cell_law((without, sampled), degrees=dimension - 1, rate=rate, lost=lost)
