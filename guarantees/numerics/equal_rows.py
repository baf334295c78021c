"""Finding equal rows: hashing each row once takes a fraction of the time of sorting wide rows."""

from __future__ import annotations

import hashlib

import numpy as np

from guarantees.numerics.array import Array


def different_rows(rows: Array) -> tuple[Array, Array]:
    """Index of the first row of each group of equal rows, and the group sizes."""
    # minus zero is zero
    places: dict[bytes, int] = {}
    own = [
        places.setdefault(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), place)
        for place, row in enumerate(np.asarray(rows) + 0.0)
    ]
    return np.unique(own, return_counts=True)
