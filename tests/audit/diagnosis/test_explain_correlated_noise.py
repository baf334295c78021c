"""Releases whose noise shares random numbers, as in DP-FTRL: they cost what their joint law says."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = 10 * np.random.default_rng(0).normal(size=(4, 12)).astype("f4")
NODES = np.zeros((4, 7), "f4")
NODES[[0, 1, 2, 2, 3], [0, 4, 4, 2, 6]] = 1


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))


def drawn(key, rows):
    return jnp.cumsum(clipped(rows), 0), 4 * jax.random.normal(key, (7, rows.shape[1]))


def one_by_one(key, rows):
    sums, z = drawn(key, rows)
    return jnp.stack([sums[0] + z[0], sums[1] + z[4], sums[2] + z[4] + z[2], sums[3] + z[6]])


def together(key, rows):
    sums, z = drawn(key, rows)
    return jnp.stack([sums[0] + z[0], sums[1] + z[4], sums[2] + (z[4] + z[2]), sums[3] + z[6]])


def of_a_matrix(key, rows):
    sums, z = drawn(key, rows)
    return sums + NODES @ z


def of_a_key_each(key, rows):
    sums, z = jnp.cumsum(clipped(rows), 0), lambda node: 4 * jax.random.normal(jax.random.fold_in(key, node), (12,))
    return jnp.stack([sums[0] + z(0), sums[1] + z(4), sums[2] + (z(4) + z(2)), sums[3] + z(6)])


def banded(key, rows):
    def take(before, own):
        noise = 2.0 * jax.random.normal(own[1], (12,))
        return noise, own[0] + noise - 0.5 * before

    return jax.lax.scan(take, jnp.zeros(12), (clipped(rows), jax.random.split(key, 4)))[1]


def hardly_covered(key, rows):
    kept, z = clipped(rows), jax.random.normal(key, (2, 12))
    return kept[:2].sum(0) + z[0], kept.sum(0) + (z[0] + 0.1 * z[1])


def told(step, claimed, record=0):
    pair = mechanisms.zero_out(ROWS, record)
    return explain(step, pair, key=jax.random.key(0), claim=guarantees.gaussian(mu=claimed))


@pytest.mark.parametrize("record", range(4))
@pytest.mark.parametrize("step", [one_by_one, together, of_a_matrix, of_a_key_each])
def test_a_tree_costs_what_its_nodes_do(step, record):
    moved = np.arange(4) >= record
    mu = math.sqrt(moved @ np.linalg.solve(16 * NODES @ NODES.T, moved))
    right = told(step, mu, record)
    assert right.findings == ()
    assert [one.kind for one in told(step, mu / 1.1, record).findings] == [Kind.TOO_LITTLE_NOISE]
    assert right.rounds[0].multiplier == pytest.approx(1 / mu, rel=1e-4)


@pytest.mark.parametrize("record", [0, 1])
def test_rounds_of_a_loop_that_share_noise_are_not_judged_one_by_one(record):
    explained = told(banded, 0.447, record)
    assert [one.kind for one in explained.findings] == [Kind.NOT_FOLLOWED]
    assert "rounds share random numbers" in explained.findings[0].says
    assert not any(one.judged for one in explained.rounds)


def test_noise_that_another_release_shows_covers_nothing():
    (found,) = told(hardly_covered, 1.0, record=3).suspicions
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert "a noise multiplier of 0.1" in found.says
