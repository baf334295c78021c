"""What a score of first coordinates and the mean square of the rest reads: a vector's sums, without the vector."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpsgd_audit.later import jax, jitted, jnp, lax
from mechanisms.randomness.bits import Block, Stream, Words, blocks, key_words
from mechanisms.randomness.noise import (
    FEW,
    GROUP,
    RADIUS_BITS,
    SHORT,
    minus_log,
    normal,
    normals,
    on_devices,
    side_by_side,
)

WIDE = 512
"""Blocks that a CPU draws at once."""


class Sums(NamedTuple):
    """Of a vector of standard normals."""

    first: jax.Array
    """Its first coordinates."""
    excess: jax.Array
    """The sum of z^2 - 1 over the others."""


@jitted(static_argnames=("size", "first"))
def normal_sums(key: jax.Array, size: int, first: int) -> Sums:
    """The sums of ``normal(key, (size,))``, up to rounding, in half its time or less.

    The squares of a pair of normals add up to its squared radius, so neither angle nor square root is computed, and
    nothing is stored. Only the blocks of the first coordinates and the last few are drawn in full.
    """
    each = 1 if size <= SHORT else GROUP
    few = size <= FEW or (size <= SHORT and jax.default_backend() == "cpu")
    if few or first > 4 * each:
        drawn = normal(key, (size,))
        return Sums(drawn[:first], jnp.sum(drawn[first:] ** 2 - 1.0))
    ends = functools.partial(_with_ends, size=size, first=first)
    short = functools.partial(_short_in_a_kernel, size=size, first=first)
    return on_devices(
        key_words(key),
        cpu=functools.partial(ends, middle=_tile_by_tile),
        gpu=short if size <= SHORT else functools.partial(ends, middle=_in_a_kernel),
        default=functools.partial(ends, middle=_at_once),
    )


def _with_ends(key: Words, *, size: int, first: int, middle: Callable[..., jax.Array]) -> Sums:
    """The blocks at both ends drawn in full, those between them summed."""
    each = 1 if size <= SHORT else GROUP
    whole = size // (4 * each) * each
    index = np.r_[:each, whole : whole + each].astype(np.uint32)
    drawn = side_by_side(normals(blocks(key, Stream.NORMAL, jnp.asarray(index))), size)
    ends = drawn[: size - 4 * (whole - each)]
    return Sums(ends[:first], middle(key, start=each, stop=whole) + jnp.sum(ends[first:] ** 2 - 1.0))


def _excess(block: Block) -> jax.Array:
    """The sum of z^2 - 1 over a block's four normals."""
    first, second = (minus_log(pair.high, pair.low, RADIUS_BITS - 32) for pair in block)
    return 2.0 * (first + second) - 4.0


def _at_once(key: Words, *, start: int, stop: int) -> jax.Array:
    return jnp.sum(_excess(blocks(key, Stream.NORMAL, jnp.arange(start, stop, dtype=jnp.uint32))))


def _tile_by_tile(key: Words, *, start: int, stop: int) -> jax.Array:
    """XLA for CPUs computes side by side what it adds tile to tile, and one by one what it sums at once or masks."""
    tiles, left = divmod(stop - start, WIDE)

    def drawn(begin: jax.Array, size: int) -> jax.Array:
        return _excess(blocks(key, Stream.NORMAL, begin + lax.iota(jnp.uint32, size)))

    def add(total: jax.Array, tile: jax.Array) -> tuple[jax.Array, None]:
        return total + drawn(tile * jnp.uint32(WIDE) + jnp.uint32(start), WIDE), None

    total, _ = lax.scan(add, jnp.zeros(WIDE, jnp.float32), lax.iota(jnp.uint32, tiles))
    return jnp.sum(total) + jnp.sum(drawn(jnp.uint32(stop - left), left))


def _in_a_kernel(key: Words, *, start: int, stop: int) -> jax.Array:
    from mechanisms.randomness.noise_kernel import summed

    return summed(start, stop)(jnp.stack(key))


def _short_in_a_kernel(key: Words, *, size: int, first: int) -> Sums:
    from mechanisms.randomness.noise_kernel import summed_short

    *drawn, excess = summed_short(size)(jnp.stack(key))
    squares = [value * value - 1.0 for value in drawn[first:]]
    return Sums(jnp.stack(drawn)[:first], functools.reduce(jnp.add, squares, excess))
