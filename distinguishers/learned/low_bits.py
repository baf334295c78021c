"""The lowest bits of a release: float32 sums round away what the noise should hide."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

COORDINATES = 256
"""Coordinates whose bits are read one by one."""
OF_ZERO = 128.0
"""The exponent that stands for a zero, which has no bits."""


def low_bits(output: Any) -> jax.Array:
    """Features for ``distinguishers.fit(low_bits)``: the exponent of the lowest bit set in each coordinate.

    In float32 0 plus a normal number keeps bits below 2^-24 that 1 plus the same number has lost: a quarter of the
    outputs without the record are impossible with it, so that delta is .25 at every epsilon. [mironov2012] No claim
    about real numbers holds for such a sum. ``fit`` alone does not look at these bits, since most users ask about the
    mechanism and not about its floats.
    """
    flat = jnp.concatenate([jnp.ravel(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(output)])
    bits = jax.lax.bitcast_convert_type(flat, jnp.uint32)
    exponent = (bits >> 23) & 0xFF
    mantissa = (bits & 0x7FFFFF) | jnp.where(exponent > 0, jnp.uint32(1 << 23), jnp.uint32(0))
    # the ones below the lowest bit that is set
    trailing = jax.lax.population_count((mantissa & (~mantissa + 1)) - 1)
    lowest = jnp.maximum(exponent, 1).astype(jnp.float32) - 150 + trailing.astype(jnp.float32)
    lowest = jnp.where(mantissa == 0, OF_ZERO, lowest)
    return jnp.concatenate([lowest[:COORDINATES], jnp.stack([lowest.min(), lowest.mean()])])
