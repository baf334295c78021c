"""Rows that are equal: hashing each once takes a fraction of the time of sorting them, where they are wide."""

from __future__ import annotations

import hashlib

import numpy as np

from guarantees.numerics.array import Array


def different_rows(rows: Array) -> tuple[Array, Array]:
    """Where each different row comes first, and how many rows are equal to it."""
    # minus zero is zero
    places: dict[bytes, int] = {}
    own = [
        places.setdefault(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), place)
        for place, row in enumerate(np.asarray(rows) + 0.0)
    ]
    return np.unique(own, return_counts=True)
