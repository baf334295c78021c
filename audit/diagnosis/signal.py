"""What a right step makes of a pair of gradients: where the record moves the sum, and by how much."""

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
"""Entries of a basis that is held in full."""
OF_RECORDS = tuple(made.__name__ for made in (pair, add_record, replace_record, zero_out))
"""Names of pairs whose rows may be anything."""
MOST_PARTS = 1024
"""Directions of tensors taken one by one; turning outputs away from more takes minutes."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Signal:
    """The gradients of a pair, as the flat view of a release sees them."""

    pair: Pair
    """As they are, unclipped, in coordinates of one round's span."""
    dimension: int
    basis: np.ndarray
    """Orthonormal rows that span the gradients, of every round apart, shape (rank, dimension)."""
    parts: np.ndarray
    """The same for the gradients' parts in every tensor, where enough coordinates remain; or else the basis itself."""
    moves: np.ndarray
    """What the record adds to the sum when it is taken, clipped as stated (not at all where no bound is known)."""
    unclipped: float
    """How far it would move the sum if nothing were clipped."""
    others: np.ndarray
    """The sum of the other records' gradients in one round, clipped alike."""
    others_looser: tuple[float, float]
    """Between which lengths, along it, that sum is if they are clipped less: at a larger bound, by parts, or not."""
    others_toward: float
    """How long it is at most, along it, if each of them is scaled to length 1 or below it."""
    records: int
    """Records without the differing one."""
    records_with: int
    rounds: int
    finite: bool
    """Whether the record's gradient is made of numbers; one that is not must count as zero."""
    by_parts: Mapping[str, np.ndarray]
    """What it adds in one round if parts of its gradient are clipped by themselves."""
    assumed: bool
    """Whether rows of the user's own data are taken for gradients, which nobody says they are."""

    @property
    def length(self) -> float:
        """How far the record may move the sum."""
        return float(np.linalg.norm(self.moves))

    @property
    def direction(self) -> np.ndarray:
        """Where to."""
        return self.moves / (self.length or 1.0)


def read_signal(neighbours: Neighbours, *, clip: float | None = None, layout: Layout | None = None) -> Signal:
    """The signal of a pair of gradients: one row a record, or one that holds its gradients at all rounds."""
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

    ends = [np.zeros(found.rank) if end is None else end for end in (found.added, found.removed)]
    added, removed = clipped(np.stack(ends))
    others, looser, towards = np.zeros(size), (0.0, 0.0), 0.0
    if found.shared.size * size <= MOST_DENSE:
        counts, kept = np.asarray(found.counts, float), clipped(found.shared)
        others = counts @ kept
        toward = others / (float(np.linalg.norm(others)) or 1.0)
        units = kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-300)
        towards = float(counts @ np.maximum(units @ toward, 0.0))
        # each number of a gradient is what the stated clipping leaves of it, or more, up to all of it
        ends_of = np.stack([kept, np.tile(dense(found, found.shared), (1, times))]) * toward
        looser = float(counts @ ends_of.min(axis=0).sum(axis=1)), float(counts @ ends_of.max(axis=0).sum(axis=1))
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
        unclipped=float(np.linalg.norm(ends[0] - ends[1])) * math.sqrt(times),
        others=others,
        others_looser=looser,
        others_toward=towards,
        records=found.records_without,
        records_with=found.records_with,
        rounds=rounds,
        finite=finite,
        by_parts={}
        if clip is None or rounds > 1
        else moves_by_parts(*dense(found, np.stack(ends)), clip=clip, layout=layout),
        assumed=neighbours.name in OF_RECORDS,
    )


def dense(pair: Pair, rows: np.ndarray) -> np.ndarray:
    """Rows in coordinates of the span as they are in the release."""
    if pair.basis is not None:
        return rows @ np.asarray(pair.basis, float)
    return np.pad(rows, ((0, 0), (0, pair.dimension - pair.rank)))


def _orthonormal(rows: np.ndarray, sizes: list[int]) -> np.ndarray:
    """A basis of every row taken once for each part and zero outside it: part by part, the longest directions first."""
    found = []
    for end, own in zip(np.cumsum(sizes), sizes, strict=True):
        _, lengths, directions = np.linalg.svd(rows[:, end - own : end], full_matrices=False)
        found += [(length, end - own, direction) for length, direction in zip(lengths, directions, strict=True)]
    longest = max((length for length, _, _ in found), default=0.0)
    found = [part for part in found if part[0] > max(longest, 1e-300) * 1e-6]
    basis = np.zeros((len(found), rows.shape[1]))
    for row, (_, start, direction) in zip(basis, sorted(found, key=lambda part: -part[0]), strict=True):
        row[start : start + len(direction)] = direction
    return basis


def _finite(neighbours: Neighbours) -> tuple[bool, Neighbours]:
    """Whether all gradients are finite, and the pair with those rows zero that are not."""
    sides: list[Any] = [neighbours.without, neighbours.with_record]
    if not all(isinstance(side, np.ndarray | jax.Array) and side.ndim == 2 for side in sides):
        return True, neighbours
    arrays = [np.asarray(side, np.float64) for side in sides]
    if all(math.isfinite(float(np.sum(np.abs(side)))) for side in arrays):
        return True, neighbours
    kept = [np.where(np.isfinite(side).all(axis=1, keepdims=True), side, 0.0) for side in arrays]
    return False, dataclasses.replace(neighbours, without=kept[0], with_record=kept[1])
