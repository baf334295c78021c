"""Who attends a batch, as a law on the host: how many of the other records, and how many of the differing ones."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.numerics.distributions import binom, hypergeom
from mechanisms.sampling import (
    BallsAndBins,
    Deterministic,
    FixedBatches,
    FixedSize,
    Poisson,
    Sampler,
    Shuffle,
    TruncatedPoisson,
)

NEGLIGIBLE = 1e-18
"""Probability below which batches are left out of a score, which costs that much power and never validity."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttendanceLaw:
    """The batches of one round that an observer can distinguish, if all other records are alike."""

    others: np.ndarray
    record: np.ndarray
    """Number of differing records in the batch."""
    probability: np.ndarray


def counts_groups(sampler: Sampler) -> bool:
    """Whether the law of how many of several differing records attend is known for a sampler."""
    return isinstance(sampler, Poisson | FixedSize | Deterministic)


def attendance_law(sampler: Sampler, records: int, group: int = 1) -> AttendanceLaw | None:
    """The law of one round; None if rounds depend on each other, or for a sampler that is unknown here.

    ``transcript_ratio`` then uses the record's ``places``, and refuses a sampler without them.
    """
    if isinstance(sampler, FixedSize):
        record = np.arange(min(group, sampler.batch_size) + 1)
        weights = hypergeom.pmf(record, records, group, sampler.batch_size)
        return _kept(sampler.batch_size - record, record, weights)
    if not isinstance(sampler, Poisson | TruncatedPoisson) or (group > 1 and isinstance(sampler, TruncatedPoisson)):
        return None
    others, record = (grid.ravel() for grid in np.meshgrid(np.arange(records - group + 1), np.arange(group + 1)))
    weights = binom.pmf(others, records - group, sampler.rate) * binom.pmf(record, group, sampler.rate)
    if isinstance(sampler, Poisson):
        return _kept(others, record, weights)
    # of an overfull batch a random part stays: with one record, most / size of the time it is there
    size = others + record
    stays = np.where(record == 1, np.minimum(1.0, sampler.most / np.maximum(size, 1)), 0.0)
    kept = np.minimum(size, sampler.most)
    return _kept(
        np.concatenate([kept - 1, kept]),
        np.concatenate([np.ones_like(record), np.zeros_like(record)]),
        np.concatenate([weights * stays, weights * (1 - stays)]),
    )


def final_law(sampler: Sampler, records: int, epochs: int, group: int = 1) -> AttendanceLaw | None:
    """The law of how often records attend in a whole training, which is all that a sum over its rounds shows.

    None for a sampler or group that is unknown here: their likelihood ratio is refused.
    """
    rounds = epochs * sampler.rounds(records)
    if isinstance(sampler, Poisson):
        others, record = np.arange(rounds * (records - group) + 1), np.arange(rounds * group + 1)
        weights = [binom.pmf(count, count[-1], sampler.rate) for count in (others, record)]
        likely = [np.flatnonzero(weight > NEGLIGIBLE) for weight in weights]
        grid = [part.ravel() for part in np.meshgrid(*likely, indexing="ij")]
        return _kept(grid[0], grid[1], weights[0][grid[0]] * weights[1][grid[1]])
    if group > 1 and not counts_groups(sampler):
        return None
    if isinstance(sampler, BallsAndBins):
        return _kept(np.array([epochs * (records - 1)]), np.array([epochs]), np.ones(1))
    if isinstance(sampler, FixedBatches):
        chance = min(1.0, float(sampler.places(records).sum()))
        # one order for all epochs drops the record in all of them or in none
        kept = isinstance(sampler, Shuffle) and sampler.same_order
        times = np.array([0, epochs]) if kept else np.arange(epochs + 1)
        weights = np.array([1 - chance, chance]) if kept else binom.pmf(times, epochs, chance)
        return _kept(rounds * sampler.batch_size - group * times, group * times, weights)
    if isinstance(sampler, FixedSize) and group == 1:
        times = np.arange(rounds + 1)
        weights = binom.pmf(times, rounds, sampler.batch_size / records)
        return _kept(rounds * sampler.batch_size - times, times, weights)
    return None


def _kept(others: np.ndarray, record: np.ndarray, weights: np.ndarray) -> AttendanceLaw:
    """The law without negligible batches."""
    likely = weights > NEGLIGIBLE
    return AttendanceLaw(others=others[likely], record=record[likely], probability=weights[likely])
