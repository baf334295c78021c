"""Random bits from counters: block i of a stream is a function of the key, the stream and i alone."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import numpy as np

from dpsgd_audit.later import jax, jitted, jnp, lax

GENERATOR = "philox4x32-10, box-muller 44-bit"
"""What makes the noise of every device: part of the record, since a seed means nothing without it."""
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


class Stream(enum.IntEnum):
    """Which draws the bits are for: different streams of one key are independent.

    The stream is the third word of the counter; the first two number the blocks, and the fourth is zero. What
    jax.random makes of the same key comes from another function, Threefry.
    """

    NORMAL = 1
    BATCH = 5
    CHI_SQUARE = 6
    TRIAL = 8
    PLACE = 9


class Words(NamedTuple):
    """Two independent uniform 32-bit words."""

    high: jax.Array
    low: jax.Array


class Block(NamedTuple):
    """128 bits, as two pairs of words."""

    first: Words
    second: Words


def _low(x: jax.Array) -> jax.Array:
    return lax.convert_element_type(x, jnp.uint32)


@jitted()
def philox(key: Words, counter: Block) -> Block:
    """Philox-4x32 with 10 rounds: a bijection of the counter for every key. [salmon2011, section 3.4]

    The four words live in the low halves of 64-bit numbers, which exist inside this function only: a product of
    two words is then one instruction, and the upper halves need not be cleared before the next. Written in 32-bit
    words, with ``lax.mulhi`` or 16-bit limbs, XLA for CPUs makes .6 and .5 of the words in the same time.
    """
    with jax.enable_x64(True):

        def wide(x: jax.Array) -> jax.Array:
            return lax.convert_element_type(x, jnp.uint64)

        a, b, c, d = (
            wide(counter.first.high),
            wide(counter.first.low),
            wide(counter.second.high),
            wide(counter.second.low),
        )
        one, two = wide(key.high), wide(key.low)
        half, mask = np.uint64(32), np.uint64(LOW)
        for index in range(ROUNDS):
            left, right = (a & mask) * np.uint64(MULTIPLIERS[0]), (c & mask) * np.uint64(MULTIPLIERS[1])
            step = [np.uint64(index * weyl & LOW) for weyl in WEYL]
            a, b, c, d = (right >> half) ^ b ^ (one + step[0]), right, (left >> half) ^ d ^ (two + step[1]), left
        return Block(Words(_low(a), _low(b)), Words(_low(c), _low(d)))


def key_words(key: jax.Array) -> Words:
    """The two words of a threefry key made with ``jax.random.key``."""
    data = jax.random.key_data(key)
    if data.shape != (2,):
        raise ValueError(
            f"key must be one threefry2x32 key made with jax.random.key, got key data of shape {data.shape}."
        )
    return Words(data[0], data[1])


def blocks(key: jax.Array | Words, stream: Stream, index: jax.Array, high: jax.Array | None = None) -> Block:
    """128 random bits for each index (uint32, any shape), or with ``high`` for each 64-bit one."""
    own = key if isinstance(key, Words) else key_words(key)
    zero = jnp.zeros_like(index)
    number = Words(index, zero if high is None else high)
    return philox(own, Block(number, Words(jnp.full_like(index, jnp.uint32(stream)), zero)))


def words(key: jax.Array | Words, stream: Stream, counters: jax.Array) -> Words:
    """64 random bits for each counter (uint32, any shape): the first half of its block."""
    return blocks(key, stream, counters).first


def positions(shape: tuple[int, ...]) -> jax.Array:
    """The flat index of every coordinate."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"at most 2^32 - 1 draws from one key and stream, got shape {shape}.")
    return lax.iota(jnp.uint32, size).reshape(shape)


def below(bits: Words, threshold: int | Words) -> jax.Array:
    """Whether the 64 bits, read as one integer, are below ``threshold`` (0 to 2^64; two words where it is traced)."""
    if isinstance(threshold, int):
        if threshold >= 2**64:
            return jnp.ones(bits.high.shape, bool)
        threshold = Words(jnp.uint32(threshold >> 32), jnp.uint32(threshold & LOW))
    return (bits.high < threshold.high) | ((bits.high == threshold.high) & (bits.low < threshold.low))
