"""Trainings that keep keys, counters and coins in objects; each marks the line of its fault with BUG."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from diagnosis.handed_library import RATE, coins, over_batch
from diagnosis.trees_library import START, perturbed
from jax.scipy.stats import norm

ROUNDS = 3


def stacked(releases):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *releases)


def noisy_rounds(keys, masks, data):
    return stacked([perturbed(key, over_batch(mask, data)) for key, mask in zip(keys, masks, strict=True)])


class Counted(NamedTuple):
    key: Any
    count: Any


class Owner:
    def __init__(self, key):
        self.rng = key

    def fresh(self):
        self.rng, key = jax.random.split(self.rng)
        return key


class Once:
    def __init__(self, key, data):
        self.mask = coins(key, RATE, data)  # BUG one_draw, one_draw_composed

    def __iter__(self):
        return iter([self.mask] * ROUNDS)


class Table:
    def __init__(self, key, data):
        self.masks = jax.random.uniform(key, (ROUNDS, len(data["x"]))) < RATE

    def __iter__(self):
        return iter(self.masks)


# Right trainings


def all_draws(key, data):
    key_batch, key_noise = jax.random.split(key)
    return noisy_rounds(jax.random.split(key_noise, ROUNDS), Table(key_batch, data), data)


def renewed(key, data):
    own = Owner(key)
    return stacked([perturbed(own.fresh(), over_batch(coins(own.fresh(), RATE, data), data)) for _ in range(ROUNDS)])


def counting(key, data):
    key_batch, key_noise = jax.random.split(key)

    def turn(state, own):
        noisy = perturbed(jax.random.fold_in(state.key, state.count), over_batch(coins(own, RATE, data), data))
        return Counted(state.key, state.count + 1), noisy

    return jax.lax.scan(turn, Counted(key_noise, 0), jax.random.split(key_batch, ROUNDS))[1]


def with_coins(chosen, key, data):
    def turn(own, number):
        key_batch, key_noise = jax.random.split(jax.random.fold_in(key, number))
        noisy = perturbed(key_noise, over_batch(chosen(key_batch, (len(data["x"]),)), data, own))
        return jax.tree.map(lambda p, g: p - 0.1 * g, own, noisy), noisy

    return jax.lax.scan(turn, START, jnp.arange(ROUNDS))[1]


def waiting(key, data):
    return with_coins(lambda own, shape: jax.random.exponential(own, shape) < -jnp.log1p(-RATE), key, data)


def below(key, data):
    own, masks = Owner(key), []
    for _ in range(ROUNDS):
        masks.append(jax.random.normal(own.fresh(), (len(data["x"]),)) < norm.ppf(RATE))
    return noisy_rounds(jax.random.split(own.fresh(), ROUNDS), masks, data)


# Faulty trainings


def one_draw(key, data):
    key_batch, key_noise = jax.random.split(key)
    return noisy_rounds(jax.random.split(key_noise, ROUNDS), Once(key_batch, data), data)


def one_draw_composed(key, data):
    return one_draw(key, data)


def split_and_folded(key, data):
    _, noise_key = jax.random.split(key)
    own, out = jax.random.split(noise_key, ROUNDS), []  # BUG split_and_folded
    for number in range(ROUNDS):
        total = over_batch(coins(own[number], RATE, data), data)
        out.append(perturbed(jax.random.fold_in(noise_key, number), total))
    return stacked(out)


def folded_twice(key, data):
    batch_key, noise_key = jax.random.split(key)

    def turn(_, number):
        mask = coins(jax.random.fold_in(batch_key, number), RATE, data)
        return _, perturbed(jax.random.fold_in(batch_key, number), over_batch(mask, data))  # BUG folded_twice

    return jax.lax.scan(turn, noise_key, jnp.arange(ROUNDS))[1]


def kept_key(key, data):
    own, out = Owner(key), []

    def turn():
        total = over_batch(coins(own.fresh(), RATE, data), data)
        return perturbed(own.rng, total)  # BUG kept_key

    for _ in range(ROUNDS):
        out.append(turn())
    return stacked(out)


def stuck_in_a_scan(key, data):
    key_batch, key_noise = jax.random.split(key)

    def turn(state, own):
        noisy = perturbed(jax.random.fold_in(state.key, state.count), over_batch(coins(own, RATE, data), data))
        return state._replace(key=state.key), noisy  # BUG stuck_in_a_scan

    return jax.lax.scan(turn, Counted(key_noise, 0), jax.random.split(key_batch, ROUNDS))[1]


def stuck_in_a_loop(key, data):
    def update(total, state):
        step_key = jax.random.fold_in(state.key, state.count)
        noisy = perturbed(step_key, total)
        return noisy, Counted(state.key, state.count)  # BUG stuck_in_a_loop

    key_batch, key_noise = jax.random.split(key)
    state, out = Counted(key_noise, jnp.int32(0)), []
    for own in jax.random.split(key_batch, ROUNDS):
        noisy, state = update(over_batch(coins(own, RATE, data), data), state)
        out.append(noisy)
    return stacked(out)


def short_waits(key, data):
    def chosen(own, shape):
        waits = jax.random.exponential(own, shape)
        return waits < -jnp.log1p(-1.5 * RATE)  # BUG short_waits

    return with_coins(chosen, key, data)


def above(key, data):
    return with_coins(lambda own, shape: jax.random.normal(own, shape) > -0.8, key, data)  # BUG above


def wrong_line(name):
    lines = inspect.getsource(inspect.getmodule(wrong_line)).splitlines()
    marked = [number for number, line in enumerate(lines, 1) if "# BUG" in line and name in line.partition("BUG")[2]]
    return __file__, marked[0]
