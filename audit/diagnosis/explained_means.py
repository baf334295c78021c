"""How far the record and the others move the mean if the sum is made of the gradients in another way than stated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from audit.diagnosis.noise import Array
from audit.diagnosis.sensitivity import Stated
from audit.diagnosis.signal import Signal, dense
from distinguishers.exact.batches import Pair, shared_batches

BatchRelease = Callable[[Array, Array], Array]
"""What a batch releases before noise, as a function of the sums and the sizes of batches."""
ASIDE = 0.05
"""Share of the longest movement by which one may differ from the one expected."""
MOST_BATCHES = 1024
"""Most batches whose movements are compared one by one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """How far the means move under one explanation."""

    moved: float
    """By the record, in any direction."""
    others: float
    """By the other records along their sum, clipped as stated."""


def mean_of_the_batch(signal: Signal, stated: Stated) -> Explained | None:
    """Movements if clipped gradients are divided by the number of records taken, and the noise is not."""
    return _explained(signal, stated, signal.pair.clipped(stated.clip), _mean_release)


def clipped_sum(signal: Signal, stated: Stated) -> Explained | None:
    """Movements if gradients are summed first and the sum is clipped."""
    return _explained(signal, stated, signal.pair, _clipped_release(stated))


def is_explained(moved: Array, signal: Signal, stated: Stated) -> str:
    """The cause that explains all movements up to a common factor: a clipped sum, or a mean over the batch.

    ``moved`` has a row for each movement; the result is "" where neither explains them.
    """
    for cause, pair, release in (
        ("sum_clipped", signal.pair, _clipped_release(stated)),
        ("sum_scaled", signal.pair.clipped(stated.clip), _mean_release),
    ):
        expected = _possible_movements(pair, stated, release)
        if expected is not None and _alike(moved, dense(pair, expected)):
            return cause
    return ""


def _alike(moved: Array, expected: Array) -> bool:
    """Whether every movement is one of those expected, with the longest of both scaled to one length."""
    units = [rows / max(float(np.linalg.norm(rows, axis=1).max()), 1e-300) for rows in (moved, expected)]
    apart = np.linalg.norm(units[0][:, None] - units[1][None], axis=2).min(axis=1)
    return bool(apart.max() < ASIDE)


def _mean_release(sums: Array, sizes: Array) -> Array:
    """Sums divided by the realised sizes of their batches."""
    return sums / np.maximum(sizes, 1)[:, None]


def _clipped_release(stated: Stated) -> BatchRelease:
    """Release whose sums are clipped to the stated bound."""
    return lambda sums, _: sums / np.maximum(1.0, np.linalg.norm(sums, axis=1) / stated.clip)[:, None]


def _possible_movements(pair: Pair, stated: Stated, release: BatchRelease) -> Array | None:
    """The record's movement of each possible batch of others, a row each; None where there are too many."""
    try:
        batches = shared_batches(pair, rate=stated.rate, sizes_matter=True)
    except ValueError:
        return None
    if len(batches) > MOST_BATCHES:
        return None
    ends = [
        release(batches.sums, batches.sizes) if record is None else release(batches.sums + record, batches.sizes + 1)
        for record in (pair.removed, pair.added)
    ]
    return ends[1] - ends[0]


def others_at_bound(signal: Signal, stated: Stated, bound: float) -> float:
    """Length of the others' sum, along that of the stated bound, if they are clipped to another bound."""
    return float(_sum(signal.pair.clipped(bound)) @ _others_direction(signal, stated))


def _sum(pair: Pair) -> Array:
    """Sum of the other records' gradients."""
    return np.asarray(pair.counts, float) @ pair.shared


def _others_direction(signal: Signal, stated: Stated) -> Array:
    """Direction of the others' sum, in coordinates of the span."""
    total = _sum(signal.pair.clipped(stated.clip))
    return total / (float(np.linalg.norm(total)) or 1.0)


def _explained(signal: Signal, stated: Stated, pair: Pair, release: BatchRelease) -> Explained | None:
    """Means under a given release of batches; None where there are too many different ones."""
    if signal.rounds > 1:
        return None
    try:
        batches = shared_batches(pair, rate=stated.rate, sizes_matter=True)
    except ValueError:
        return None
    weights = np.exp(batches.log_weights)

    def mean(record: Array | None) -> Array:
        absent = weights @ release(batches.sums, batches.sizes)
        if record is None:
            return absent
        joined = weights @ release(batches.sums + record, batches.sizes + 1)
        return (1 - stated.rate) * absent + stated.rate * joined

    without, with_record = mean(pair.removed), mean(pair.added)
    return Explained(
        moved=float(np.linalg.norm(with_record - without)), others=float(without @ _others_direction(signal, stated))
    )
