"""Right steps in unusual styles: none is accused."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import explain

RNG = np.random.default_rng(3)
X, Y = 2 * RNG.normal(size=(10, 4)).astype("f4"), np.sign(RNG.normal(size=10)).astype("f4")
W = RNG.normal(size=4).astype("f4")


def loss(w, x, y):
    return 3 * jnp.log1p(jnp.exp(-y * (x @ w)))


def unit(gradient):
    return gradient / jnp.maximum(1.0, jnp.linalg.norm(gradient))


def one(x, y):
    return unit(jax.grad(loss)(W, x, y))


def by_jacobian(data):
    """Of an identity matrix with one row for each record."""
    rows = jax.jacrev(lambda w: jax.vmap(loss, (None, 0, 0))(w, *data))(W)
    return jax.vmap(unit)(rows).sum(0)


def by_forward_mode(data):
    rows = jax.jacfwd(lambda w: jax.vmap(loss, (None, 0, 0))(w, *data))(W)
    return jax.vmap(unit)(rows).sum(0)


@jax.custom_vjp
def through(w):
    return w


through.defvjp(lambda w: (w, None), lambda _, gradient: (unit(gradient),))


def by_a_backward_pass(data):
    each = jnp.broadcast_to(W, (len(data[0]), 4))
    return jax.grad(lambda own: jax.vmap(lambda w, x, y: loss(through(w), x, y))(own, *data).sum())(each).sum(0)


def by_two_passes(data):
    lengths = jax.vmap(lambda x, y: jnp.linalg.norm(jax.grad(loss)(W, x, y)))(*data)
    factors = jax.lax.stop_gradient(jnp.minimum(1.0, 1 / lengths))
    return jax.grad(lambda w: factors @ jax.vmap(loss, (None, 0, 0))(w, *data))(W)


def in_shards(data):
    count, places = len(data[0]), -(-len(data[0]) // 3) * 3
    columns = [jnp.zeros((places, *own.shape[1:])).at[:count].set(own) for own in (*data, jnp.ones(count))]
    shards = [own.reshape(-1, 3, *own.shape[1:]).swapaxes(0, 1) for own in columns]
    return jax.vmap(lambda x, y, taken: taken @ jax.vmap(one)(x, y))(*shards).sum(0)


def one_after_the_other(data):
    return jax.lax.map(lambda pair: one(*pair), data, batch_size=2).sum(0)


def in_segments(data):
    return jax.ops.segment_sum(jax.vmap(one)(*data), jnp.arange(len(data[0])) % 3, num_segments=3)


@functools.partial(jax.jit, donate_argnums=(0,))
def plus(total, gradient):
    return total + gradient


def in_python(data):
    total = jnp.zeros(4)
    for x, y in zip(*data, strict=True):
        total = plus(total, one(x, y))
    return total


def cumulated(data):
    return jax.lax.associative_scan(jnp.add, jax.vmap(one)(*data))[-1]


STYLES = [by_jacobian, by_forward_mode, by_a_backward_pass, by_two_passes, in_shards, one_after_the_other]
STYLES += [in_segments, in_python, cumulated]


@pytest.mark.few(2)
@pytest.mark.parametrize("total", STYLES)
@pytest.mark.parametrize("records", [6, 7])
def test_right_steps_in_unusual_styles_are_left_alone(total, records):
    def step(key, data):
        own = total(data)
        return own + jax.random.normal(key, own.shape)

    pair = mechanisms.pair((X[:records], Y[:records]), (X[: records + 1], Y[: records + 1]), relation="add_remove")
    found = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert found.findings == ()
    assert all(own.judged and own.exact for own in found.rounds)
