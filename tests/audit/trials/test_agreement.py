"""A run whose counts contradict its own trials raises: a warm compilation cache once made every count zero."""

import jax
import numpy as np
import pytest

import audit
from audit.trials.agreement import require_agreement
from audit.trials.source import Source, WrongCountsError, tally
from audit.trials.traced import CompiledSource
from guarantees import gaussian
from mechanisms import worst_case_pair

EDGES = np.array([[-1.0, 0.0, 1.0]], np.float32)
KNOWN = np.random.default_rng(3).normal(size=(100, 1)).astype(np.float32)


class Counting(Source):
    """Scores that are known, and counts that may be of anything else."""

    chunk = 100

    def __init__(self, counted):
        self._counted = counted

    def scores(self, start, stop):
        return KNOWN[start:stop]

    def cells(self, start, stop, edges):
        place = np.searchsorted(edges[0], self._counted[start:stop, 0], side="left")
        return np.bincount(place, minlength=edges.shape[1] + 1)[None]


class Losing(Counting):
    """Every count is zero."""

    def cells(self, start, stop, edges):
        return np.zeros((1, edges.shape[1] + 1), np.int64)


@pytest.mark.parametrize("counted", [KNOWN, KNOWN * (1 + 1e-6), KNOWN + 1e-4])
def test_rounding_is_no_contradiction(counted):
    require_agreement(Counting(counted), KNOWN, EDGES, name="with")


@pytest.mark.parametrize("counted", [np.zeros_like(KNOWN), -KNOWN - 1, KNOWN + 2, np.full_like(KNOWN, -9)])
def test_counts_of_other_scores_are_refused(counted):
    with pytest.raises(WrongCountsError, match=r"contradict the scores of the same trials.*DPSGD_AUDIT_CACHE=off"):
        require_agreement(Counting(counted), KNOWN, EDGES, name="with")


def test_a_source_whose_every_count_is_zero_is_refused():
    with pytest.raises(WrongCountsError, match="trials were drawn but"):
        tally(Losing(KNOWN), Counting(KNOWN), edges=EDGES, trials_per_side=50)


def test_an_audit_whose_program_counts_wrongly_raises(monkeypatch):
    def all_in_one_cell(self, start, stop, edges):
        del self
        counts = np.zeros((edges.shape[0], edges.shape[1] + 1), np.int64)
        counts[:, 0] = stop - start
        return counts

    monkeypatch.setattr(CompiledSource, "cells", all_in_one_cell)
    pair = worst_case_pair(records=2, dimension=3, clip=1.0)

    def step(key, gradients):
        return gradients.sum(0) + jax.random.normal(key, gradients.shape[1:])

    with pytest.raises(WrongCountsError, match="on the side 'without'"):
        audit.run_audit(
            step,
            pair,
            lambda output: output[0],
            claim=gaussian(mu=1.0),
            trials=400,
            risk=0.05,
            key=jax.random.key(0),
        )
