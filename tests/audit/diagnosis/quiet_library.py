"""A small library for private training in functions that call one another, with one bug at a time, marked by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import mechanisms

RATE, CLIP, NOISE, STEPS, EXPECTED = 0.5, 1.0, 1.0, 3, 4.0
_first, _last = jax.random.split(jax.random.key(42))
MODEL = {
    "dense": {"w": 0.5 * jax.random.normal(_first, (6, 5)), "b": jnp.zeros(5)},
    "head": {"w": 0.5 * jax.random.normal(_last, (5, 3)), "b": jnp.zeros(3)},
}
BUG = ""


def pair():
    data = {"x": np.random.default_rng(3).normal(size=(7, 6)).astype("f4"), "y": (np.arange(7) % 3).astype("i4")}
    return mechanisms.add_record(data, {"x": np.full(6, 4.0, "f4"), "y": np.int32(2)})


def loss(model, row):
    hidden = jnp.tanh(row["x"] @ model["dense"]["w"] + model["dense"]["b"])
    return -jax.nn.log_softmax(hidden @ model["head"]["w"] + model["head"]["b"])[row["y"]]


def count(data):
    return data["y"].shape[0]


def poisson_mask(key, records, rate):
    return jax.random.bernoulli(key, rate, (records,)).astype("f4")


def masked_sum(rows, mask):
    if BUG == "mask_ignored":
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), rows)  # BUG: mask_ignored
    return jax.tree.map(lambda leaf: jnp.tensordot(mask, leaf, axes=1), rows)


def length(tree):
    if BUG == "norm_without_head":
        tree = tree["dense"]
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))  # BUG: norm_without_head


def factor(tree, clip):
    size = jnp.maximum(length(tree), 1e-12)
    return jnp.minimum(1.0, clip / size)


def clip_record(tree, clip):
    if BUG == "per_leaf":
        return jax.tree.map(lambda leaf: leaf * factor(leaf, clip), tree)  # BUG: per_leaf
    by = factor(tree, clip)
    return jax.tree.map(lambda leaf: leaf * by, tree)


def clip_all(rows, clip):
    if BUG == "mean_norm":
        by = jnp.minimum(1.0, clip / jnp.mean(jax.vmap(length)(rows)))  # BUG: mean_norm
        return jax.tree.map(lambda leaf: leaf * by, rows)
    if BUG == "median":
        clip = jnp.minimum(clip, 0.25 * jnp.median(jax.vmap(length)(rows)))  # BUG: median
    if BUG == "idle_median":
        clip = jnp.minimum(clip, jnp.median(jax.vmap(length)(rows)))  # BUG: idle_median
    return jax.vmap(clip_record, in_axes=(0, None))(rows, clip)


def draw(key, leaf, deviation):
    if BUG == "scalar":
        return deviation * jax.random.normal(key, ())  # BUG: scalar
    if BUG == "tiled":
        return deviation * jnp.resize(jax.random.normal(key, (3,)), leaf.shape)  # BUG: tiled
    if BUG == "bias":
        return (deviation if leaf.ndim > 1 else 0.0) * jax.random.normal(key, leaf.shape)  # BUG: bias
    return deviation * jax.random.normal(key, leaf.shape)


def noise_like(key, tree, deviation):
    leaves, form = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(form, [draw(own, leaf, deviation) for own, leaf in zip(keys, leaves, strict=True)])


def add_noise(key, tree, deviation):
    if BUG == "over_leaves":
        noise = noise_like(key, tree, deviation / len(jax.tree.leaves(tree)) ** 0.5)  # BUG: over_leaves
    else:
        noise = noise_like(key, tree, deviation)
    if BUG == "flipped":
        return jax.tree.map(lambda leaf, own: leaf + (own + jnp.flip(own)) / 2**0.5, tree, noise)  # BUG: flipped
    if BUG == "more":
        shared = jax.random.normal(jax.random.fold_in(key, 99), ())
        return jax.tree.map(lambda leaf, own: leaf + own + shared, tree, noise)
    return jax.tree.map(jnp.add, tree, noise)


def private_gradient(key, model, data):
    batch, noise = jax.random.split(key)
    if BUG == "key_from_data":
        noise = jax.random.key(count(data))  # BUG: key_from_data
    if BUG == "rate":
        mask = poisson_mask(batch, count(data), EXPECTED / count(data))  # BUG: rate
    else:
        mask = poisson_mask(batch, count(data), RATE)
    rows = clip_all(jax.vmap(jax.grad(loss), in_axes=(None, 0))(model, data), CLIP)
    if BUG == "class_weight":
        mask = mask / jnp.bincount(data["y"], length=3)[data["y"]]  # BUG: class_weight
    total = masked_sum(rows, mask)
    if BUG == "batch_key":
        noisy = add_noise(batch, total, NOISE * CLIP)  # BUG: batch_key
    elif BUG == "half":
        noisy = add_noise(noise, total, 0.5 * NOISE * CLIP)  # BUG: half
    else:
        noisy = add_noise(noise, total, NOISE * CLIP)
    if BUG == "raw_norm":
        by = factor(total, 3 * CLIP)
        return jax.tree.map(lambda leaf: by * leaf / EXPECTED, noisy)  # BUG: raw_norm
    if BUG == "empty":
        return jax.tree.map(lambda leaf: jnp.where(mask.sum() > 0, leaf, 0.0), noisy)  # BUG: empty
    return jax.tree.map(lambda leaf: leaf / EXPECTED, noisy)


def train(key, data):
    def body(model, own):
        gradient = private_gradient(own, model, data)
        return jax.tree.map(lambda leaf, step: leaf - 0.1 * step, model, gradient), None

    keys = jax.random.split(key, STEPS)
    if BUG == "same_key":
        keys = jnp.stack([key] * STEPS)  # BUG: same_key
    return jax.lax.scan(body, MODEL, keys)[0]


def step(key, data):
    return private_gradient(key, MODEL, data)
