"""A library of helpers that are right, and calls of them that are not: the wrong call is marked with its name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import mechanisms

CLIP = NOISE = 1.0
RATE, STEPS, WIDTH, INNER = 0.5, 3, 4, 3
MODEL = {
    "first": {"w": jnp.linspace(-1.0, 1.0, WIDTH * INNER).reshape(WIDTH, INNER), "b": jnp.zeros(INNER)},
    "last": {"w": jnp.linspace(0.5, 1.5, INNER), "b": jnp.zeros(())},
}


def pair():
    random = np.random.default_rng(1)
    data = {"x": random.normal(size=(7, WIDTH)).astype("f4"), "y": random.normal(size=7).astype("f4")}
    return mechanisms.add_record(data, {"x": np.array([2.0, -1.0, 1.0, 3.0], "f4"), "y": np.float32(30)})


def loss(model, row):
    inner = jnp.tanh(row["x"] @ model["first"]["w"] + model["first"]["b"])
    return (inner @ model["last"]["w"] + model["last"]["b"] - row["y"]) ** 2


def squared(tree):
    return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))


def shrink(tree, bound):
    size = jnp.sqrt(squared(tree))
    factor = jnp.where(size > bound, bound / jnp.maximum(size, 1e-12), 1.0)
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def perturb(key, tree, scale=NOISE * CLIP):
    leaves, form = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + scale * jax.random.normal(own, leaf.shape) for leaf, own in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(form, noisy)


def advance(velocity, update):
    return jax.tree.map(lambda v, u: 0.9 * v + u, velocity, update)


def descend(model, velocity, rate):
    return jax.tree.map(lambda p, v: p - rate * v, model, velocity)


def summed(key, model, data, bug=""):
    taken = jax.random.bernoulli(key, RATE, (len(data["y"]),))
    bound = CLIP
    if bug == "median":
        sizes = jax.vmap(lambda row: jnp.sqrt(squared(jax.grad(loss)(model, row))))(data)
        bound = jnp.median(sizes)  # BUG: median

    def single(row, keep):
        gradient = jax.grad(loss)(model, row)
        if bug == "layers":
            gradient = {name: shrink(part, bound) for name, part in gradient.items()}  # BUG: layers
        elif bug == "two_calls":
            first = shrink(gradient["first"], bound)  # BUG: two_calls
            gradient = {"first": first, "last": shrink(gradient["last"], bound)}
        elif bug == "shares":
            gradient = {name: shrink(part, bound / jnp.sqrt(2.0)) for name, part in gradient.items()}
        else:
            gradient = shrink(gradient, bound)
        return jax.tree.map(lambda leaf: keep * leaf, gradient)

    return jax.tree.map(lambda leaf: leaf.sum(axis=0), jax.vmap(single)(data, taken))


def step(bug=""):
    def released(key, data):
        batch, noise = jax.random.split(key)
        total = summed(batch, MODEL, data, bug)
        if bug == "flat_layers":
            total = summed(batch, MODEL, data, "layers")
            flat, back = ravel_pytree(total)
            return back(flat + NOISE * jax.random.normal(noise, flat.shape))
        return perturb(noise, total)

    return mechanisms.mechanism(released, noise_multiplier=NOISE)


def training(bug=""):
    def update(key, model, velocity, data):
        batch, noise = jax.random.split(key)
        total = summed(batch, model, data)
        if bug == "momentum":
            velocity = advance(velocity, total)  # BUG: momentum
            shown = perturb(noise, velocity)
            return descend(model, shown, 0.1), velocity, shown
        shown = perturb(noise, total)
        velocity = advance(velocity, shown)
        if bug == "rate":
            raw = jax.grad(lambda own: jax.vmap(loss, (None, 0))(own, data).mean())(model)
            return descend(model, velocity, 0.1 / (1 + jnp.sqrt(squared(raw)))), velocity, shown  # BUG: rate
        return descend(model, velocity, 0.1), velocity, shown

    def released(key, data):
        def body(state, key):
            model, velocity, shown = update(key, *state, data)
            return (model, velocity), shown

        start = MODEL, jax.tree.map(jnp.zeros_like, MODEL)
        return jax.lax.scan(body, start, jax.random.split(key, STEPS))

    return mechanisms.mechanism(lambda key, data: released(key, data)[0][0], noise_multiplier=NOISE, releases="final")


def wrong_line(bug):
    with open(__file__) as source:
        (found,) = [number for number, line in enumerate(source, 1) if line.rstrip().endswith(f"# BUG: {bug}")]
    return __file__, found
