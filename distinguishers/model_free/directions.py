"""Where the differing record would push the output, from a pair without any model of the mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from distinguishers.exact.batches import read_pair
from distinguishers.span_coordinates import Frame, make_frame
from mechanisms.pairs.neighbours import Neighbours, shape_of


def pair_parameters(neighbours: Neighbours | None) -> Mapping[str, Any]:
    """A pair by name and parameters."""
    return {} if neighbours is None else {"neighbours": {"kind": neighbours.name, **neighbours.parameters}}


def span_of(neighbours: Neighbours) -> tuple[Frame, np.ndarray]:
    """The frame of the gradients' span, and the unit vector in it from 'without' to 'with' (zero if they agree).

    For gradients that is the differing record's gradient minus its replacement's; for datasets of other shapes the
    difference of the two arrays, if they have one.
    """
    shape = shape_of(neighbours.without)
    if shape is not None and len(shape) == 2:
        pair = read_pair(neighbours)
        frame = make_frame(rank=pair.rank, dimension=pair.dimension, basis=pair.basis)
        return frame, _unit(pair.difference())
    first, second = neighbours.without, neighbours.with_record
    arrays = all(isinstance(dataset, np.ndarray | jax.Array) for dataset in (first, second))
    if not arrays or first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            "this distinguisher reads the record's gradient from the pair: both datasets must be GradientTables, "
            f"arrays (records, dimension) or equally long vectors, got {type(first).__name__}; "
            "leave the distinguisher out, and one that fits is chosen."
        )
    difference = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    return make_frame(rank=len(difference), dimension=len(difference), basis=None), _unit(difference)


def _unit(vector: np.ndarray) -> np.ndarray:
    """A vector of length 1, or zero."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
