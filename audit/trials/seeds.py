"""Which seeds are valid. Imports nothing heavy, so that a bad one is refused at once."""

from __future__ import annotations

SEEDS = 2**32
"""Number of valid seeds: JAX reads 32 bits, so that seed and seed + 2^32 would be the same run."""


def require_seed(seed: int) -> None:
    """Refuse a seed that JAX would shorten."""
    if not 0 <= seed < SEEDS:
        raise ValueError(
            f"seed must be a whole number from 0 to 2^32 - 1 (JAX would read others modulo 2^32), got {seed}."
        )
