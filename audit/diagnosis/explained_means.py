"""How far the record and the others move the mean, if the sum is made of the gradients in another way than stated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from audit.diagnosis.noise import Array
from audit.diagnosis.sensitivity import Stated
from audit.diagnosis.signal import Signal
from distinguishers.exact.batches import Pair, shared_batches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """What an explanation makes of the means."""

    moved: float
    """By the record, in whatever direction."""
    others: float
    """By the other records along their own sum, clipped as stated."""


def mean_of_the_batch(signal: Signal, stated: Stated) -> Explained | None:
    """Of clipped gradients over the number of those that were taken, without the noise."""
    return _explained(
        signal, stated, signal.pair.clipped(stated.clip), lambda sums, sizes: sums / np.maximum(sizes, 1)[:, None]
    )


def clipped_sum(signal: Signal, stated: Stated) -> Explained | None:
    """Of gradients that are summed first; the sum is clipped then."""

    def clipped(sums: Array, sizes: Array) -> Array:
        lengths = np.where(sizes > 0, np.linalg.norm(sums, axis=1), 0.0)
        return sums / np.maximum(1.0, lengths / stated.clip)[:, None]

    return _explained(signal, stated, signal.pair, clipped)


def others_at_bound(signal: Signal, stated: Stated, bound: float) -> float:
    """How long the others' sum is, along that of the stated bound, if they are clipped to another one."""
    return float(_sum(signal.pair.clipped(bound)) @ _toward(signal, stated))


def _sum(pair: Pair) -> Array:
    return np.asarray(pair.counts, float) @ pair.shared


def _toward(signal: Signal, stated: Stated) -> Array:
    """Where the others' sum points, in the coordinates of the span."""
    found = _sum(signal.pair.clipped(stated.clip))
    return found / (float(np.linalg.norm(found)) or 1.0)


def _explained(signal: Signal, stated: Stated, pair: Pair, made: Callable[[Array, Array], Array]) -> Explained | None:
    """None where there are too many different batches."""
    if signal.rounds > 1:
        return None
    try:
        batches = shared_batches(pair, rate=stated.rate, sizes_matter=True)
    except ValueError:
        return None
    weights = np.exp(batches.log_weights)

    def mean(own: Array | None) -> Array:
        found = weights @ made(batches.sums, batches.sizes)
        if own is None:
            return found
        joined = weights @ made(batches.sums + own, batches.sizes + 1)
        return (1 - stated.rate) * found + stated.rate * joined

    without, with_record = mean(pair.removed), mean(pair.added)
    return Explained(
        moved=float(np.linalg.norm(with_record - without)), others=float(without @ _toward(signal, stated))
    )
