"""The same noise on an NVIDIA GPU: kernels that draw, transform and store or reduce, with the hardware's functions.

They compute what ``mechanisms.randomness.noise`` does from the same counters: normals differ by less than 1e-5.
XLA's own code spends most of its time on logarithm and sine with all their digits; ``lg2.approx``, ``sqrt.approx``,
``sin.approx`` and ``cos.approx`` have absolute errors of 2^-22, 2^-23 (relative), 2^-20.9 and 2^-20.5 [PTX ISA 8,
section 9.7.3], which move a normal of 7.9 by 7e-6 at most and one below 2 by 3e-6.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

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
WIDE = 512
"""Blocks that a program draws at once to reduce them, and..."""
LOOPS = 16
"""... how often it does so at most."""
NARROW = 256
"""The same for vectors of fewer blocks, of which a program reads several: blocks of all of them together."""
TOGETHER = 256
"""Short vectors that a program sums, each in a thread of its own, and..."""
UNROLLED = 4
"""... blocks of each in one turn of its loop."""
Unary = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Functions:
    """What a kernel computes with."""

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
    """A 32-bit word as the signed number with its bits: kernels compute in signed words."""
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


def _square(own: Functions, high: jax.Array, low: jax.Array) -> jax.Array:
    """The squared radius of a pair, -2 ln u: for sums, to which 4e-7 does not matter."""
    return own.log2(_uniform(own, high, low)) * jnp.float32(-2 * math.log(2))


def _radius(own: Functions, high: jax.Array, low: jax.Array) -> jax.Array:
    """The radius of a pair, by the complement where u is near 1: small normals keep their digits."""
    rest = _uniform(own, ~high, ~low)
    near_one = rest * (rest * (rest * (2 / 3) + 1.0) + 2.0)
    return own.sqrt(jnp.where(rest < 2.0**-8, near_one, _square(own, high, low)))


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


def _reduce(keys_ref, out_ref, *, own: Functions, start: int, stop: int, shape: tuple[int, int], loops: int) -> None:
    """The sum of z^2 - 1 over blocks of several keys: the squares of a pair are the squared radius, at any angle."""
    tile, part = pl.program_id(0), pl.program_id(1)
    trials, width = shape
    row = tile * trials + jnp.arange(trials, dtype=jnp.int32)
    keys = keys_ref[row, jnp.zeros_like(row)][:, None], keys_ref[row, jnp.ones_like(row)][:, None]
    first = start + part * (width * loops) + lax.broadcasted_iota(jnp.int32, shape, 1)

    def add(count: jax.Array, total: jax.Array) -> jax.Array:
        index = first + count * width
        a, b, c, d = _philox(own, keys, index)
        squares = _square(own, a, b) + _square(own, c, d) - 4.0
        return total + jnp.where(index < stop, squares, 0.0)

    total = lax.fori_loop(0, loops, add, jnp.zeros(shape, jnp.float32))
    out_ref[:, 0] = jnp.sum(total, axis=1)


def _reduce_short(one_ref, two_ref, *out_refs, own: Functions, size: int) -> None:
    """The first block's normals of several keys, and the sum of z^2 - 1 over all others up to ``size``."""
    keys = one_ref[...], two_ref[...]
    zero = jnp.zeros_like(keys[0])

    def drawn(index: int) -> tuple[jax.Array, ...]:
        a, b, c, d = _philox(own, keys, zero + index)
        return (*_pair(own, a, b), *_pair(own, c, d))

    def add(index: jax.Array | int, total: jax.Array) -> jax.Array:
        a, b, c, d = _philox(own, keys, zero + index)
        return total + (_square(own, a, b) + _square(own, c, d) - 4.0)

    def turn(count: jax.Array, total: jax.Array) -> jax.Array:
        for place in range(UNROLLED):
            total = add(1 + count * UNROLLED + place, total)
        return total

    whole = size // 4
    turns = (whole - 1) // UNROLLED
    total = lax.fori_loop(0, turns, turn, jnp.zeros(zero.shape, jnp.float32))
    for index in range(1 + turns * UNROLLED, whole):
        total = add(index, total)
    for value in drawn(whole)[: size % 4] if size % 4 else ():
        total = total + (value * value - 1.0)
    for out_ref, value in zip(out_refs, (*drawn(0), total), strict=True):
        out_ref[...] = value


