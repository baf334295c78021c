"""How far the record and the others move the mean, if the sum is made of the gradients in another way than stated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from audit.diagnosis.noise import Array
from audit.diagnosis.sensitivity import Stated
from audit.diagnosis.signal import Signal, dense
from distinguishers.exact.batches import Pair, shared_batches

Made = Callable[[Array, Array], Array]
"""Of the sums and the sizes of batches, what the noise is added to."""
ASIDE = 0.05
"""Share of the longest movement by which one may miss what is due."""
MOST_BATCHES = 1024
"""Whose movements are compared one by one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """What an explanation makes of the means."""

    moved: float
    """By the record, in whatever direction."""
    others: float
    """By the other records along their own sum, clipped as stated."""


def mean_of_the_batch(signal: Signal, stated: Stated) -> Explained | None:
    """Of clipped gradients over the number of those that were taken, without the noise."""
    return _explained(signal, stated, signal.pair.clipped(stated.clip), _averaged)


def clipped_sum(signal: Signal, stated: Stated) -> Explained | None:
    """Of gradients that are summed first; the sum is clipped then."""
    return _explained(signal, stated, signal.pair, _shortened(stated))


def is_explained(moved: Array, signal: Signal, stated: Stated) -> str:
    """The cause, where the sum was clipped or scaled as in a mean and all movements show it, up to a common factor.

    ``moved`` has a row for each; "" where neither explains them.
    """
    for cause, pair, made in (
        ("sum_clipped", signal.pair, _shortened(stated)),
        ("sum_scaled", signal.pair.clipped(stated.clip), _averaged),
    ):
        due = _movements(pair, stated, made)
        if due is not None and _alike(moved, dense(pair, due)):
            return cause
    return ""


def _alike(moved: Array, due: Array) -> bool:
    """Whether every movement is one of those that are due, where the longest have one length."""
    units = [rows / max(float(np.linalg.norm(rows, axis=1).max()), 1e-300) for rows in (moved, due)]
    apart = np.linalg.norm(units[0][:, None] - units[1][None], axis=2).min(axis=1)
    return bool(apart.max() < ASIDE)


def _averaged(sums: Array, sizes: Array) -> Array:
    return sums / np.maximum(sizes, 1)[:, None]


def _shortened(stated: Stated) -> Made:
    return lambda sums, _: sums / np.maximum(1.0, np.linalg.norm(sums, axis=1) / stated.clip)[:, None]


def _movements(pair: Pair, stated: Stated, made: Made) -> Array | None:
    """By which the record moves what is made of a batch, a row for each batch of others; None where there are many."""
    try:
        batches = shared_batches(pair, rate=stated.rate, sizes_matter=True)
    except ValueError:
        return None
    if len(batches) > MOST_BATCHES:
        return None
    ends = [
        made(batches.sums, batches.sizes) if own is None else made(batches.sums + own, batches.sizes + 1)
        for own in (pair.removed, pair.added)
    ]
    return ends[1] - ends[0]


def others_at_bound(signal: Signal, stated: Stated, bound: float) -> float:
    """How long the others' sum is, along that of the stated bound, if they are clipped to another one."""
    return float(_sum(signal.pair.clipped(bound)) @ _toward(signal, stated))


def _sum(pair: Pair) -> Array:
    return np.asarray(pair.counts, float) @ pair.shared


def _toward(signal: Signal, stated: Stated) -> Array:
    """Where the others' sum points, in the coordinates of the span."""
    found = _sum(signal.pair.clipped(stated.clip))
    return found / (float(np.linalg.norm(found)) or 1.0)


def _explained(signal: Signal, stated: Stated, pair: Pair, made: Made) -> Explained | None:
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
