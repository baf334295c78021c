"""Which seeds mean something. No JAX here: a bad one is refused before it is imported."""

from __future__ import annotations

from guarantees.checks import require

SEEDS = 2**32
"""JAX reads 32 bits of a seed: seed and seed + 2^32 would give one run under two names."""


def require_seed(seed: int) -> None:
    """Refuse a seed that JAX would shorten."""
    require("seed", 0 <= seed < SEEDS, "a whole number from 0 to 2^32 - 1 (JAX would read others modulo 2^32)", seed)