def _signed(keys: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(keys, jnp.int32)


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
    )(_signed(keys))
    return drawn.reshape(len(keys), -1)


def _width(count: int) -> int:
    """Blocks of one vector drawn at once: a power of two that leaves the fewest lanes idle, the largest of those.

    Idle lanes take as long as others: 24 blocks in three turns of 8 took 166 us for a million vectors on an H200, in
    one turn of 32 lanes 231.
    """
    if count >= WIDE:
        return WIDE
    widths = [1 << power for power in range(3, WIDE.bit_length()) if -(-count // (1 << power)) <= LOOPS]
    return min(widths, key=lambda width: (-(-count // width) * width, -width))


def sum_squares(
    keys: jax.Array, start: int, stop: int, *, own: Functions = HARDWARE, interpret: bool = False
) -> jax.Array:
    """The sum of z^2 - 1 over the normals of blocks ``start`` to ``stop``, for every key (keys, 2)."""
    count = stop - start
    width = _width(count)
    trials = max(1, NARROW // width)
    loops = min(LOOPS, -(-count // width))
    parts = -(-count // (width * loops))
    padded = jnp.pad(_signed(keys), ((0, -len(keys) % trials), (0, 0)))
    sums = pl.pallas_call(
        functools.partial(_reduce, own=own, start=start, stop=stop, shape=(trials, width), loops=loops),
        out_shape=jax.ShapeDtypeStruct((len(padded), parts), jnp.float32),
        grid=(len(padded) // trials, parts),
        in_specs=[pl.BlockSpec()],
        out_specs=pl.BlockSpec((trials, 1), lambda tile, part: (tile, part)),
        compiler_params=plgpu.CompilerParams(num_warps=1 if trials > 1 else 8, num_stages=1),
        interpret=interpret,
        name="sum_squares",
    )(padded)
    return jnp.sum(sums[: len(keys)], axis=1)


def sum_short(
    keys: jax.Array, size: int, *, own: Functions = HARDWARE, interpret: bool = False
) -> tuple[jax.Array, ...]:
    """Of vectors of ``size`` normals in turn, for every key (keys, 2): the first four, and the sum of z^2 - 1 over the
    others. A thread for every vector: no sum crosses lanes, and a key is read once."""
    count = len(keys)
    padded = jnp.pad(_signed(keys), ((0, -count % TOGETHER), (0, 0)))
    block = pl.BlockSpec((TOGETHER,), lambda tile: (tile,))
    found = pl.pallas_call(
        functools.partial(_reduce_short, own=own, size=size),
        out_shape=[jax.ShapeDtypeStruct((len(padded),), jnp.float32)] * 5,
        grid=(len(padded) // TOGETHER,),
        in_specs=[block, block],
        out_specs=[block] * 5,
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="sum_short",
    )(padded[:, 0], padded[:, 1])
    return tuple(values[:count] for values in found)


@functools.cache
def stored(count: int) -> Callable[[jax.Array], jax.Array]:
    """``store_normals`` of one key, a whole batch of keys at once under vmap."""
    return _batched(functools.partial(store_normals, count=count))


@functools.cache
def summed(start: int, stop: int) -> Callable[[jax.Array], jax.Array]:
    """``sum_squares`` of one key, likewise."""
    return _batched(functools.partial(sum_squares, start=start, stop=stop))


@functools.cache
def summed_short(size: int) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """``sum_short`` of one key, likewise."""
    return _batched(functools.partial(sum_short, size=size))


def _batched(many: Callable[[jax.Array], Any]) -> Callable[[jax.Array], Any]:
    @custom_vmap
    def one(key: jax.Array) -> Any:
        return jax.tree.map(lambda values: values[0], many(key[None]))

    @one.def_vmap
    def batch(size: int, batched: list[bool], keys: jax.Array) -> tuple[Any, Any]:
        del size
        found = many(keys) if batched[0] else one(keys)
        return found, jax.tree.map(lambda values: batched[0], found)

    return one
