"""A small library as people write one: a function each for batches, clipping and noise, and wrong calls of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mechanisms

CLIP, NOISE, RATE, WIDTH, INNER = 1.0, 1.0, 0.5, 5, 3
MODEL = {
    "hidden": {
        "kernel": jnp.linspace(-1.0, 1.0, WIDTH * INNER).reshape(WIDTH, INNER),
        "bias": jnp.linspace(0.1, 0.3, INNER),
    },
    "last": {"kernel": jnp.linspace(0.5, 1.5, INNER).reshape(INNER, 1), "bias": jnp.zeros(1)},
}


def pair(records: int = 5):
    random = np.random.default_rng(1)
    x, y = random.normal(size=(records, WIDTH)).astype(np.float32), random.normal(size=records).astype(np.float32)
    x[-1], y[-1] = 8 * x[-1], 40.0
    return mechanisms.pair((x[:-1], y[:-1]), (x, y), relation="add_remove")


def loss(model, x, y):
    hidden = x @ model["hidden"]["kernel"] + model["hidden"]["bias"]
    return jnp.square(hidden @ model["last"]["kernel"] + model["last"]["bias"] - y).sum() / 2


def poisson_batch(key, data, rate):
    """The records that were taken first, and a mask."""
    taken = jax.random.bernoulli(key, rate, (len(data[0]),))
    order = jnp.argsort(~taken, stable=True)
    return jax.tree.map(lambda column: jnp.asarray(column)[order], data), taken[order].astype(jnp.float32)


def clip_records(gradients):
    lengths = jax.vmap(optax.tree.norm)(gradients)
    factors = jnp.minimum(1.0, CLIP / jnp.maximum(lengths, 1e-12))
    return jax.tree.map(lambda g: g * factors.reshape((-1,) + (1,) * (g.ndim - 1)), gradients)


def clip_kernels(gradients):
    lengths = jax.vmap(optax.tree.norm)(gradients)
    factors = jnp.minimum(1.0, CLIP / jnp.maximum(lengths, 1e-12))
    return jax.tree.map(
        lambda g: g * factors.reshape((-1,) + (1,) * (g.ndim - 1)) if g.ndim > 2 else g,  # BUG
        gradients,
    )


def add_noise(key, total, deviation):
    leaves, form = jax.tree.flatten(total)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + deviation * jax.random.normal(own, leaf.shape) for own, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(form, noisy)


def noise_on_the_first(key, total, deviation):
    leaves, form = jax.tree.flatten(total)
    noisy = [leaves[0] + deviation * jax.random.normal(key, leaves[0].shape), *leaves[1:]]  # BUG
    return jax.tree.unflatten(form, noisy)


def summed(key, data, *, rate=RATE, clip=clip_records, model=MODEL):
    batch, mask = poisson_batch(key, data, rate)
    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(model, *batch)
    return mask, jax.tree.map(lambda g: jnp.tensordot(mask, g, axes=1), clip(gradients))


def right(key, data):
    key_batch, key_noise = jax.random.split(key)
    return add_noise(key_noise, summed(key_batch, data)[1], NOISE * CLIP)


def noise_by_the_drawn_batch(key, data):
    key_batch, key_noise = jax.random.split(key)
    mask, total = summed(key_batch, data)
    realised = mask.mean() / RATE  # BUG
    return add_noise(key_noise, total, NOISE * CLIP * realised)


def noise_by_the_number_of_records(key, data):
    key_batch, key_noise = jax.random.split(key)
    mask, total = summed(key_batch, data)
    total = jax.tree.map(lambda leaf: leaf / jnp.maximum(mask.sum(), 1), total)
    return add_noise(key_noise, total, NOISE * CLIP / (RATE * len(mask)))  # BUG


def biases_not_clipped(key, data):
    key_batch, key_noise = jax.random.split(key)
    return add_noise(key_noise, summed(key_batch, data, clip=clip_kernels)[1], NOISE * CLIP)


def first_leaf_only(key, data):
    key_batch, key_noise = jax.random.split(key)
    return noise_on_the_first(key_noise, summed(key_batch, data)[1], NOISE * CLIP)


def first_leaf_only_twice(key, data):
    model = MODEL
    for own in jax.random.split(key, 2):
        key_batch, key_noise = jax.random.split(own)
        noisy = noise_on_the_first(key_noise, summed(key_batch, data, model=model)[1], NOISE * CLIP)
        model = jax.tree.map(lambda weight, step: weight - 0.1 * step, model, noisy)
    return model


def rate_of_the_number_of_records(key, data):
    count = len(data[0])
    key_batch, key_noise = jax.random.split(key)
    total = summed(key_batch, data, rate=RATE * count / (count - 1))[1]
    return add_noise(key_noise, total, NOISE * CLIP)


def rate_by_hand(key, data):
    count = len(data[0])
    key_batch, key_noise = jax.random.split(key)
    gradients = clip_records(jax.vmap(jax.grad(loss), (None, 0, 0))(MODEL, *data))
    mask = jax.random.uniform(key_batch, (count,)) < 3 / count  # BUG
    total = jax.tree.map(lambda g: jnp.tensordot(mask.astype(jnp.float32), g, axes=1), gradients)
    return add_noise(key_noise, total, NOISE * CLIP)
