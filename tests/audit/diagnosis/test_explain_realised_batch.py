"""A sum that is divided by the number of records in its drawn batch, before it gets noise for the expected number."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = np.random.default_rng(3).normal(size=(6, 20)).astype(np.float32)
PAIR = mechanisms.add_record(ROWS, -8 * ROWS.sum(0))
CLAIM = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=2.0)


def sampled(key, rows):
    choose, noise = jax.random.split(key)
    taken = jax.random.bernoulli(choose, 0.5, (len(rows),)).astype(jnp.float32)
    clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
    return taken, clipped, jax.random.normal(noise, (20,))


def of_the_sum(key, rows):
    taken, clipped, noise = sampled(key, rows)
    mean = taken @ clipped / jnp.maximum(taken.sum(), 1.0)  # wrong
    return mean + 2.0 / 3.0 * noise


def of_weights(key, rows):
    taken, clipped, noise = sampled(key, rows)
    weights = taken / jnp.maximum(taken.sum(), 1.0)  # wrong
    return weights @ clipped + 2.0 / 3.0 * noise


def with_least(least, moved):
    def step(key, rows):
        taken, clipped, noise = sampled(key, rows)
        return taken @ clipped / jnp.maximum(taken.sum(), least) + 2.0 * moved * noise

    return step


def expected(key, rows):
    taken, clipped, noise = sampled(key, rows)
    return taken @ clipped / 3.0 + 2.0 / 3.0 * noise


@pytest.mark.parametrize("stated", [{}, {"clip": 1.0, "noise_multiplier": 2.0}])
@pytest.mark.parametrize("step", [of_the_sum, of_weights])
def test_a_mean_over_the_drawn_batch_is_found_where_it_divides(step, stated):
    """It said that nothing was found: with others in the batch the record moves their mean by less."""
    (found,) = explain(mechanisms.mechanism(step, **stated), PAIR, key=jax.random.key(0), claim=CLAIM).findings
    source, start = inspect.getsourcelines(step)
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert found.lines[0] == (__file__, start + next(place for place, one in enumerate(source) if "# wrong" in one))
    assert "alone in its batch" in found.says


@pytest.mark.parametrize("step", [expected, with_least(1.0, 1.0), with_least(4.0, 0.4)])
def test_noise_for_the_fewest_records_that_a_batch_is_divided_by_is_enough(step):
    """A mean of 4 records, to which a fifth comes, moves by up to two fifths of a clipping norm."""
    assert explain(step, PAIR, key=jax.random.key(0), claim=CLAIM).findings == ()
