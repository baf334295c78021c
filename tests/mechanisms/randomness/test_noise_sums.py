"""Sums of a vector of normals, drawn without the vector."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import distinguishers
import mechanisms
from audit.trials import traced
from audit.trials.keys import trial_number
from mechanisms.randomness.noise import normal
from mechanisms.randomness.noise_sums import normal_sums

KEY = jax.random.key(3)


LONG = pytest.mark.long


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("size", "first"),
    [
        (7, 2),
        (39, 2),
        (1025, 2),
        (26_010, 1),
        *(pytest.param(size, first, marks=LONG) for size, first in ((1, 1), (17, 4), (100, 5), (1024, 3), (2079, 33))),
    ],
)
def test_sums_are_those_of_the_vector(size: int, first: int):
    drawn = np.asarray(normal(KEY, (size,)), float)
    sums = normal_sums(KEY, size, first)
    assert np.allclose(sums.first, drawn[:first], rtol=0, atol=1e-6)
    assert float(sums.excess) == pytest.approx(np.sum(drawn[first:] ** 2 - 1), abs=1e-5 + 2e-7 * size)


@pytest.mark.long
@pytest.mark.parametrize("normalise_by", ["expected_batch", pytest.param("realised_batch", marks=LONG)])
def test_the_ratio_of_the_sums_is_that_of_the_vector(normalise_by):
    pair = mechanisms.worst_case_pair(records=4, dimension=3000, clip=0.1)
    step = mechanisms.one_round(normalise_by=normalise_by, rate=0.5, clip=0.1, noise_multiplier=10.0)
    ratio = distinguishers.likelihood_ratio(step, pair)
    program = traced.compile_program(step, pair.with_record, ratio, side="with", chunk=8)
    found = np.asarray(program.score_chunk(KEY, trial_number(0)))[:, 0]
    outputs = traced.TracedSides(mechanism=step, neighbours=pair)._draw("with", 8)(KEY, trial_number(0))
    expected = np.asarray(jax.jit(jax.vmap(lambda output: ratio(KEY, output)))(outputs))
    assert np.ptp(expected) > 1
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-3 * np.std(expected))
