"""Poisson batches packed into as many places as there are records, as a library that compiles its steps has them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from diagnosis.replayed import CLIP, NOISE, RATE, WEIGHTS, clipped, gradients


def drawn(key, records, fill):
    """Which records a Poisson batch holds, padded, and which places are filled."""
    taken = jax.random.bernoulli(key, RATE, (records,))
    index = jnp.nonzero(taken, size=records, fill_value=fill)[0]
    return index, jnp.arange(records) < taken.sum()


def step(key, data, *, padding="last", scale=NOISE, clip=clipped, masked=True, fixed=False):
    """One noisy sum over a padded batch."""
    first, second = jax.random.split(key)
    records = len(data[0])
    fill = {"first": 0, "last": records - 1, "beyond": records}[padding]
    index, present = drawn(first, records, fill)
    batch = tuple(column[index] for column in data)
    weight = present.astype(jnp.float32) if masked else jnp.ones(records)
    second = jax.random.key(7) if fixed else second
    return weight @ clip(gradients(WEIGHTS, batch)) + CLIP * scale * jax.random.normal(second, WEIGHTS.shape)


def together(found):
    """Clips by the median of the lengths in the batch."""
    lengths = jnp.linalg.norm(found, axis=1)
    return CLIP * found / jnp.maximum(lengths, jnp.median(lengths))[:, None]


RIGHT = {padding: functools.partial(step, padding=padding) for padding in ("first", "last", "beyond")}
FAULTY = {
    "too_little_noise": functools.partial(step, scale=0.8 * NOISE),
    "records_mixed_before_sum": functools.partial(step, clip=together),
    "not_clipped": functools.partial(step, clip=lambda found: found),
    "released_without_noise": functools.partial(step, fixed=True),
}
UNMASKED = functools.partial(step, masked=False)
