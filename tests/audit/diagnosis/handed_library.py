"""Steps whose fault is in what Python does between the lines that JAX sees; each marks its line with BUG."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from diagnosis.trees_library import LIMIT, SIGMA, START, clipped, length, loss, normal, perturbed, plus, scaled, summed

RATE, STEPS = 0.5, 2


@dataclasses.dataclass
class Streams:
    batch: Any
    noise: Any


def coins(key, rate, data):
    return jax.random.uniform(key, (len(data["x"]),)) < rate


def over_batch(mask, data, params=START):
    rows = jax.vmap(clipped, (None, 0))(params, data)
    return jax.tree.map(lambda leaf: jnp.tensordot(mask.astype(leaf.dtype), leaf, axes=1), rows)


def from_keys(keys, like, sigma):
    return jax.tree.map(lambda own, leaf: sigma * jax.random.normal(own, leaf.shape), keys, like)


# Right steps


def sampled(key, data):
    key_batch, key_noise = jax.random.split(key)
    return perturbed(key_noise, over_batch(coins(key_batch, RATE, data), data))


def aliased(key, data):
    root = key
    key_batch, key_noise = jax.random.split(root)
    keys = Streams(batch=key_batch, noise=key_noise)
    return perturbed(keys.noise, over_batch(coins(keys.batch, RATE, data), data))


def shares(key, data):
    first, second = (normal(own, START, SIGMA / 2**0.5) for own in jax.random.split(key))
    return plus(plus(summed(clipped, START, data), first), second)


def public_rate(key, data):
    key_batch, key_noise = jax.random.split(key)
    rate = min(RATE, 10 / 20)
    return perturbed(key_noise, over_batch(coins(key_batch, rate, data), data))


def class_weights(key, data):
    key_batch, key_noise = jax.random.split(key)
    weights = jnp.full(len(data["x"]), 0.5)
    return perturbed(key_noise, over_batch(weights * coins(key_batch, RATE, data), data))


def leaf_shares(key, data):
    def one(params, row):
        found = jax.grad(loss)(params, row)
        return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, LIMIT / 2**0.5 / jnp.linalg.norm(leaf)), found)

    return perturbed(key, summed(one, START, data))


def momentum_of_noisy_sums(key, data):
    rule = optax.chain(optax.trace(decay=0.9), optax.scale(-0.1))
    params, state = START, rule.init(START)
    for own in jax.random.split(key, STEPS):
        updates, state = rule.update(perturbed(own, summed(clipped, params, data)), state)
        params = optax.apply_updates(params, updates)
    return params


# Wrong ones


def copied_into_a_list(key, data):
    leaves, form = jax.tree.flatten(START)
    keys = [key for _ in leaves]  # BUG: copied_into_a_list
    return plus(summed(clipped, START, data), from_keys(jax.tree.unflatten(form, keys), START, SIGMA))


def repeated_in_a_list(key, data):
    leaves, form = jax.tree.flatten(START)
    keys = [key] * len(leaves)  # BUG: repeated_in_a_list
    return plus(summed(clipped, START, data), from_keys(jax.tree.unflatten(form, keys), START, SIGMA))


def same_for_all(key, like):
    return jax.tree.map(lambda _: key, like)  # BUG: copied_by_a_helper


def copied_by_a_helper(key, data):
    return plus(summed(clipped, START, data), from_keys(same_for_all(key, START), START, SIGMA))


def kept_twice(key, data):
    streams = Streams(batch=key, noise=key)  # BUG: kept_twice
    mask = coins(streams.batch, 0.9, data)
    return perturbed(streams.noise, over_batch(mask, data))


def two_names(key, data):
    key_batch, key_noise = key, key  # BUG: two_names
    mask = coins(key_batch, 0.9, data)
    return perturbed(key_noise, over_batch(mask, data))


def shares_of_one_key(key, data):
    parts = [normal(key, START, SIGMA) for _ in range(2)]  # BUG: shares_of_one_key
    halves = [jax.tree.map(lambda column, rows=rows: column[rows], data) for rows in (slice(0, 2), slice(2, None))]
    return [plus(summed(clipped, START, half), part) for half, part in zip(halves, parts, strict=True)]


def one_key_in_a_loop(key, data):
    key_noise, key_batch = jax.random.split(key)

    def body(params, own):
        mask = coins(key_batch, 0.9, data)  # BUG: one_key_in_a_loop
        noisy = perturbed(own, over_batch(mask, data, params))
        return plus(params, scaled(-0.1, noisy)), None

    keys = jax.random.split(key_noise, STEPS)
    return jax.lax.scan(body, START, (keys, jax.random.split(key_batch, STEPS))[0])[0]


def one_key_for_all_steps(key, data):
    key_noise, key_batch = jax.random.split(key)

    def body(params, keys):
        mask = coins(keys[0], 0.9, data)
        return plus(params, scaled(-0.1, perturbed(keys[1], over_batch(mask, data, params)))), None

    keys = jnp.stack([key_batch] * STEPS)  # BUG: one_key_for_all_steps
    return jax.lax.scan(body, START, (keys, jax.random.split(key_noise, STEPS)))[0]


def one_key_of_a_state(key, data):
    key_noise, key_batch = jax.random.split(key)

    def body(state, own):
        mask = coins(state["streams"]["batch"], 0.9, data)  # BUG: one_key_of_a_state
        noisy = perturbed(own, over_batch(mask, data, state["params"]))
        return {**state, "params": plus(state["params"], scaled(-0.1, noisy))}, None

    state = {"params": START, "streams": {"batch": key_batch}}
    return jax.lax.scan(body, state, jax.random.split(key_noise, STEPS))[0]["params"]


def counted_coins(key, data):
    return jax.random.uniform(key, (len(data["x"]),)) < 2 / len(data["x"])  # BUG: rate_of_a_helper


def rate_of_a_helper(key, data):
    key_batch, key_noise = jax.random.split(key)
    return perturbed(key_noise, over_batch(counted_coins(key_batch, data), data))


def rate_of_a_caller(key, data):
    key_batch, key_noise = jax.random.split(key)
    mask = coins(key_batch, 2 / len(data["x"]), data)  # BUG: rate_of_a_caller
    return perturbed(key_noise, over_batch(mask, data))


def everybody(data):
    return jnp.ones(len(data["x"]), bool)  # BUG: mask_of_ones


def mask_of_ones(key, data):
    return perturbed(key, over_batch(everybody(data), data))


def length_of_a_part(key, data):
    def one(params, row):
        found = jax.grad(loss)(params, row)
        size = length({"b": found["b"]})  # BUG: length_of_a_part
        return scaled(jnp.minimum(1.0, LIMIT / size), found)

    return perturbed(key, summed(one, START, data))


def length_of_some(tree):
    some = [jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)[:1]]  # BUG: leaf_left_out
    return jnp.sqrt(sum(some))


def leaf_left_out(key, data):
    def one(params, row):
        found = jax.grad(loss)(params, row)
        return scaled(jnp.minimum(1.0, LIMIT / length_of_some(found)), found)

    return perturbed(key, summed(one, START, data))


def noise_after_momentum(key, data):
    def noisy(own):
        return optax.GradientTransformation(lambda _: own, _noisy_update)

    rule = optax.chain(
        optax.trace(decay=0.9),  # BUG: noise_after_momentum
        noisy(key),
        optax.scale(-0.1),
    )
    params, state = START, rule.init(START)
    for _ in range(STEPS):
        updates, state = rule.update(summed(clipped, params, data), state)
        params = optax.apply_updates(params, updates)
    return params


def _noisy_update(updates, state, params=None):
    state, own = jax.random.split(state)
    return perturbed(own, updates), state


def momentum_of_clean_sums(key, data):
    rule = optax.sgd(0.1, momentum=0.9)
    params, state = START, rule.init(START)
    for own in jax.random.split(key, STEPS):
        updates, state = rule.update(summed(clipped, params, data), state)  # BUG: momentum_of_clean_sums
        params = optax.apply_updates(params, perturbed(own, updates, 0.1 * SIGMA))
    return params


def noise_of_a_mean_too_small(key, data):
    mean = scaled(0.25, summed(clipped, START, data))
    return perturbed(key, mean, SIGMA / 8)  # BUG: noise_of_a_mean_too_small


def wrong_line(name):
    with open(__file__) as source:
        (found,) = [number for number, line in enumerate(source, 1) if line.rstrip().endswith(f"# BUG: {name}")]
    return __file__, found
