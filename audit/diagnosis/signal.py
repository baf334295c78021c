"""What a correct step computes from a pair of gradients: where the record moves the sum, and how far."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from audit.diagnosis.clipped_parts import moves_by_parts
from distinguishers.exact.batches import Pair, read_pair
from guarantees.checks import require
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.pairs.record_pairs import add_record, pair, replace_record, zero_out
from mechanisms.release import Layout

MOST_DENSE = 2**26
"""Most entries of a basis that is held in full."""
RECORD_PAIRS = tuple(made.__name__ for made in (pair, add_record, replace_record, zero_out))
"""Names of pairs whose rows need not be gradients."""
MOST_PARTS = 1024
"""Most directions of single tensors; projecting outputs away from more takes minutes."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Signal:
    """The gradients of a pair in the coordinates of the flattened release."""

    pair: Pair
    """The unclipped gradients, in coordinates of one round's span."""
    dimension: int
    basis: np.ndarray
    """Orthonormal rows that span the gradients of every round separately, shape (rank, dimension)."""
    parts: np.ndarray
    """Orthonormal rows that span the gradients' parts in every tensor, if enough coordinates remain; else ``basis``."""
    moves: np.ndarray
    """What the record adds to the sum when it is taken, clipped as stated (not at all if no bound is known)."""
    unclipped: float
    """How far it would move the sum if nothing were clipped."""
    others: np.ndarray
    """The sum of the other records' gradients in one round, clipped in the same way."""
    others_looser: tuple[float, float]
    """Range of the length of that sum, along it, if they are clipped less: at a larger bound, by parts, or not."""
    others_toward: float
    """Largest length of that sum, along it, if each of them is scaled to length 1 or less."""
    records: int
    """Number of records without the differing one."""
    records_with: int
    """Number of records with it."""
    rounds: int
    finite: bool
    """Whether the record's gradient is finite; one that is not must count as zero."""
    by_parts: Mapping[str, np.ndarray]
    """What the record adds in one round if parts of its gradient are clipped separately."""
    assumed: bool
    """Whether rows of the user's data are assumed to be gradients, though nobody says so."""

    @property
    def length(self) -> float:
        """How far the record may move the sum."""
        return float(np.linalg.norm(self.moves))

    @property
    def direction(self) -> np.ndarray:
        """Unit vector along which the record moves the sum."""
        return self.moves / (self.length or 1.0)


def read_signal(neighbours: Neighbours, *, clip: float | None = None, layout: Layout | None = None) -> Signal:
    """Read the signal of a pair of gradients: one row a record, or one row with its gradients of all rounds."""
    if getattr(neighbours.without, "ndim", 2) == 1:
        raise ValueError("the dataset is one vector, so every coordinate may move and none carries noise alone.")
    finite, kept = _finite(neighbours)
    found = read_pair(kept)
    rounds = 1 if layout is None or layout.rounds is None else layout.rounds
    size = found.dimension if layout is None else layout.entries
    require("the pair", found.dimension * rounds in (size, size * rounds), f"of {size} coordinates", found.dimension)
    times = size // found.dimension
    small = found.rank * rounds * size <= MOST_DENSE
    require("the rank of the pair", small, f"at most {MOST_DENSE // (rounds * size)}", found.rank)

    def clipped(rows: np.ndarray) -> np.ndarray:
        """Span coordinates as full rows, clipped round by round."""
        full = np.tile(dense(found, rows), (1, times)).reshape(len(rows), rounds, size // rounds)
        if clip is not None:
            full = full / np.maximum(1.0, np.linalg.norm(full, axis=2, keepdims=True) / clip)
        return full.reshape(len(rows), size)

    differing = [np.zeros(found.rank) if row is None else row for row in (found.added, found.removed)]
    added, removed = clipped(np.stack(differing))
    others, looser, towards = np.zeros(size), (0.0, 0.0), 0.0
    if found.shared.size * size <= MOST_DENSE:
        counts, kept = np.asarray(found.counts, float), clipped(found.shared)
        others = counts @ kept
        toward = others / (float(np.linalg.norm(others)) or 1.0)
        units = kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-300)
        towards = float(counts @ np.maximum(units @ toward, 0.0))
        # with looser clipping each number of a gradient is between its clipped and its whole value
        extremes = np.stack([kept, np.tile(dense(found, found.shared), (1, times))]) * toward
        looser = float(counts @ extremes.min(axis=0).sum(axis=1)), float(counts @ extremes.max(axis=0).sum(axis=1))
    rows = np.tile(dense(found, np.eye(found.rank)), (1, times))
    basis = rows if rounds == 1 else _orthonormal(rows, [size // rounds] * rounds)
    sizes = list(layout.sizes) * rounds if layout is not None else [size]
    parts = basis
    if len(sizes) > rounds and len(basis) * len(sizes) // rounds <= min(size // 2, MOST_PARTS):
        parts = _orthonormal(rows, sizes)
    return Signal(
        pair=found,
        dimension=size,
        basis=basis,
        parts=parts,
        moves=added - removed,
        unclipped=float(np.linalg.norm(differing[0] - differing[1])) * math.sqrt(times),
        others=others,
        others_looser=looser,
        others_toward=towards,
        records=found.records_without,
        records_with=found.records_with,
        rounds=rounds,
        finite=finite,
        by_parts={}
        if clip is None or rounds > 1
        else moves_by_parts(*dense(found, np.stack(differing)), clip=clip, layout=layout),
        assumed=neighbours.name in RECORD_PAIRS,
    )


def dense(pair: Pair, rows: np.ndarray) -> np.ndarray:
    """Rows of span coordinates as they are in the release."""
    if pair.basis is not None:
        return rows @ np.asarray(pair.basis, float)
    return np.pad(rows, ((0, 0), (0, pair.dimension - pair.rank)))


def _orthonormal(rows: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Orthonormal basis of all rows cut into parts of these sizes, the longest directions first."""
    found = []
    for end, part_size in zip(np.cumsum(sizes), sizes, strict=True):
        _, lengths, directions = np.linalg.svd(rows[:, end - part_size : end], full_matrices=False)
        found += [(length, end - part_size, direction) for length, direction in zip(lengths, directions, strict=True)]
    longest = max((length for length, _, _ in found), default=0.0)
    found = [part for part in found if part[0] > max(longest, 1e-300) * 1e-6]
    basis = np.zeros((len(found), rows.shape[1]))
    for row, (_, start, direction) in zip(basis, sorted(found, key=lambda part: -part[0]), strict=True):
        row[start : start + len(direction)] = direction
    return basis


def _finite(neighbours: Neighbours) -> tuple[bool, Neighbours]:
    """Whether all gradients are finite, and the pair with zeros for those that are not."""
    sides: list[Any] = [neighbours.without, neighbours.with_record]
    if not all(isinstance(side, np.ndarray | jax.Array) and side.ndim == 2 for side in sides):
        return True, neighbours
    arrays = [np.asarray(side, np.float64) for side in sides]
    if all(math.isfinite(float(np.sum(np.abs(side)))) for side in arrays):
        return True, neighbours
    kept = [np.where(np.isfinite(side).all(axis=1, keepdims=True), side, 0.0) for side in arrays]
    return False, dataclasses.replace(neighbours, without=kept[0], with_record=kept[1])
