"""The kernels for GPUs, interpreted: same counters, same places, same normals as everywhere else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mechanisms.randomness.bits import Stream, blocks
from mechanisms.randomness.noise import normal, normals
from mechanisms.randomness.noise_kernel import Functions, store_normals, sum_short, sum_squares


def high_product(x: jax.Array, factor: int) -> jax.Array:
    word = lax.bitcast_convert_type(x, jnp.uint32)
    return lax.bitcast_convert_type(lax.mulhi(word, jnp.full_like(word, jnp.uint32(factor))), jnp.int32)


def unsigned(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.uint32).astype(jnp.float32)


PLAIN = Functions(high_product=high_product, unsigned=unsigned, log2=jnp.log2, sqrt=jnp.sqrt, sin=jnp.sin, cos=jnp.cos)
KEYS = jax.random.split(jax.random.key(5, impl="threefry2x32"), 3)
WORDS = jax.random.key_data(KEYS)


@pytest.mark.long
def test_stored_normals_are_those_of_every_device():
    size = 4100
    drawn = store_normals(WORDS, -(-size // 4), own=PLAIN, interpret=True)[:, :size]
    expected = np.stack([normal(key, (size,)) for key in KEYS])
    assert np.max(np.abs(np.asarray(drawn) - expected)) < 2e-6


@pytest.mark.long
@pytest.mark.parametrize(("start", "stop"), [(1, 25), (8, 1032), (8, 20_000)])
def test_sums_are_those_of_the_stored_normals(start: int, stop: int):
    found = sum_squares(WORDS, start, stop, own=PLAIN, interpret=True)
    index = jnp.arange(start, stop, dtype=jnp.uint32)
    expected = [np.sum(np.square(np.asarray(normals(blocks(key, Stream.NORMAL, index)), float)) - 1) for key in KEYS]
    assert np.allclose(found, expected, rtol=0, atol=1e-4 + 4e-7 * stop)
    assert np.std(expected) > 1


@pytest.mark.parametrize(
    "size", [39, pytest.param(100, marks=pytest.mark.long), pytest.param(17, marks=pytest.mark.long)]
)
def test_short_vectors_have_their_first_normals_and_their_sums(size: int):
    *first, excess = sum_short(WORDS, size, own=PLAIN, interpret=True)
    expected = np.stack([normal(key, (size,)) for key in KEYS]).astype(float)
    assert np.max(np.abs(np.stack(first, axis=1) - expected[:, :4])) < 2e-6
    assert np.allclose(excess, np.sum(expected[:, 4:] ** 2 - 1, axis=1), rtol=0, atol=2e-5)


def test_the_kernels_compile_for_a_gpu():
    from mechanisms.randomness.noise_kernel import stored, summed, summed_short

    for program in (stored(1024), summed(8, 6500), summed(8, 260), summed_short(39)):
        try:
            lowered = jax.jit(jax.vmap(program)).trace(WORDS).lower(lowering_platforms=("cuda",))
        except RuntimeError as missing:  # JAX 0.11 asks the device for its properties
            if "No supported GPU devices found" not in str(missing):
                raise
            pytest.skip("this JAX compiles for a GPU only beside one")
        assert "triton" in lowered.as_text().lower()


def test_few_lanes_stay_idle():
    from mechanisms.randomness.noise_kernel import LOOPS, WIDE, _width

    assert [_width(count) for count in (1, 8, 24, 25, 31, 32, 40, 100, 511, 512, 10_000)] == [
        *(8, 8, 8, 32, 32, 32, 8, 8, 512, WIDE, WIDE)
    ]
    for count in range(1, WIDE):
        width = _width(count)
        assert -(-count // width) <= LOOPS
        assert -(-count // width) * width - count < max(8, count / 8)
