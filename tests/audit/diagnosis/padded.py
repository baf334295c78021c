"""Poisson batches packed into as many places as there are records, as a library that compiles its steps has them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from diagnosis.replayed import CLIP, NOISE, RATE, WEIGHTS, clipped, gradients, loss


def drawn(key, records, fill):
    """Which records a Poisson batch holds, padded, and which places are filled."""
    taken = jax.random.bernoulli(key, RATE, (records,))
    index = jnp.nonzero(taken, size=records, fill_value=fill)[0]
    return index, jnp.arange(records) < taken.sum()


PUBLIC = {
    "every third": lambda records: jnp.arange(records) % 3 == 2,
    "one batch": lambda records: jax.random.bernoulli(jax.random.key(5), RATE, (records,)),
}
"""Batches that neither the key nor what records hold changes."""


def sorted_first(key, records, places, *, taking="taken"):
    """The same with the records that are taken sorted to the front of ``places`` that do not depend on their number."""
    taken = jax.random.bernoulli(key, RATE, (records,))
    if taking in PUBLIC:
        taken = PUBLIC[taking](records)
    order = jnp.argsort(~taken, stable=True)
    if taking == "to the back":
        order = jnp.argsort(taken, stable=True)
    elif taking == "reversed":
        order = order[::-1]
    elif taking == "permutation":
        order, taken = jax.random.permutation(key, records), jnp.ones(records, bool)
    elif taking == "in an order":
        order, taken = jnp.argsort(jnp.arange(records) * 5 % 7), jnp.ones(records, bool)
    elif taking == "by their number":
        order, taken = jnp.argsort(jnp.arange(records) * 5 % records), jnp.ones(records, bool)
    missing = places - records
    if missing < 0:
        return order[:places], taken[order][:places]
    return jnp.pad(order, (0, missing)), jnp.pad(taken[order], (0, missing))


def sorted_step(key, data, *, places=None, scale=NOISE, clip=clipped, taking="taken", parts=1, masked=True):
    """Noisy sum over a sorted batch, or over each of its parts; ``places`` are as many as records unless told."""
    first, second = jax.random.split(key)
    places = places or len(data[0])
    index, present = sorted_first(first, len(data[0]), places, taking=taking)
    weight = present.astype(jnp.float32) if masked else jnp.ones(places)
    found = weight[:, None] * clip(gradients(WEIGHTS, tuple(column[index] for column in data)))
    total = found.reshape(parts, -1, found.shape[-1]).sum(axis=1)
    return total + CLIP * scale * jax.random.normal(second, total.shape)


def cut_step(key, data, *, places=12, scale=NOISE, clip=clipped, by_number=False):
    """The same where empty rows, or numbers of the first record, stand behind all records and what is too much is cut.

    Which places count is told by their number.
    """
    first, second = jax.random.split(key)
    taken = jax.random.bernoulli(first, RATE, (len(data[0]),))
    order = jnp.argsort(~taken, stable=True)
    if by_number:
        order = jnp.concatenate([order, jnp.zeros(places, order.dtype)])[:places]
        batch = tuple(column[order] for column in data)
    else:
        batch = tuple(
            jnp.concatenate([column[order], jnp.zeros((places, *column.shape[1:]))])[:places] for column in data
        )
    weight = (jnp.arange(places) < taken.sum()).astype(jnp.float32)
    return weight @ clip(gradients(WEIGHTS, batch)) + CLIP * scale * jax.random.normal(second, WEIGHTS.shape)


def mean_clipped(key, data):
    """The gradient of a sorted batch's mean loss, clipped as a whole."""
    first, second = jax.random.split(key)
    records = len(data[0])
    index, present = sorted_first(first, records, records)
    batch = tuple(column[index] for column in data)

    def mean(weights):
        return jnp.sum(present * jax.vmap(loss, (None, 0, 0))(weights, *batch)) / records

    return clipped(jax.grad(mean)(WEIGHTS)[None])[0] + CLIP * NOISE * jax.random.normal(second, WEIGHTS.shape)


def marked_first(key, data):
    """Noisy sum over the records that their own column marks, sorted to the front."""
    taken = data[1] < 0
    order = jnp.argsort(~taken, stable=True)
    found = taken[order, None] * clipped(gradients(WEIGHTS, tuple(column[order] for column in data)))
    return found.sum(axis=0, keepdims=True) + CLIP * NOISE * jax.random.normal(key, WEIGHTS.shape)


def half_the_noise_later(key, data):
    """A round whose batch is not followed, and one with half of its noise that reads it."""
    first, second = jax.random.split(key)
    (known,) = sorted_step(first, data, places=7, masked=False)
    total = clipped(gradients(WEIGHTS + 0.1 * known, data)).sum(0)
    return total + CLIP * NOISE / 2 * jax.random.normal(second, WEIGHTS.shape)


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
SORTED = {
    "padded": functools.partial(sorted_step, places=12),
    "in parts": functools.partial(sorted_step, places=12, parts=3),
    "cut": functools.partial(sorted_step, places=7),
} | {taking: functools.partial(sorted_step, taking=taking) for taking in (*PUBLIC, "in an order")}
SORTED["by a column"] = marked_first
SORTED["padded and cut"] = cut_step
SORTED["numbers padded and cut"] = functools.partial(cut_step, by_number=True)
SORTED_FAULTY = {
    "too_little_noise": functools.partial(sorted_step, places=12, scale=0.8 * NOISE),
    "records_mixed_before_sum": functools.partial(sorted_step, places=12, clip=together),
    "not_clipped": functools.partial(sorted_step, places=12, clip=lambda found: found),
    "clipped_after_sum": mean_clipped,
}
CUT_FAULTY = {
    "too_little_noise": functools.partial(cut_step, scale=0.8 * NOISE),
    "records_mixed_before_sum": functools.partial(cut_step, clip=together),
    "not_clipped": functools.partial(cut_step, clip=lambda found: found),
}
NOT_JUDGED = {
    taking: functools.partial(sorted_step, places=12, parts=3, taking=taking)
    for taking in ("to the back", "reversed", "permutation")
}
NOT_JUDGED["by their number"] = functools.partial(sorted_step, taking="by their number")
NOT_JUDGED["filled up"] = functools.partial(sorted_step, places=7, masked=False)
"""Where fewer are taken than there are places, others stand in for them: the record drives one of them out."""
UNMASKED = functools.partial(step, masked=False)
