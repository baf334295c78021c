"""Noise inside of ``cond`` and ``switch``, and loops that ``vmap`` makes of many."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = 3 * np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
PAIR = mechanisms.pair(ROWS[:-1], ROWS)


def summed(rows, weights=0.0):
    rows = rows - weights
    return (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(0)


def noisy(total, key, deviation=1.0):
    return total + deviation * jax.random.normal(key, (4,))


def rounds(branch):
    """Three rounds, of which each takes the branch of its number."""

    def steps(key, rows):
        def take(weights, own):
            return weights - 0.1 * branch(own[0], summed(rows, weights), own[1]), None

        return jax.lax.scan(take, jnp.zeros(4), (jnp.arange(3), jax.random.split(key, 3)))[0]

    return steps


def left_out(number, total, key):
    return jax.lax.cond(number < 2, lambda: noisy(total, key), lambda: total)  # BUG


def too_little(number, total, key):
    def small():
        return total + 0.5 * jax.random.normal(key, (4,))  # BUG

    return jax.lax.switch(number, [lambda: noisy(total, key), small, lambda: noisy(total, key)])


def more(number, total, key):
    return jax.lax.switch(
        number, [lambda: noisy(total, key), lambda: noisy(total, key, 2.0), lambda: noisy(total, key)]
    )


def told(step):
    return explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)


def marked(function):
    source, start = inspect.getsourcelines(function)
    return start + next(number for number, line in enumerate(source) if "# BUG" in line)


@pytest.mark.parametrize(
    ("branch", "kind"), [(left_out, Kind.RELEASED_WITHOUT_NOISE), (too_little, Kind.TOO_LITTLE_NOISE)]
)
def test_the_branch_with_a_fault_is_named(branch, kind):
    first = told(rounds(branch)).suspicions[0]
    assert (first.kind, first.lines[0][1]) == (kind, marked(branch))


def test_right_branches_are_not():
    assert told(rounds(more)).findings == ()


def test_a_branch_that_a_coin_seldom_takes_is_looked_at():
    def bare(key, rows):
        coin, own = jax.random.split(key)
        total = summed(rows)
        return jax.lax.cond(jax.random.bernoulli(coin, 0.7), lambda: noisy(total, own), lambda: total)  # BUG

    (found,) = told(bare).suspicions
    assert (found.kind, found.lines[0][1]) == (Kind.RELEASED_WITHOUT_NOISE, marked(bare))


def test_a_loop_under_vmap_is_not_followed_and_no_fault_of_ours():
    def until_small(key):
        def again(state):
            key, own = jax.random.split(state[0])
            return key, jax.random.normal(own)

        return jax.lax.while_loop(lambda state: jnp.abs(state[1]) > 2, again, (key, 9.0))[1]

    def step(key, rows):
        return summed(rows) + jax.vmap(until_small)(jax.random.split(key, 4))

    (found,) = told(step).findings
    assert found.kind == Kind.NOT_FOLLOWED
    assert "under vmap" in found.says
