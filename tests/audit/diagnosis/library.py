"""A small DP library of a stranger's with a switch for each bug: gradients of a network, trees of leaves, helpers."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import mechanisms

CLIP, NOISE, WIDTH = 0.5, 1.0, 6


def weights():
    first, second = jax.random.split(jax.random.key(42))
    return {
        "hidden": {"w": 0.3 * jax.random.normal(first, (WIDTH, 4)), "b": jnp.zeros(4)},
        "out": {"w": 0.3 * jax.random.normal(second, (4,)), "b": jnp.zeros(())},
    }


def loss(params, example):
    h = jax.nn.relu(example["x"] @ params["hidden"]["w"] + params["hidden"]["b"])
    logit = h @ params["out"]["w"] + params["out"]["b"]
    return jnp.logaddexp(0.0, -(2.0 * example["y"] - 1.0) * logit)


def norms_of(grads):
    return jnp.sqrt(sum(jnp.sum(g.reshape(g.shape[0], -1) ** 2, axis=1) for g in jax.tree.leaves(grads)))


def clipped_sum(grads, mask, bug):
    if bug == "inverted":
        scale = mask * jnp.maximum(1.0, CLIP / jnp.maximum(norms_of(grads), 1e-12))  # wrong: inverted
    elif bug == "per_leaf":
        return jax.tree.map(functools.partial(clipped_leaf, mask), grads)  # wrong: per_leaf
    else:
        scale = mask * jnp.minimum(1.0, CLIP / jnp.maximum(norms_of(grads), 1e-12))
    return jax.tree.map(lambda g: jnp.tensordot(scale, g, axes=1), grads)


def clipped_leaf(mask, g):
    scale = mask * jnp.minimum(1.0, CLIP / jnp.maximum(norms_of(g), 1e-12))
    return jnp.tensordot(scale, g, axes=1)


def add_noise(key, tree, deviation):
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + deviation * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(treedef, noisy)


def dp_step(key, data, bug=""):
    key_batch, key_noise = jax.random.split(key)
    if bug == "padded":
        data = jax.tree.map(  # wrong: padded
            lambda a: jnp.pad(a, [(0, -len(a) % 4)] + [(0, 0)] * (a.ndim - 1), mode="edge"), data
        )
    mask = jax.random.bernoulli(key_batch, 0.5, (len(data["y"]),)).astype(jnp.float32)
    grads = jax.vmap(jax.grad(loss), in_axes=(None, 0))(weights(), data)
    total = clipped_sum(grads, mask, bug)
    if bug == "constant_key":
        return add_noise(jax.random.key(0), total, NOISE * CLIP)  # wrong: constant_key
    if bug == "no_noise":
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights(), total)
    if bug == "scale_handed":
        return add_noise(key_noise, total, 0.9 * NOISE * CLIP)  # wrong: scale_handed
    return add_noise(key_noise, total, NOISE * CLIP)


def step(bug=""):
    return mechanisms.mechanism(functools.partial(dp_step, bug=bug), clip=CLIP, noise_multiplier=NOISE)


def pair():
    data = {
        "x": np.random.default_rng(0).normal(size=(4, WIDTH)).astype(np.float32),
        "y": (np.arange(4) % 2).astype(np.float32),
    }
    return mechanisms.add_record(data, {"x": 20 * np.ones(WIDTH, np.float32), "y": np.float32(0)})


def wrong_line(bug):
    """Where the switch does its harm."""
    with open(__file__) as source:
        (found,) = [number for number, line in enumerate(source, 1) if line.rstrip().endswith(f"# wrong: {bug}")]
    return __file__, found
