"""Shards that add a share of the noise each and are summed before anybody sees them: one release with all of it."""

import math

import jax
import jax.numpy as jnp
import pytest

import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.findings import Kind

PAIR = mechanisms.worst_case_pair(records=7, dimension=5, clip=1.0)


def shards(rows):
    return jnp.pad(rows, ((0, len(rows) % 2), (0, 0))).reshape(2, -1, 5)


def noisy_sum(key, rows, number):
    clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
    return clipped.sum(0) + jax.random.normal(jax.random.fold_in(key, number), (5,)) / math.sqrt(2)


def over_the_axis(reduction):
    def step(key, rows):
        def shard(own):
            return reduction(noisy_sum(key, own, jax.lax.axis_index("shard")), "shard")

        return jax.vmap(shard, axis_name="shard")(shards(rows))[0]

    return step


def by_a_product(key, rows):
    parts = jax.vmap(lambda own, number: noisy_sum(key, own, number))(shards(rows), jnp.arange(2))
    return jnp.einsum("s,sd->d", jnp.ones(2), parts)


STEPS = {
    "psum": over_the_axis(jax.lax.psum),
    "psum of a tree": over_the_axis(lambda part, axis: jax.lax.psum({"sum": part, "twice": 2 * part}, axis)["sum"]),
    "pmean": over_the_axis(jax.lax.pmean),
    "all_gather": over_the_axis(lambda part, axis: jax.lax.all_gather(part, axis).sum(0)),
    "product": by_a_product,
}


@pytest.mark.parametrize("name", STEPS)
def test_shards_that_are_summed_unseen_have_the_noise_of_all(name):
    told = explain(STEPS[name], PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert not told.findings
    assert [one.multiplier for one in told.rounds] == [pytest.approx(1.0, rel=1e-5)]


def test_shards_whose_noise_is_too_little_together_are_named():
    told = explain(STEPS["psum"], PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.5)
    assert [one.kind for one in told.findings] == [Kind.TOO_LITTLE_NOISE]
    assert "multiplier of 1," in told.findings[0].says


def test_a_shard_that_is_seen_by_itself_has_its_own_noise():
    def step(key, rows):
        return jax.vmap(lambda own, number: noisy_sum(key, own, number))(shards(rows), jnp.arange(2))

    told = explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in told.findings] == [Kind.TOO_LITTLE_NOISE]
