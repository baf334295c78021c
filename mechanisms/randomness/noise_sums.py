"""The sums of a noise vector that a score reads (first coordinates, mean square of the rest), without the vector."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsgd_audit.later import jax, jitted, jnp, lax
from mechanisms.randomness.bits import Stream, Words, blocks, key_words
from mechanisms.randomness.noise import FEW, GROUP, SHORT, normal, normals, side_by_side, signed_float

TOGETHER = 4
"""Blocks that share one logarithm: two and eight are slower in a whole audit (benchmarks/README.md)."""


class Sums(NamedTuple):
    """Sums of a vector of standard normals."""

    first: jax.Array
    """The vector's first coordinates."""
    excess: jax.Array
    """The sum of z^2 - 1 over the other coordinates."""


@jitted(static_argnames=("size", "first"))
def normal_sums(key: jax.Array, size: int, first: int) -> Sums:
    """The sums of ``normal(key, (size,))``, up to rounding, in half its time or less.

    The squares of a pair of normals add up to its squared radius, so neither angle nor square root is computed, and
    nothing is stored. Only the blocks of the first coordinates and the last few are drawn in full.
    """
    each = 1 if size <= SHORT else GROUP
    if size <= 2 * FEW or first > 4 * each:
        drawn = normal(key, (size,))
        return Sums(drawn[:first], jnp.sum(drawn[first:] ** 2 - 1.0))
    own = key_words(key)
    whole = size // (4 * each) * each
    index = np.r_[:each, whole : whole + each].astype(np.uint32)
    drawn = side_by_side(normals(blocks(own, Stream.NORMAL, jnp.asarray(index))), size)
    ends = drawn[: size - 4 * (whole - each)]
    return Sums(ends[:first], _between(own, each, whole) + jnp.sum(ends[first:] ** 2 - 1.0))


def _between(key: Words, start: int, stop: int) -> jax.Array:
    """The sum of z^2 - 1 over the normals of blocks ``start`` to ``stop``.

    A pair's squares add up to -2 ln u, so one logarithm of the product of eight uniforms serves sixteen normals. Such a
    product is below the smallest float32 with probability 1e-28; a uniform near 1 makes its logarithm err by 6e-8.
    """
    lanes = -(-(stop - start) // TOGETHER)

    def drawn(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = blocks(key, Stream.NORMAL, index)
        present = index < stop
        return jnp.where(present, _uniform(first) * _uniform(second), 1.0), jnp.where(present, 4.0, 0.0)

    if jax.default_backend() == "cpu":
        # the generator once, for all: XLA compiles that in four fifths of the time
        index = jnp.uint32(start) + lax.iota(jnp.uint32, TOGETHER * lanes).reshape(TOGETHER, lanes)
        products, counts = drawn(index)
        excess = -2.0 * jnp.log(jnp.prod(products, axis=0)) - jnp.sum(counts, axis=0)
        # it draws side by side what is kept apart from its sum (and, on ARM, masked), else one by one
        return jnp.sum(lax.optimization_barrier(excess))
    product, count = jnp.ones(lanes, jnp.float32), jnp.zeros(lanes, jnp.float32)
    for part in range(TOGETHER):
        factor, normals_of_it = drawn(jnp.uint32(start + part * lanes) + lax.iota(jnp.uint32, lanes))
        product, count = product * factor, count + normals_of_it
    return jnp.sum(-2.0 * jnp.log(product) - count)


def _uniform(pair: Words) -> jax.Array:
    """The uniform of a pair's radius, by fewer operations than where single normals need its digits near 1."""
    rest = signed_float(pair.low >> jnp.uint32(20))
    return pair.high.astype(jnp.float32) * 2.0**-32 + (rest * 2.0**-44 + 2.0**-45)
