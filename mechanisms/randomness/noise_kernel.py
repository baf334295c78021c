"""The same noise on an NVIDIA GPU: a kernel that draws, transforms and stores, with the hardware's functions.

It computes what ``mechanisms.randomness.noise`` does from the same counters: normals differ by less than 1e-5.
XLA's own code spends most of its time on logarithm and sine with all their digits; ``lg2.approx``, ``sqrt.approx``,
``sin.approx`` and ``cos.approx`` have absolute errors of 2^-22, 2^-23 (relative), 2^-20.9 and 2^-20.5 [PTX ISA 8,
section 9.7.3], which move a normal of 7.9 by 7e-6 at most and one below 2 by 3e-6.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from mechanisms.randomness.bits import MULTIPLIERS, ROUNDS, WEYL, Stream

GROUP = 8
"""Blocks laid out side by side, as in mechanisms.randomness.noise."""
TILE = 256
"""Blocks that a program draws and stores."""
Unary = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Functions:
    """What the kernel computes with."""

    high_product: Callable[[jax.Array, int], jax.Array]
    """Upper 32 bits of a product of unsigned words."""
    unsigned: Unary
    """A word as the nearest float32."""
    log2: Unary
    sqrt: Unary
    sin: Unary
    cos: Unary


def _assembly(code: str, registers: str, x: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct(x.shape, jnp.float32 if registers.startswith("=f") else x.dtype)
    (found,) = plgpu.elementwise_inline_asm(code, args=[x], constraints=registers, pack=1, result_shape_dtypes=[shape])
    return found


HARDWARE = Functions(
    high_product=lambda x, factor: _assembly(f"mul.hi.u32 $0, $1, {factor};", "=r,r", x),
    unsigned=functools.partial(_assembly, "cvt.rn.f32.u32 $0, $1;", "=f,r"),
    log2=functools.partial(_assembly, "lg2.approx.f32 $0, $1;", "=f,f"),
    sqrt=functools.partial(_assembly, "sqrt.approx.f32 $0, $1;", "=f,f"),
    sin=functools.partial(_assembly, "sin.approx.f32 $0, $1;", "=f,f"),
    cos=functools.partial(_assembly, "cos.approx.f32 $0, $1;", "=f,f"),
)


def _word(value: int) -> int:
    """A 32-bit word as the signed number with its bits: the kernel computes in signed words."""
    return value - 2**32 if value >= 2**31 else value


def _philox(own: Functions, keys: tuple[jax.Array, jax.Array], index: jax.Array) -> tuple[jax.Array, ...]:
    """The four words of block ``index`` (below 2^32) of the stream of normals."""
    one, two = keys
    a, b, c, d = index, jnp.zeros_like(index), jnp.full_like(index, int(Stream.NORMAL)), jnp.zeros_like(index)
    for count in range(ROUNDS):
        step = [jnp.int32(_word(count * weyl & 0xFFFFFFFF)) for weyl in WEYL]
        left, right = a * jnp.int32(_word(MULTIPLIERS[0])), c * jnp.int32(_word(MULTIPLIERS[1]))
        top, bottom = own.high_product(a, MULTIPLIERS[0]), own.high_product(c, MULTIPLIERS[1])
        a, b, c, d = bottom ^ b ^ (one + step[0]), right, top ^ d ^ (two + step[1]), left
    return a, b, c, d


def _uniform(own: Functions, high: jax.Array, low: jax.Array) -> jax.Array:
    """(V + 1/2) / 2^44 for V = high and the top 12 bits of low."""
    rest = lax.shift_right_logical(low, jnp.int32(20)).astype(jnp.float32)
    return own.unsigned(high) * 2.0**-32 + (rest * 2.0**-44 + 2.0**-45)


def _radius(own: Functions, high: jax.Array, low: jax.Array) -> jax.Array:
    """The radius of a pair, by the complement where u is near 1: small normals keep their digits."""
    rest = _uniform(own, ~high, ~low)
    near_one = rest * (rest * (rest * (2 / 3) + 1.0) + 2.0)
    elsewhere = own.log2(_uniform(own, high, low)) * jnp.float32(-2 * math.log(2))
    return own.sqrt(jnp.where(rest < 2.0**-8, near_one, elsewhere))


def _pair(own: Functions, high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both normals: 32-bit angles wrap around as full turns do."""
    radius = _radius(own, high, low)
    turned = lax.shift_left(low, jnp.int32(14)) | lax.shift_left(
        lax.shift_right_logical(low, jnp.int32(20)), jnp.int32(2)
    )
    quadrant = lax.shift_left(lax.shift_right_logical(low, jnp.int32(18)), jnp.int32(30))
    angle = (quadrant + lax.shift_right_arithmetic(turned, jnp.int32(2))).astype(jnp.float32) * jnp.float32(
        math.pi / 2**31
    )
    return radius * own.cos(angle), radius * own.sin(angle)


def _store(keys_ref, out_ref, *, own: Functions) -> None:
    """One tile of blocks of one key, in groups of eight."""
    trial, part = pl.program_id(0), pl.program_id(1)
    keys = keys_ref[trial, 0], keys_ref[trial, 1]
    rows = TILE // GROUP
    row = lax.broadcasted_iota(jnp.int32, (rows, GROUP), 0)
    index = part * TILE + row * GROUP + lax.broadcasted_iota(jnp.int32, (rows, GROUP), 1)
    a, b, c, d = _philox(own, keys, index)
    for lane, values in enumerate((*_pair(own, a, b), *_pair(own, c, d))):
        out_ref[0, :, lane, :] = values


def store_normals(keys: jax.Array, count: int, *, own: Functions = HARDWARE, interpret: bool = False) -> jax.Array:
    """The normals of ``count`` blocks and a few more for every key (keys, 2), laid out in groups of eight blocks."""
    tiles = -(-count // TILE)
    rows = TILE // GROUP
    drawn = pl.pallas_call(
        functools.partial(_store, own=own),
        out_shape=jax.ShapeDtypeStruct((len(keys), tiles * rows, 4, GROUP), jnp.float32),
        grid=(len(keys), tiles),
        in_specs=[pl.BlockSpec()],
        out_specs=pl.BlockSpec((1, rows, 4, GROUP), lambda trial, part: (trial, part, 0, 0)),
        compiler_params=plgpu.CompilerParams(num_warps=2, num_stages=1),
        interpret=interpret,
        name="store_normals",
    )(lax.bitcast_convert_type(keys, jnp.int32))
    return drawn.reshape(len(keys), -1)


@functools.cache
def stored(count: int) -> Callable[[jax.Array], jax.Array]:
    """``store_normals`` of one key, a whole batch of keys at once under vmap."""

    @custom_vmap
    def one(key: jax.Array) -> jax.Array:
        return store_normals(key[None], count)[0]

    @one.def_vmap
    def batch(size: int, batched: list[bool], keys: jax.Array) -> tuple[jax.Array, bool]:
        del size
        return (store_normals(keys, count) if batched[0] else one(keys)), batched[0]

    return one
