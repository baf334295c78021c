"""Who is in a batch, as a law: how many of the other records and how many of those that differ, on the host."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import stats

from mechanisms.sampling import FixedSize, Poisson, Sampler, TruncatedPoisson

NEGLIGIBLE = 1e-18
"""Batches less likely than this are left out of a score: it costs that much power and never validity."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttendanceLaw:
    """The batches of one round that an observer to whom all other records are alike can tell apart."""

    others: np.ndarray
    record: np.ndarray
    """How many of the differing records are there."""
    probability: np.ndarray


def attendance_law(sampler: Sampler, records: int, group: int = 1) -> AttendanceLaw | None:
    """The law of one round; None for samplers whose rounds depend on each other."""
    if isinstance(sampler, FixedSize):
        record = np.arange(min(group, sampler.batch_size) + 1)
        weights = stats.hypergeom.pmf(record, records, group, sampler.batch_size)
        return _kept(sampler.batch_size - record, record, weights)
    if not isinstance(sampler, Poisson | TruncatedPoisson):
        return None
    others, record = (grid.ravel() for grid in np.meshgrid(np.arange(records - group + 1), np.arange(group + 1)))
    weights = stats.binom.pmf(others, records - group, sampler.rate) * stats.binom.pmf(record, group, sampler.rate)
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


def _kept(others: np.ndarray, record: np.ndarray, weights: np.ndarray) -> AttendanceLaw:
    likely = weights > NEGLIGIBLE
    return AttendanceLaw(others=others[likely], record=record[likely], probability=weights[likely])
