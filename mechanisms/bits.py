"""Random bits from counters: word i of a stream is a function of the key, the stream and i alone."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


class Stream(enum.IntEnum):
    """Which draws the bits are for: different streams of one key are independent.

    The stream is the high word of the counter. jax.random keeps that word at zero (up to 2^32 draws a key), so
    nothing drawn here repeats what ``split``, ``fold_in`` or ``bits`` make of the same key.
    """

    NORMAL = 0x80000001
    UNIFORM = 0x80000002
    EXPONENTIAL = 0x80000003
    LAPLACE = 0x80000004
    BATCH = 0x80000005
    CHI_SQUARE = 0x80000006
    RESPONSE = 0x80000007
    PLACE = 0x80000008


class Words(NamedTuple):
    """Two independent uniform 32-bit words."""

    high: jax.Array
    low: jax.Array


def threefry(key: Words, counter: Words) -> Words:
    """Threefry-2x32 with 20 rounds: a bijection of the counter for every key. [salmon2011, section 3.3]"""
    schedule = (key.high, key.low, key.high ^ key.low ^ jnp.uint32(PARITY))
    x, y = counter.high + schedule[0], counter.low + schedule[1]
    for block in range(5):
        for distance in ROTATIONS[block % 2]:
            x = x + y
            y = ((y << jnp.uint32(distance)) | (y >> jnp.uint32(32 - distance))) ^ x
        x = x + schedule[(block + 1) % 3]
        y = y + schedule[(block + 2) % 3] + jnp.uint32(block + 1)
    return Words(x, y)


def key_words(key: jax.Array) -> Words:
    """The two words of a threefry key made with ``jax.random.key``."""
    data = jax.random.key_data(key)
    if data.shape != (2,):
        raise ValueError(
            f"key must be one threefry2x32 key made with jax.random.key, got key data of shape {data.shape}."
        )
    return Words(data[0], data[1])


def words(key: jax.Array | Words, stream: Stream, counters: jax.Array) -> Words:
    """64 random bits for each counter (uint32, any shape)."""
    own = key if isinstance(key, Words) else key_words(key)
    return threefry(own, Words(jnp.full_like(counters, jnp.uint32(stream)), counters))


def positions(shape: tuple[int, ...]) -> jax.Array:
    """The flat index of every coordinate."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"at most 2^32 - 1 draws from one key and stream, got shape {shape}.")
    return lax.iota(jnp.uint32, size).reshape(shape)


def below(bits: Words, threshold: int) -> jax.Array:
    """Whether the 64 bits, read as one integer, are below ``threshold`` (0 to 2^64)."""
    if threshold >= 2**64:
        return jnp.ones(bits.high.shape, bool)
    high, low = jnp.uint32(threshold >> 32), jnp.uint32(threshold & 0xFFFFFFFF)
    return (bits.high < high) | ((bits.high == high) & (bits.low < low))
