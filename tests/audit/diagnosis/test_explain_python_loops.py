"""Loops over records that Python runs: the larger side has one turn more, and other keys after it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = 3 * np.random.default_rng(0).normal(size=(5, 4)).astype("f4")
PAIR = mechanisms.pair(ROWS[:-1], ROWS)
RIGHT, LOCAL = {}, {}


def right(step):
    RIGHT[step.__name__] = step
    return step


def local(step):
    LOCAL[step.__name__] = step
    return step


def clipped(row):
    return row / jnp.maximum(1.0, jnp.linalg.norm(row))


def noise(key):
    return jax.random.normal(key, (4,))


@right
def noise_after_the_last_key(key, rows, deviation=1.0):
    total = jnp.zeros(4)
    for row in rows:
        key, own = jax.random.split(key)
        total = total + jax.random.bernoulli(own) * clipped(row)
    return total + deviation * noise(key)


@right
def two_rounds(key, rows):
    weights = jnp.zeros(4)
    for _ in range(2):
        total = 0.0
        for number in range(len(rows)):
            key, own = jax.random.split(key)
            total = total + jax.random.bernoulli(own) * clipped(rows[number] - weights)
        key, own = jax.random.split(key)
        weights = weights - 0.1 * (total + noise(own))
    return weights


@right
def entries_left_out(key, rows):
    key, last = jax.random.split(key)
    found = []
    for row in rows:
        key, own = jax.random.split(key)
        found.append(clipped(jnp.where(jax.random.bernoulli(own, 0.8, (4,)), row, 0.0)))
    return jnp.stack(found).sum(0) + noise(last)


@right
def from_the_last_to_the_first(key, rows):
    total = jnp.zeros(4)
    for number in reversed(range(len(rows))):
        key, own = jax.random.split(key)
        total = total + jax.random.bernoulli(own) * clipped(rows[number])
    return total + noise(key)


@right
def groups(key, rows):
    total = jnp.zeros(4)
    for first in range(0, len(rows), 2):
        key, own = jax.random.split(key)
        part = rows[first : first + 2]
        taken = jax.random.bernoulli(own, 0.5, (len(part),)).astype("f4")
        total = total + taken @ jax.vmap(clipped)(part)
    return total + noise(key)


@local
def noise_for_each(key, rows):
    total = 0.0
    for number, row in enumerate(rows):
        total = total + clipped(row) + noise(jax.random.fold_in(key, number))
    return total


@local
def noise_for_each_of_a_chain(key, rows):
    total = 0.0
    for row in rows:
        key, own = jax.random.split(key)
        total = total + clipped(row) + noise(own)
    return total


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_loops_have_the_noise_that_is_stated(name):
    found = explain(RIGHT[name], PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert found.findings == ()
    assert {round(told.multiplier, 3) for told in found.rounds} <= {1.0, float("inf")}


@pytest.mark.parametrize("name", LOCAL)
def test_noise_that_each_record_brings_is_not_judged(name):
    found = explain(LOCAL[name], PAIR, key=jax.random.key(0), clip=1.0)
    assert found.suspicions == ()
    assert "not followed" in str(found)


def test_too_little_noise_after_a_loop_is_found():
    def step(key, rows):
        return noise_after_the_last_key(key, rows, 0.5)

    (found,) = explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).suspicions
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert "standard deviation 0.5:" in found.says
