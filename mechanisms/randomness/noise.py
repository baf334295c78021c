"""Noise with right tails: a function of (key, coordinate), correct in law to 1e-12.

``jax.random.normal`` in float32 inverts the normal distribution function at 23-bit uniforms and therefore ends at
5.22 standard deviations above and 5.42 below: an audit of many coordinates then counts too few false alarms. Here
every draw spends 64 bits, of which 44 or more decide how far out it lies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsgd_audit.later import jax, jitted, jnp, lax
from mechanisms.randomness.bits import Block, Stream, Words, blocks, key_words, positions, words

RADIUS_BITS = 44
LARGEST_NORMAL = math.sqrt(2 * (RADIUS_BITS + 1) * math.log(2))
"""No draw exceeds 7.9; a normal does so with probability 2.8e-15."""
FEW = 16
"""Draws up to which each has a block of its own."""
SHORT = 1024
"""Draws up to which the four of a block are neighbours."""
GROUP = 8
"""Blocks that are laid out side by side beyond that."""
# Taylor coefficients: on [-pi/4, pi/4] the first one left out is below 2e-9.
SINE = (1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0)
COSINE = (-1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1.0)


def polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    """Horner's rule, highest power first."""
    value = jnp.float32(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + jnp.float32(coefficient)
    return value


def signed_float(bits: jax.Array) -> jax.Array:
    """Small unsigned integers as float32; the signed conversion is one instruction, the unsigned is not."""
    return bits.astype(jnp.int32).astype(jnp.float32)


def open_uniform(high: jax.Array, low: jax.Array, low_bits: int) -> jax.Array:
    """``(V + 1/2) / 2^(32 + low_bits)`` for the integer V = high, then the top bits of low.

    The float32 has full relative precision at zero, where the tails are made, and may round to 1.
    """
    middle_bits = low_bits + 8
    middle = ((high & jnp.uint32(0xFF)) << jnp.uint32(low_bits)) | (low >> jnp.uint32(32 - low_bits))
    top = signed_float(high >> jnp.uint32(8)) * 2.0**-24
    return top + (signed_float(middle) + 0.5) * 2.0 ** -(24 + middle_bits)


def minus_log(high: jax.Array, low: jax.Array, low_bits: int) -> jax.Array:
    """``-ln`` of the open uniform: an exponential, never zero.

    A float32 cannot tell u from 1 better than 6e-8, so there the complement of the bits gives 1 - u instead.
    """
    rest = open_uniform(~high, ~low, low_bits)
    near_one = rest * polynomial((1 / 3, 1 / 2, 1.0), rest)
    return jnp.where(rest < 2.0**-8, near_one, -jnp.log(open_uniform(high, low, low_bits)))


def flip_sign(value: jax.Array, sign: jax.Array) -> jax.Array:
    """Negate where the top bit of ``sign`` is set."""
    flipped = lax.bitcast_convert_type(value, jnp.uint32) ^ (sign & jnp.uint32(0x80000000))
    return lax.bitcast_convert_type(flipped, jnp.float32)


def normal_pair(bits: Words) -> tuple[jax.Array, jax.Array]:
    """Two independent standard normals from 64 bits: ``sqrt(-2 ln u) (cos t, sin t)``. [box1958]

    The high word and 12 bits of the low one make the radius. The other 20 make the angle: a 2-bit quadrant, and 2^18
    places in it; for each radius the law of any linear combination is then a rectangle rule over a smooth periodic
    function, exact far beyond 1e-12. The 12 bits serve once more, to refine the angle by less than 2^-20 of a
    turn: only by that can the values near zero be as small as they should.
    """
    radius = jnp.sqrt(2.0 * minus_log(bits.high, bits.low, RADIUS_BITS - 32))
    quadrant = bits.low >> jnp.uint32(18)
    turned = (bits.low << jnp.uint32(14)) | ((bits.low >> jnp.uint32(20)) << jnp.uint32(2))
    inside = lax.bitcast_convert_type(turned, jnp.int32) >> 2
    angle = (inside.astype(jnp.float32) + 0.5) * jnp.float32(math.pi / 2**31)
    square = angle * angle
    sine, cosine = angle * polynomial(SINE, square), polynomial(COSINE, square)
    odd = (quadrant & jnp.uint32(1)) != 0
    first, second = jnp.where(odd, sine, cosine), jnp.where(odd, cosine, sine)
    half_turn = quadrant << jnp.uint32(30)
    return (
        radius * flip_sign(first, half_turn ^ (quadrant << jnp.uint32(31))),
        radius * flip_sign(second, half_turn),
    )


def normals(block: Block) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Four independent standard normals from one block."""
    return (*normal_pair(block.first), *normal_pair(block.second))


def _pack(block: Block) -> jax.Array:
    """A block as one complex number of 128 bits, never computed with."""
    with jax.enable_x64(True):

        def join(pair: Words) -> jax.Array:
            high, low = (lax.convert_element_type(word, jnp.uint64) for word in pair)
            return lax.bitcast_convert_type((high << np.uint64(32)) | low, jnp.float64)

        return lax.complex(join(block.first), join(block.second))


def _unpack(packed: jax.Array) -> Block:
    with jax.enable_x64(True):

        def split(part: jax.Array) -> Words:
            bits = lax.bitcast_convert_type(part, jnp.uint64)
            return Words(
                lax.convert_element_type(bits >> np.uint64(32), jnp.uint32), lax.convert_element_type(bits, jnp.uint32)
            )

        return Block(split(lax.real(packed)), split(lax.imag(packed)))


def _in_turn(lanes: tuple[jax.Array, ...]) -> jax.Array:
    """All normals of a block, then those of the next."""
    return jnp.stack(lanes, axis=-1).reshape(-1)


def _in_groups(lanes: tuple[jax.Array, ...]) -> jax.Array:
    """The first normals of eight blocks, their second ones and so on: neighbours are computed side by side."""
    return jnp.stack([lane.reshape(-1, GROUP) for lane in lanes], axis=1).reshape(-1)


def _on_cpu(key: Words, count: int) -> jax.Array:
    """Normals of ``count`` blocks as XLA for CPUs computes them fastest.

    It fuses one result at a time, so four arrays made of the same bits would each repeat the generator: a complex
    number is one result, first for the bits of a block, then for each pair of normals. Loops keep these from being
    fused, and so repeated, in whatever reads them; for short vectors they cost more than one repetition.
    """

    def bits(start: jax.Array, size: int) -> Block:
        return blocks(key, Stream.NORMAL, start + lax.iota(jnp.uint32, size))

    def pairs_of(block: Block) -> tuple[jax.Array, jax.Array]:
        return lax.complex(*normal_pair(block.first)), lax.complex(*normal_pair(block.second))

    if 4 * count <= SHORT:
        pairs = jnp.stack(pairs_of(bits(jnp.uint32(0), count)), axis=-1)
        return jnp.stack([lax.real(pairs), lax.imag(pairs)], axis=-1).reshape(-1)
    half = count // 2
    starts = jnp.array([0, half], jnp.uint32)
    _, packed = lax.scan(lambda _, start: (None, _pack(bits(start, half))), None, starts)
    _, (first, second) = lax.scan(lambda _, part: (None, pairs_of(_unpack(part))), None, packed)
    return _in_groups((lax.real(first), lax.imag(first), lax.real(second), lax.imag(second)))


def _at_once(key: Words, count: int) -> jax.Array:
    """The same for accelerators, where one kernel has all results, once, if it is kept apart from its readers."""
    lanes = lax.optimization_barrier(normals(blocks(key, Stream.NORMAL, lax.iota(jnp.uint32, count))))
    return side_by_side(lanes, 4 * count)


def _in_a_kernel(key: Words, count: int) -> jax.Array:
    if 4 * count <= SHORT:
        return _at_once(key, count)
    from mechanisms.randomness.noise_kernel import stored

    return stored(count)(jnp.stack(key))[: 4 * count]


def side_by_side(lanes: tuple[jax.Array, ...], size: int) -> jax.Array:
    """The four normals of every block as a vector of ``size`` draws has them: short ones in turn, others in groups."""
    return _in_turn(lanes) if size <= SHORT else _in_groups(lanes)


def on_devices(*arguments: Any, cpu: Callable, gpu: Callable, default: Callable) -> Any:
    """The code of the device that runs it; the kernel for NVIDIA's is traced only where one is.

    Where only CPUs are used, their code is all that is traced; elsewhere it would be slower and as right.
    """
    if jax.default_backend() == "cpu":
        return cpu(*arguments)
    branches = {"cuda": gpu} if jax.default_backend() == "gpu" and _has_kernel() else {}
    return lax.platform_dependent(*arguments, cpu=cpu, default=default, **branches)


@functools.cache
def _has_kernel() -> bool:
    """Whether this JAX can still compile it: Pallas' Triton backend is to be removed one day."""
    try:
        import mechanisms.randomness.noise_kernel  # noqa: F401
    except ImportError:
        return False
    return True


@jitted(static_argnames="shape")
def normal(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Standard normals, float32, four to each call of the generator: draw j of n depends on the key, j and n alone.

    Up to 16 draws each has a block of its own. Up to 1,024, draw j is normal ``j % 4`` of block ``j // 4``; beyond,
    blocks come in groups of eight, and j is normal ``j // 8 % 4`` of block ``j // 32 * 8 + j % 8``. Each is what an
    H200 and x86 cores read fastest (benchmarks/README.md).

    Not cryptographic, and not a safe release: float32 values are a lattice.
    """
    size = math.prod(shape)
    if size <= FEW:
        return normal_pair(words(key, Stream.NORMAL, positions(shape)))[0]
    count = -(-size // 4) if size <= SHORT else GROUP * -(-size // (4 * GROUP))
    drawn = on_devices(
        key_words(key),
        cpu=functools.partial(_on_cpu, count=count),
        gpu=functools.partial(_in_a_kernel, count=count),
        default=functools.partial(_at_once, count=count),
    )
    return drawn[:size].reshape(shape)
