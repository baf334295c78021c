"""Releases that share numbers of their noise: what all of them cost together, and whether that is a second use."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

WIDTH = 12
ROWS = np.random.default_rng(0).normal(size=(5, WIDTH)).astype("f4")
PAIR = mechanisms.add_record(ROWS, -8 * ROWS[0])
MATRIX = np.random.default_rng(1).normal(size=(6, WIDTH)).astype("f4")
TALL = np.random.default_rng(1).normal(size=(2 * WIDTH, WIDTH)).astype("f4")


def summed(rows):
    return (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(0)


def drawn(key, rows, *, deviation=1.0):
    return summed(rows), deviation * jax.random.normal(key, (WIDTH,))


def scaled_again(key, rows):
    total, noise = drawn(key, rows)
    by = jnp.linspace(1.0, 2.0, WIDTH)
    return total + noise, by * total + by * noise


def queries_again(key, rows):
    total, noise = drawn(key, rows)
    return total + noise, MATRIX @ total + MATRIX @ noise


def queries_first(key, rows):
    total, noise = drawn(key, rows)
    return TALL @ total + TALL @ noise, total + noise


def reversed_again(key, rows):
    total, noise = drawn(key, rows)
    return total + noise, total[::-1] + noise[::-1]


def prefix_sums(key, rows):
    noise = 3**0.5 * jax.random.normal(key, (3, WIDTH))
    each = jnp.stack([summed(rows)] * 3)
    return jnp.cumsum(each, 0) + jnp.cumsum(noise, 0), each + noise


def running_sums(key, rows):
    noise, data, told = jnp.zeros(WIDTH), jnp.zeros(WIDTH), []
    for own in jax.random.split(key, 3):
        data, noise = data + summed(rows), noise + 3**0.5 * jax.random.normal(own, (WIDTH,))
        told.append(data + noise)
    return told


def a_part_again(key, rows):
    total, noise = drawn(key, rows)
    return total + noise, total[:9] + noise[:9]


def difference_of_prefix_sums(key, rows):
    total, (one, other) = summed(rows), 2**0.5 * jax.random.normal(key, (2, WIDTH))
    first, second = total + one, 2 * total + one + other
    return second - first, first, second


def two_sums(key, rows):
    noise = jax.random.normal(key, (WIDTH,))
    return summed(rows) + noise, summed(rows * jnp.linspace(-1.0, 2.0, WIDTH)) + noise


def masked(key, rows):
    return jnp.where(jnp.arange(WIDTH) >= 4, *two_sums(key, rows))


def one_by_a_coin(key, rows):
    coin, own = jax.random.split(key)
    return jnp.where(jax.random.bernoulli(coin), *two_sums(own, rows))


def coin_for_each(key, rows):
    coin, own = jax.random.split(key)
    return jnp.where(jax.random.bernoulli(coin, 0.5, (WIDTH,)), *two_sums(own, rows))


def chosen_and_the_other(key, rows):
    coin, own = jax.random.split(key)
    taken, (one, other) = jax.random.bernoulli(coin), two_sums(own, rows)
    return jnp.where(taken, one, other), jnp.where(taken, other, one)


def chosen_and_one(key, rows):
    coin, own = jax.random.split(key)
    one, other = two_sums(own, rows)
    return jnp.where(jax.random.bernoulli(coin), one, other), one


def chosen_in_reverse(key, rows):
    coin, own = jax.random.split(key)
    one, other = two_sums(own, rows)
    return jnp.where(jax.random.bernoulli(coin, 0.5, (WIDTH,)), one, other[::-1])


def sum_and_difference(key, rows):
    total, noise = drawn(key, rows)
    return total + noise, total - noise


def nearly_the_same(key, rows):
    own, more = jax.random.split(key)
    one, other = two_sums(own, rows)
    return one, other + 0.01 * jax.random.normal(more, (WIDTH,))


def piecewise(key, number):
    """The piecewise mechanism: from near the number, or else from the rest of the interval, with one draw."""
    near, own = jax.random.split(key)
    grown = jnp.exp(0.5)
    end = (grown + 1) / (grown - 1)
    low = (end + 1) / 2 * number - (end - 1) / 2
    share = jax.random.uniform(own)
    rest = share * (end + 1)
    outside = jnp.where(rest < low + end, rest - end, low + end - 1 + (rest - (low + end)))
    return jnp.where(jax.random.bernoulli(near, grown / (1 + grown)), low + share * (end - 1), outside)


def too_little_by_half(key, rows):
    total, noise = drawn(key, rows, deviation=0.5)
    return MATRIX @ total + MATRIX @ noise, total + noise


def too_little_together(key, rows):
    one, other = jax.random.normal(key, (2, WIDTH))
    total = summed(rows)
    return total + one, 2 * total + one + other


def told(step):
    return explain(step, PAIR, key=jax.random.key(0), claim=guarantees.gaussian(mu=1.0))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "step",
    [
        *(scaled_again, queries_again, queries_first, reversed_again, prefix_sums, running_sums, a_part_again),
        *(difference_of_prefix_sums, masked, one_by_a_coin, coin_for_each),
    ],
)
def test_noise_that_covers_all_that_is_seen_may_be_shared(step):
    assert told(step).findings == ()


@pytest.mark.parametrize("step", [too_little_by_half, too_little_together, nearly_the_same])
def test_releases_that_cost_too_much_together_are_named(step):
    assert Kind.TOO_LITTLE_NOISE in [one.kind for one in told(step).suspicions]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "step",
    [two_sums, chosen_and_the_other, chosen_and_one, chosen_in_reverse, sum_and_difference],
)
def test_noise_of_two_sums_that_are_seen_is_used_twice(step):
    assert Kind.KEY_USED_TWICE in [one.kind for one in told(step).suspicions]


def test_exclusive_cases_of_a_piecewise_answer_may_use_one_draw():
    def each(key, rows):
        return jax.vmap(piecewise)(jax.random.split(key, 4), rows[0])

    pair = mechanisms.replace_record(np.array([[0.5, -0.2, 0.8, 0.1]], "f4"), 0, np.array([-0.7, 0.3, -0.1, 0.9], "f4"))
    assert [one.kind for one in explain(each, pair, key=jax.random.key(0)).findings] == [Kind.NOT_FOLLOWED]
