"""Derive keys from keys on the host, as XLA would compile a program for every way of doing it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax

IMPLEMENTATION = "threefry2x32"
"""Generator of every key that is made here, whatever JAX's default is, so that seeds do not depend on it.

What samplers permute and split does depend on jax_threefry_partitionable, which the fingerprint of a run includes.
"""
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
WORD = 0xFFFFFFFF


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds, for integers or arrays of them. [salmon2011, section 3.3]"""
    first, second = key
    schedule = (first, second, first ^ second ^ PARITY)
    x, y = (counter[0] + first) & WORD, (counter[1] + second) & WORD
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            x = (x + y) & WORD
            y = ((y << rotation | y >> (32 - rotation)) & WORD) ^ x
        x = (x + schedule[(block + 1) % 3]) & WORD
        y = (y + schedule[(block + 2) % 3] + block + 1) & WORD
    return x, y


def fold_in(key: jax.Array, *numbers: int) -> jax.Array:
    """Fold numbers below 2^32 into a key one after the other, as ``jax.random.fold_in`` does."""
    import jax
    import jax.numpy as jnp

    if str(jax.random.key_impl(key)) != IMPLEMENTATION:
        return functools.reduce(jax.random.fold_in, numbers, key)
    words = tuple(np.asarray(jax.random.key_data(key)).tolist())
    for number in numbers:
        words = threefry(words, (0, number))
    return jax.random.wrap_key_data(jnp.asarray(np.array(words, np.uint32)), impl=IMPLEMENTATION)


def split(key: jax.Array, count: int = 2) -> tuple[jax.Array, ...]:
    """Split a key as ``jax.random.split`` does by default (jax_threefry_partitionable), however that is set."""
    import jax

    if str(jax.random.key_impl(key)) != IMPLEMENTATION:
        return tuple(jax.random.split(key, count))
    return tuple(fold_in(key, index) for index in range(count))
