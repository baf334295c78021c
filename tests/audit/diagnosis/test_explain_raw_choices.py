"""Raw data that become a choice, by a comparison, ``argmax`` or ``top_k``, and then meet a release or are one."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mechanisms
from audit.diagnosis.explain import Kind, explain

VOTES = np.array([0, 0, 0, 1, 1, 2, 0, 1], np.int32)


def counts(votes):
    return jax.nn.one_hot(votes, 3).sum(0)


def agreed(key, votes):
    noisy = counts(votes) + 2.0 * jax.random.normal(key, (3,))
    sure = jnp.max(counts(votes)) > 3.5  # wrong
    label = jnp.argmax(noisy)
    return jnp.where(sure, label, -1)


def largest(key, votes):
    noisy = counts(votes) + 2.0 * jax.random.normal(key, (3,))
    places = lax.top_k(counts(votes), 1)[1]  # wrong
    kept = noisy[places]
    return jnp.zeros(3).at[places].set(kept)


def above(values, bound):
    return values > bound


def by_a_helper(key, votes):
    noisy = counts(votes) + 2.0 * jax.random.normal(key, (3,))
    kept = above(counts(votes), 3.5)  # wrong
    zeros = jnp.zeros(3)
    return jnp.where(kept, noisy, zeros)


def agreed_noisily(key, votes):
    first, second = jax.random.split(key)
    sure = jnp.max(counts(votes) + 2.0 * jax.random.normal(first, (3,))) > 3.5
    return jnp.where(sure, jnp.argmax(counts(votes) + 2.0 * jax.random.normal(second, (3,))), -1)


def told(step, other):
    return explain(step, mechanisms.replace_record(VOTES, 0, other), key=jax.random.key(0))


@pytest.mark.parametrize(("step", "other"), [(agreed, 2), (largest, 1), (by_a_helper, 2)])
def test_the_line_that_chooses_by_raw_data_stands_first(step, other):
    found = told(step, np.int32(other)).findings[0]
    source, start = inspect.getsourcelines(step)
    assert found.kind in (Kind.CHANGED_AFTER_RELEASE, Kind.RELEASED_WITHOUT_NOISE)
    assert found.lines[0] == (__file__, start + next(place for place, one in enumerate(source) if "# wrong" in one))


def test_a_noisy_choice_is_right():
    assert told(agreed_noisily, np.int32(2)).suspicions == ()


def test_raw_data_that_are_released_and_the_same_on_both_sides_are_not_judged():
    """It said that nothing was found: the largest of two counts is 4 with either record."""

    def step(key, votes):
        return jnp.argmax(counts(votes) + jax.random.gumbel(key, (3,))), jnp.max(counts(votes))

    (found,) = told(step, np.int32(1)).findings
    assert "releases what raw data make" in found.says


def test_a_sum_that_vmap_gives_to_every_record_mixes_none():
    rows = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)

    def step(key, rows):
        def of_each(row):
            return lax.psum(row / jnp.maximum(1.0, jnp.linalg.norm(row)), "records")

        return jax.vmap(of_each, axis_name="records")(rows)[0] + jax.random.normal(key, (8,))

    pair = mechanisms.add_record(rows, 9 * rows[0])
    assert explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings == ()
