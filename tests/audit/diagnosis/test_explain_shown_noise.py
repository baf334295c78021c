"""Noise that is released beside the sum that it covers, and noise of which a mask leaves a part."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = np.random.default_rng(0).normal(size=(5, 4)).astype("f4")
PAIR = mechanisms.add_record(ROWS, -8 * ROWS[0])
BARE, LITTLE = Kind.RELEASED_WITHOUT_NOISE, Kind.TOO_LITTLE_NOISE


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))


def summed(rows):
    return clipped(rows).sum(0)


def as_a_leaf(key, rows):
    noise = jax.random.normal(key, (4,))  # BUG
    return {"sum": summed(rows) + noise, "noise": noise}


def stacked(key, rows):
    noise = jax.random.normal(key, (4,))
    return jnp.stack([summed(rows) + noise, noise])  # BUG


def one_number(key, rows):
    noise = jax.random.normal(key, (4,))
    return jnp.append(summed(rows) + noise, noise[0])  # BUG


def doubled(key, rows):
    noise = jax.random.normal(key, (4,))
    return summed(rows) + noise, 2 * noise  # BUG


def taken_away(key, rows):
    noise = jax.random.normal(key, (4,))
    noisy = summed(rows) + noise
    return {"sum": noisy, "clean": noisy - noise}  # BUG


def of_one_worker(key, rows):
    shares = 0.5**0.5 * jax.random.normal(key, (2, 4))
    return summed(rows) + shares.sum(0), shares[0]  # BUG


def of_each_round(key, rows):
    def take(weights, own):
        noise = jax.random.normal(own, (4,))
        noisy = clipped(rows - weights).sum(0) + noise
        return weights - 0.1 * noisy, (noisy, noise)

    return jax.lax.scan(take, jnp.zeros(4), jax.random.split(key, 3))[1]  # BUG


def of_each_step(key, rows):
    weights, told = jnp.zeros(4), []
    for own in jax.random.split(key, 3):
        noise = jax.random.normal(own, (4,))
        noisy = clipped(rows - weights).sum(0) + noise
        told.append(jnp.stack([noisy, noise]))
        weights = weights - 0.1 * noisy
    return jnp.stack(told)  # BUG


def triangle(key, rows):
    kept = clipped(rows)
    return kept.T @ kept + jnp.tril(jax.random.normal(key, (4, 4)))  # BUG


def masked(key, rows):
    return summed(rows) + jnp.where(jnp.arange(4) < 2, jax.random.normal(key, (4,)), 0.0)  # BUG


def independent(key, rows):
    one, other = jax.random.split(key)
    return {"sum": summed(rows) + jax.random.normal(one, (4,)), "noise": jax.random.normal(other, (4,))}


def enough_is_left(key, rows):
    one, other = jax.random.normal(key, (2, 4))
    return summed(rows) + one + other, other


def symmetric(key, rows):
    kept = clipped(rows)
    below = jnp.tril(jax.random.normal(key, (4, 4)))
    return kept.T @ kept + below + jnp.tril(below, -1).T


def started_at_random(key, rows):
    start, own = jax.random.split(key)
    weights = jax.random.normal(start, (4,))
    return weights, weights - 0.1 * (clipped(rows - weights).sum(0) + jax.random.normal(own, (4,)))


def one_leaf_of_several(key, rows):
    keys = jax.random.split(key, 2)
    noise = [jax.random.normal(own, (2,)) for own in keys]
    total = summed(rows)
    return {"a": total[:2] + noise[0], "b": total[2:] + noise[1]}


def marked(function):
    source, start = inspect.getsourcelines(function)
    return start + next(number for number, line in enumerate(source) if "# BUG" in line)


def told(step):
    return explain(step, PAIR, key=jax.random.key(0), claim=guarantees.gaussian(mu=1.0))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        *((step, BARE) for step in (as_a_leaf, stacked, one_number, doubled, taken_away, of_each_round, of_each_step)),
        *((step, LITTLE) for step in (of_one_worker, triangle, masked)),
    ],
)
def test_noise_that_the_output_shows_is_named(step, kind):
    (first, *_) = told(step).suspicions
    assert (first.kind, first.lines[0][1]) == (kind, marked(step))


def test_what_is_left_of_it_is_said():
    assert "a noise multiplier of 0.7071 is left, but 1 is expected" in told(of_one_worker).suspicions[0].says


@pytest.mark.parametrize("step", [independent, enough_is_left, symmetric, started_at_random, one_leaf_of_several])
def test_noise_that_covers_nothing_else_may_be_shown(step):
    assert told(step).findings == ()


def test_noise_that_is_shown_in_another_way_is_not_judged():
    def length(key, rows):
        noise = jax.random.normal(key, (4,))
        return summed(rows) + noise, jnp.linalg.norm(noise)

    explained = told(length)
    assert not explained.suspicions
    assert "reaches the output in another way" in explained.not_judged[0].says


def test_a_deviation_that_is_not_known_is_not_judged():
    def few(key, rows):
        return summed(rows)[:1] + 3 * jnp.tanh(jax.random.normal(key, (1,)))

    explained = explain(few, PAIR, key=jax.random.key(0))
    assert [one.kind for one in explained.findings] == [Kind.NOT_FOLLOWED]
    assert not any(one.judged for one in explained.rounds)
