"""Steps of a network whose gradients are bounded by nature: they do not grow with the record."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mechanisms

CLIP, NOISE, RATE, BATCH = 1.0, 1.0, 0.6, 2
_random = np.random.default_rng(3)
WEIGHTS = {
    "first": jnp.asarray(_random.normal(size=(5, 4)), jnp.float32),
    "bias": jnp.zeros(4),
    "second": jnp.asarray(_random.normal(size=(4, 3)), jnp.float32),
}


def added():
    """A record more, among four whose gradients are longer than the bound."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(5, 5)).astype(np.float32), np.array([0, 1, 2, 0, 2])
    x[4] *= 3
    return mechanisms.pair({"x": x[:4], "y": y[:4]}, {"x": x, "y": y}, relation="add_remove")


def loss(weights, record):
    hidden = jnp.tanh(record["x"] @ weights["first"] + weights["bias"])
    return -jax.nn.log_softmax(hidden @ weights["second"])[record["y"]]


def gradients(data):
    return jax.vmap(jax.grad(loss), (None, 0))(WEIGHTS, data)


def bounded(tree, bound=CLIP):
    """The tree no longer than the bound."""
    length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))
    factor = jnp.minimum(1.0, bound / jnp.maximum(length, 1e-9))
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def summed(key, rows, count):
    taken = jax.random.bernoulli(key, RATE, (count,)).astype(jnp.float32)
    return jax.tree.map(lambda leaf: jnp.tensordot(taken, leaf, axes=1), rows)


def noisy(key, tree, deviation):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten(
        [leaf + deviation * jax.random.normal(own, leaf.shape) for own, leaf in zip(keys, leaves, strict=True)]
    )


def mean(tree):
    return jax.tree.map(lambda leaf: leaf / BATCH, tree)


def clipped_again(key, data):
    """Right: a sum of clipped records is bounded once more."""
    first, second = jax.random.split(key)
    total = summed(first, jax.vmap(bounded)(gradients(data)), len(data["y"]))
    return noisy(second, mean(bounded(total)), NOISE * CLIP / BATCH)


def clipped_again_by_optax(key, data):
    """Right."""
    first, second = jax.random.split(key)
    total = mean(summed(first, jax.vmap(bounded)(gradients(data)), len(data["y"])))
    total, _ = optax.clip_by_global_norm(CLIP / BATCH).update(total, optax.EmptyState())
    return noisy(second, total, NOISE * CLIP / BATCH)


def mean_bounded(key, data):
    """Wrong: the mean is bounded, not each record."""
    first, second = jax.random.split(key)
    total = bounded(mean(summed(first, gradients(data), len(data["y"]))), CLIP / BATCH)  # BUG
    return noisy(second, total, NOISE * CLIP / BATCH)


def bounded_by_optax(key, data):
    """Wrong: the sum is bounded, not each record."""
    first, second = jax.random.split(key)
    total = summed(first, gradients(data), len(data["y"]))
    total, _ = optax.clip_by_global_norm(CLIP).update(total, optax.EmptyState())  # BUG
    return noisy(second, mean(total), NOISE * CLIP / BATCH)


def microbatches_bounded(key, data):
    """Wrong: the sums of pairs are bounded, not each record."""
    first, second = jax.random.split(key)
    taken = jax.random.bernoulli(first, RATE, (len(data["y"]),)).astype(jnp.float32)
    missing = 6 - len(data["y"])
    columns = [jnp.pad(own, [(0, missing)] + [(0, 0)] * (own.ndim - 1)) for own in (data["x"], data["y"], taken)]
    x, y, present = (own.reshape(3, 2, *own.shape[1:]) for own in columns)

    def add(total, group):
        rows, weights = {"x": group[0], "y": group[1]}, group[2]
        found = jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), gradients(rows))
        return jax.tree.map(jnp.add, total, bounded(found)), None  # BUG

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, WEIGHTS), (x, y, present))
    return noisy(second, total, NOISE * CLIP)


RIGHT = {step.__name__: step for step in (clipped_again, clipped_again_by_optax)}
FAULTY = {step.__name__: step for step in (mean_bounded, bounded_by_optax, microbatches_bounded)}
