"""Tensors that a record's length leaves out, where the record at hand has so little in them that the noise suffices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.clipping import ALIKE
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.places import Place, frames_of, spelled

MOST_TENSORS = 12
"""In which parts that are left out are looked for."""
LEAST_PART = 1e-3
"""Of the square of a length that a part must have: less may be rounding."""


def left_out(releases: Sequence[Release], clip: float | None) -> list[Finding]:
    """That the number which clips the record is made of its length in some tensors alone.

    Only if one choice of tensors explains it to the last digits: then it is neither rounding nor another bound.
    """
    moved = [release for release in releases if release.cost]
    weights = [weight for release in moved for weight in release.weights]
    if clip is None or not 1 < len(weights) <= MOST_TENSORS or len(weights) != len(moved):
        return []
    by = weights[0].by
    if not 0 < by < 1 or any(abs(one.by - by) > ALIKE * by for one in weights):
        return []
    squares = np.square([weight.before for weight in weights])
    missing, whole = float(squares.sum() - (clip / by) ** 2), float(squares.sum())
    if missing < LEAST_PART * whole:
        return []
    tensors = range(len(weights))
    chosen = itertools.chain.from_iterable(itertools.combinations(tensors, many) for many in tensors[1:])
    fits = [own for own in chosen if abs(squares[list(own)].sum() - missing) <= ALIKE * whole]
    at = _measured_at(releases, clip / by)
    if len(fits) != 1 or at is None:
        return []
    (own,) = fits
    sizes = [str(moved[tensor].moved.size) for tensor in own]
    numbers = f"{', '.join(sizes[:-1])} and {sizes[-1]}" if sizes[1:] else sizes[0]
    says = (
        f"{spelled(at)} measures the length of the record as {clip / by:.4g} when it is {np.sqrt(whole):.4g}: "
        f"it leaves out {len(own)} of {len(weights)} tensors (of {numbers} numbers). On this pair there is little in "
        'them; a record in them alone would not be clipped (a canary of one coordinate: kind="dirac").'
    )
    return [Finding(kind=Kind.NOT_CLIPPED, lines=frames_of([at, weights[0].factor, weights[0].at]), says=says)]


def _measured_at(releases: Sequence[Release], length: float) -> Place | None:
    """Where a number of the record's first has that length, or its square."""
    numbers = [number for release in releases for weight in release.weights for number in weight.numbers]
    found = (one.at for one in numbers for own in (length, length**2) if abs(one.value - own) <= ALIKE * own)
    return next(found, None)
