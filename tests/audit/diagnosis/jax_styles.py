"""Right steps in styles that the replay was not written with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from diagnosis.replayed import CLIP, EXPECTED, STEP, WEIGHTS, WIDTH, clipped, gradients, loss, noise

RIGHT = []


def right(step):
    RIGHT.append(step)
    return step


def clipped_record(record):
    return clipped(jax.grad(loss)(WEIGHTS, *record)[None])[0]


@right
def hyperparameters_in_the_state(key, data):
    chain = optax.inject_hyperparams(optax.adamw)(
        learning_rate=optax.exponential_decay(STEP, 10, 0.9), weight_decay=0.01
    )
    state, weights = chain.init(WEIGHTS), WEIGHTS
    for own in jax.random.split(key, 2):
        noisy = (clipped(gradients(weights, data)).sum(0) + noise(own)) / EXPECTED
        updates, state = chain.update(noisy, state, weights)
        weights = optax.apply_updates(weights, updates)
    return weights


@right
def map_over_records(key, data):
    return jax.lax.map(clipped_record, data).sum(0) + noise(key)


@right
def map_over_batches_of_records(key, data):
    return jax.lax.map(clipped_record, data, batch_size=4).sum(0) + noise(key)


@right
def recomputed(key, data):
    own = jax.checkpoint(lambda weights, x, y: loss(jnp.tanh(weights), x, y))
    return clipped(jax.vmap(jax.grad(own), (None, 0, 0))(WEIGHTS, *data)).sum(0) + noise(key)


@right
def average_of_noisy_weights(key, data):
    def take(state, own):
        weights, average = state
        weights = weights - STEP * (clipped(gradients(weights, data)).sum(0) + noise(own))
        return (weights, 0.9 * average + 0.1 * weights), None

    return jax.lax.scan(take, (WEIGHTS, WEIGHTS), jax.random.split(key, 3))[0]


@right
def loop_that_folds_in_its_number(key, data):
    def take(number, weights):
        total = clipped(gradients(weights, data)).sum(0)
        return weights - STEP * (total + noise(jax.random.fold_in(key, number)))

    return jax.lax.fori_loop(0, 3, take, WEIGHTS)


@right
def several_steps_of_optax(key, data):
    several = optax.MultiSteps(optax.sgd(STEP), 2)
    state, weights = several.init(WEIGHTS), WEIGHTS
    for own in jax.random.split(key, 2):
        updates, state = several.update(clipped(gradients(weights, data)).sum(0) + noise(own), state, weights)
        weights = optax.apply_updates(weights, updates)
    return weights


@right
def segments_of_clipped_records(key, data):
    rows = clipped(gradients(WEIGHTS, data))
    return jax.ops.segment_sum(rows, jnp.arange(len(rows)) // 2, num_segments=6).sum(0) + noise(key)


@right
def einsum_of_records(key, data):
    rows = gradients(WEIGHTS, data)
    lengths = jnp.sqrt(jnp.einsum("nd,nd->n", rows, rows))
    factors = jnp.minimum(1.0, CLIP / jnp.maximum(lengths, 1e-9))
    return jnp.einsum("nd,n->d", rows, factors) + noise(key, (WIDTH,))
