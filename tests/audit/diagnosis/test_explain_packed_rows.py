"""Records that are packed and filled up with empty rows keep their places: what is done to each of them is followed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from diagnosis.replayed import CLIP, NOISE, RATE, WEIGHTS, added, clipped, gradients, loss, marked_lines, noise

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

PLACES = 12


def packed(key, data, reverse=False):
    """Rows of a Poisson batch, those that were taken in front, and which of the places they fill."""
    taken = jax.random.bernoulli(key, RATE, (len(data[0]),))
    order = jnp.argsort(~taken, stable=True)
    order = order[::-1] if reverse else order

    def filled(column):
        return jnp.pad(column, [(0, PLACES - len(column))] + [(0, 0)] * (column.ndim - 1))

    return tuple(filled(column[order]) for column in data), filled(taken[order]).astype(jnp.float32)


def network(weights, x, y):
    return jnp.sum(jnp.tanh(x * weights)) * y


def gradient_rows(data):
    return jax.vmap(jax.grad(network), (None, 0, 0))(WEIGHTS, *data)


def two_passes(batch, mask, key):
    """Lengths first, then one gradient of a weighted loss."""
    lengths = jnp.linalg.norm(gradients(WEIGHTS, batch), axis=1)
    weights = mask * jnp.minimum(1.0, CLIP / jnp.maximum(lengths, 1e-9))
    return jax.grad(lambda own: weights @ jax.vmap(loss, (None, 0, 0))(own, *batch))(WEIGHTS)


def normalised(batch, mask, key):
    found = gradients(WEIGHTS, batch)
    return (CLIP * mask / (jnp.linalg.norm(found, axis=1) + 0.01)) @ found


def by_squares(batch, mask, key):
    """Shorter than it could be, and bounded."""
    found = gradient_rows(batch)
    return (CLIP * mask * jnp.minimum(1.0, 1.0 / jnp.maximum(jnp.sum(found**2, axis=1), 1e-9))) @ found


def in_groups(batch, mask, key):
    def turn(total, own):
        *rows, held = own
        return total + held @ clipped(gradients(WEIGHTS, rows)), None

    rows = jax.tree.map(lambda column: column.reshape(3, 4, *column.shape[1:]), (*batch, mask))
    return jax.lax.scan(turn, jnp.zeros(4), rows)[0]


def views(batch, mask, key):
    """The same three shifts for all records: no noise that covers them."""
    shifts = 0.1 * jax.random.normal(key, (3, 4))

    def mean(weights, x, y):
        return jnp.mean(jax.vmap(lambda shift: loss(weights, x + shift, y))(shifts))

    return mask @ clipped(jax.vmap(jax.grad(mean), (None, 0, 0))(WEIGHTS, *batch))


def unmasked(batch, mask, key):
    return clipped(gradients(WEIGHTS, batch)).sum(axis=0)  # BUG


def mismeasured(batch, mask, key):
    found = gradients(WEIGHTS, batch)
    lengths = jnp.sqrt(jnp.sum(found[:, 1:] ** 2, axis=1))  # BUG
    return (mask * jnp.minimum(1.0, CLIP / jnp.maximum(lengths, 1e-9))) @ found


def told(total, *, reverse=False):
    def step(key, data):
        first, second, third = jax.random.split(key, 3)
        return total(*packed(first, data, reverse), third) + noise(second)

    made = mechanisms.mechanism(step, releases="update", clip=CLIP, noise_multiplier=NOISE)
    claim = guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=NOISE)
    return explain(made, added(), key=jax.random.key(1), claim=claim)


OTHERS = [(total, reverse) for total in (normalised, by_squares, in_groups) for reverse in (False, True)]


@pytest.mark.few(1)
@pytest.mark.parametrize(("total", "reverse"), [(two_passes, False), (views, True), *OTHERS])
def test_nothing_is_said_about_rows_that_are_packed(total, reverse):
    explanation = told(total, reverse=reverse)
    assert explanation.findings == (), explanation.findings[0].says
    assert explanation.rounds[0].multiplier >= 0.98 * NOISE


@pytest.mark.few(1)
@pytest.mark.parametrize(("total", "kind"), [(mismeasured, "too_little_noise"), (unmasked, "in_every_batch")])
def test_the_line_of_a_fault_stands_first(total, kind):
    (found,) = told(total).findings
    assert found.kind == kind
    assert found.lines[0][1] in marked_lines(total), found.says


def divided(key, data):
    def turn(weights, own):
        first, second = jax.random.split(own)
        batch, mask = packed(first, data)
        total = mask @ clipped(gradients(weights, batch)) + noise(second)
        weights = weights - 0.1 * total / jnp.maximum(mask.sum(), 1.0)  # BUG
        return weights, weights

    return jax.lax.scan(turn, WEIGHTS, jax.random.split(key, 2))[1]


def test_a_division_by_the_batch_is_found_in_a_training():
    made = mechanisms.mechanism(divided, releases="transcript", clip=CLIP, noise_multiplier=NOISE)
    found = explain(made, added(), key=jax.random.key(1)).findings[0]
    assert found.kind == "changed_after_release"
    assert found.lines[0][1] in marked_lines(divided), found.says
