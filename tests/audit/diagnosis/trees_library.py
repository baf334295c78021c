"""A library of small helpers for pytrees, each used in several places; every faulty step marks its line with BUG."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mechanisms

LIMIT = SIGMA = 1.0
START = {"w": jnp.linspace(-1.0, 1.0, 3), "b": jnp.zeros(2)}


def pair(records=4):
    random = np.random.default_rng(2)
    data = {"x": random.normal(size=(records, 3)).astype("f4"), "y": random.normal(size=(records, 2)).astype("f4")}
    return mechanisms.add_record(data, {"x": np.array([2.0, 1.0, -1.0], "f4"), "y": np.array([30.0, -20.0], "f4")})


def loss(params, row):
    return jnp.sum((params["w"] @ row["x"] + params["b"] - row["y"]) ** 2)


def length(tree):
    return jnp.sqrt(functools.reduce(operator.add, [jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)]))


def scaled(factor, tree):
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def plus(one, other):
    return jax.tree.map(operator.add, one, other)


def shrink(limit, tree):
    return scaled(jnp.minimum(1.0, limit / jnp.maximum(length(tree), 1e-9)), tree)


def normal(key, like, sigma):
    keys = jax.random.split(key, len(jax.tree.leaves(like)))
    leaves = [sigma * jax.random.normal(own, leaf.shape) for own, leaf in zip(keys, jax.tree.leaves(like), strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def perturbed(key, tree, sigma: Any = SIGMA):
    return plus(tree, normal(key, tree, sigma))


def noiser(sigma):
    def apply(key, tree):
        return perturbed(key, tree, sigma)

    return apply


def summed(one, params, data):
    return jax.tree.map(lambda rows: rows.sum(0), jax.vmap(one, (None, 0))(params, data))


def clipped(params, row):
    return shrink(LIMIT, jax.grad(loss)(params, row))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def gate(limit, tree):
    return tree


gate.defvjp(lambda limit, tree: (tree, None), lambda limit, _, found: (shrink(limit, found),))


@jax.custom_vjp
def wide_gate(tree):
    return tree


def wide_gate_backward(_, found):
    factor = jnp.minimum(1.0, 2 * LIMIT / length(found))  # BUG: wide_gate_step
    return (scaled(factor, found),)


wide_gate.defvjp(lambda tree: (tree, None), wide_gate_backward)


# Right steps


def plain(key, data):
    return perturbed(key, summed(clipped, START, data))


def gated(key, data):
    def one(params, row):
        return jax.grad(lambda own: loss(gate(LIMIT, own), row))(params)

    return perturbed(key, summed(one, START, data))


def divided_by_its_own_length(key, data):
    noisy = perturbed(key, summed(clipped, START, data))
    return scaled(1 / length(noisy), noisy)


def rounded_noise(key, data):
    noise = jax.tree.map(lambda leaf: leaf // 1.0, normal(key, START, 5 * SIGMA))
    return plus(summed(clipped, START, data), noise)


def box_muller(key, data):
    def draw(leaf, own):
        first, second = jax.random.uniform(own, (2, *leaf.shape), minval=1e-6)
        return leaf + 3 * SIGMA * jnp.sqrt(-2 * jnp.log(first)) * jnp.cos(2 * jnp.pi * second)

    total = summed(clipped, START, data)
    return {name: draw(total[name], own) for name, own in zip(total, jax.random.split(key), strict=True)}


def noise_in_the_loss(key, data):
    noise = normal(key, START, SIGMA)
    lengths = jax.vmap(lambda row: length(jax.grad(loss)(START, row)))(data)

    def objective(params):
        losses = jax.vmap(loss, (None, 0))(params, data)
        pull = sum(jnp.vdot(params[name], noise[name]) for name in params)
        return jnp.minimum(1.0, LIMIT / lengths) @ losses + pull

    return jax.grad(objective)(START)


def chosen_by_what_is_released(key, data):
    noisy = perturbed(key, summed(clipped, START, data))
    return jax.lax.cond(length(noisy) < 1e6, lambda: noisy, lambda: scaled(0.0, noisy))


def prefixes(key, data):
    noise = jnp.cumsum(2 * SIGMA * jax.random.normal(key, (3, 5)), axis=0)
    total = jnp.concatenate(jax.tree.leaves(summed(clipped, START, data)))
    return total + noise


# Wrong ones


def wide_gate_step(key, data):
    def one(params, row):
        return jax.grad(lambda own: loss(wide_gate(own), row))(params)

    return perturbed(key, summed(one, START, data))


def twice_the_limit(key, data):
    def one(params, row):
        found = jax.grad(loss)(params, row)
        factor = jnp.minimum(1.0, 2 * LIMIT / length(found))  # BUG: twice_the_limit
        return scaled(factor, found)

    return perturbed(key, summed(one, START, data))


def largest_leaf_as_the_length(key, data):
    def one(params, row):
        found = jax.grad(loss)(params, row)
        sizes = [jnp.sqrt(jnp.vdot(leaf, leaf)) for leaf in jax.tree.leaves(found)]  # BUG: largest_leaf_as_the_length
        return scaled(jnp.minimum(1.0, LIMIT / jnp.maximum(*sizes)), found)

    return perturbed(key, summed(one, START, data))


def all_records_bounded_together(key, data):
    found = jax.vmap(jax.grad(loss), (None, 0))(START, data)
    size = length(found)  # BUG: all_records_bounded_together
    kept = scaled(jnp.minimum(1.0, LIMIT / size), found)
    return perturbed(key, jax.tree.map(lambda rows: rows.sum(0), kept))


def sum_doubled_by_the_helper(key, data):
    total = summed(clipped, START, data)
    return perturbed(key, scaled(2.0, total))  # BUG: sum_doubled_by_the_helper


def divided_by_the_number_of_records(key, data):
    noisy = perturbed(key, summed(clipped, START, data))
    return scaled(1 / len(data["x"]), noisy)  # BUG: divided_by_the_number_of_records


def raw_gradient_beside_the_clipped(key, data):
    def one(params, row):
        kept = clipped(params, row)
        return plus(kept, scaled(0.01, jax.grad(loss)(params, row)))  # BUG: raw_gradient_beside_the_clipped

    return perturbed(key, summed(one, START, data))


def noise_halved_by_the_helper(key, data):
    total = summed(clipped, START, data)
    noise = scaled(0.5, normal(key, START, SIGMA))  # BUG: noise_halved_by_the_helper
    return plus(total, noise)


def deviation_of_a_closure(key, data):
    def make(sigma):
        return noiser(sigma / 4)  # BUG: deviation_of_a_closure

    return make(SIGMA)(key, summed(clipped, START, data))


def noise_in_the_loss_halved(key, data):
    noise = normal(key, START, SIGMA)
    lengths = jax.vmap(lambda row: length(jax.grad(loss)(START, row)))(data)

    def objective(params):
        losses = jax.vmap(loss, (None, 0))(params, data)
        pull = 0.5 * sum(jnp.vdot(params[name], noise[name]) for name in params)  # BUG: noise_in_the_loss_halved
        return jnp.minimum(1.0, LIMIT / lengths) @ losses + pull

    return jax.grad(objective)(START)


def one_key_handed_to_two_helpers(key, data):
    def coins(own):
        return jax.random.bernoulli(own, 0.9, (len(data["x"]),))

    taken = coins(key)
    total = jax.tree.map(lambda rows: taken @ rows, jax.vmap(clipped, (None, 0))(START, data))
    return perturbed(key, total)  # BUG: one_key_handed_to_two_helpers


def first_round_without_noise(key, data):
    params, shown = START, []
    for turn, own in enumerate(jax.random.split(key)):
        total = summed(clipped, params, data)
        shown = perturbed(own, total) if turn else total  # BUG: first_round_without_noise
        params = plus(params, scaled(-0.1, shown))
    return params


def first_round_muted(key, data):
    def body(params, given):
        own, turn = given
        total = summed(clipped, params, data)
        shown = perturbed(own, total, SIGMA * jnp.minimum(1.0, turn))  # BUG: first_round_muted
        return plus(params, scaled(-0.1, shown)), None

    return jax.lax.scan(body, START, (jax.random.split(key), jnp.arange(2.0)))[0]


def padding_that_counts(key, data):
    def fill(column):
        more = jnp.ones((6 - len(column), *column.shape[1:]))
        return jnp.concatenate([column, more])  # BUG: padding_that_counts

    return perturbed(key, summed(clipped, START, jax.tree.map(fill, data)))


def chosen_by_the_raw_loss(key, data):
    noisy = perturbed(key, summed(clipped, START, data))
    good = jnp.mean(jax.vmap(loss, (None, 0))(noisy, data)) < 1e9  # BUG: chosen_by_the_raw_loss
    return jax.lax.cond(good, lambda: noisy, lambda: START)


def deviation_chosen_by_raw_data(key, data):
    far = jnp.max(jnp.abs(data["x"])) > 0.1  # BUG: deviation_chosen_by_raw_data
    sigma = jax.lax.cond(far, lambda: SIGMA, lambda: SIGMA / 2)
    return perturbed(key, summed(clipped, START, data), sigma)


def wrong_line(name):
    with open(__file__) as source:
        (found,) = [number for number, line in enumerate(source, 1) if line.rstrip().endswith(f"# BUG: {name}")]
    return __file__, found
