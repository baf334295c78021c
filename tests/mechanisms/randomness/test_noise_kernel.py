"""The kernel for GPUs, interpreted: same counters, same places, same normals as everywhere else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mechanisms.randomness.noise import normal
from mechanisms.randomness.noise_kernel import Functions, store_normals, stored


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


def test_the_kernel_compiles_for_a_gpu():
    try:
        lowered = jax.jit(jax.vmap(stored(1024))).trace(WORDS).lower(lowering_platforms=("cuda",))
    except RuntimeError as missing:  # JAX 0.11 asks the device for its properties
        if "No supported GPU devices found" not in str(missing):
            raise
        pytest.skip("this JAX compiles for a GPU only beside one")
    assert "triton" in lowered.as_text().lower()
