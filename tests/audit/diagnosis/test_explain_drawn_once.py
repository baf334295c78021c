"""Numbers that NumPy or Python draws while JAX traces: constants of the program, on both sides the same."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain
from audit.diagnosis.explain.jaxprs.drawn_once import ONCE, Alike

ROWS = np.random.default_rng(0).normal(size=(6, 20)).astype(np.float32)
PAIR = mechanisms.add_record(ROWS, -8 * ROWS.sum(0))


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))


def of_numpy(key, rows):
    return clipped(rows).sum(0) + np.random.normal(size=20)  # noqa: NPY002


def of_a_generator(key, rows):
    return clipped(rows).sum(0) + np.random.default_rng().normal(size=20)


def of_python(key, rows):
    return clipped(rows).sum(0) + jnp.array([random.gauss(0, 1) for _ in range(20)])


def batch(key, rows):
    taken = np.random.random(len(rows)) < 0.9  # noqa: NPY002
    return jnp.asarray(taken, jnp.float32) @ clipped(rows) + jax.random.normal(key, (20,))


def weights(key, rows):
    start = np.random.default_rng().normal(size=20).astype(np.float32)
    return clipped(rows - start).sum(0) + jax.random.normal(key, (20,))


def shuffled(key, rows):
    start = np.random.permutation(20)  # noqa: NPY002
    return clipped(rows)[:, start].sum(0) + jax.random.normal(key, (20,))


def told(step, claim=None):
    return explain(step, PAIR, key=jax.random.key(0), claim=claim)


@pytest.mark.parametrize("step", [of_numpy, of_a_generator, of_python])
def test_noise_that_is_drawn_once_is_none_and_that_is_said(step):
    (found,) = told(step).findings
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE
    assert found.says.endswith(ONCE)


def test_a_batch_that_is_drawn_once_is_said_to_be():
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    (found,) = told(batch, claim).findings
    assert found.kind == Kind.IN_EVERY_BATCH
    assert found.says.endswith(ONCE)


@pytest.mark.parametrize("step", [weights, shuffled])
def test_public_numbers_that_are_drawn_once_are_no_fault(step):
    """They were others on each side, and so said to mix records."""
    assert told(step, guarantees.gaussian(mu=1.0)).findings == ()


def test_the_users_generators_go_on_as_before():
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    once = Alike(lambda: (np.random.random(), random.random()))  # noqa: NPY002
    assert once() == once() != (np.random.random(), random.random())  # noqa: NPY002
    again = np.random.RandomState(3), random.Random(3)
    assert (again[0].random(2)[1], [again[1].random() for _ in range(2)][1]) == (np.random.random(), random.random())  # noqa: NPY002
