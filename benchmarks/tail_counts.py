"""How many of our normals lie beyond 1 to 7 standard deviations, as this device draws them, beside what is due.

    python benchmarks/tail_counts.py [--seconds 60] [--seed 0]

Counts on both sides are binomial; the smallest of their exact two-sided p-values, times their number, is printed.
Beyond 7 there is next to nothing to count: tests/mechanisms/randomness/test_noise.py enumerates the radius cells there.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom, norm

from mechanisms.randomness.noise import normal

LEVELS = np.arange(1.0, 7.5, 0.5)
DRAWS = 2**20
"""Of one key."""


def compiled(keys: int):
    """Counts above and below each level, over the draws of so many keys."""
    levels = jnp.asarray(LEVELS, jnp.float32)

    @jax.jit
    def count(key: jax.Array, first: jax.Array) -> jax.Array:
        def one(number: jax.Array) -> jax.Array:
            drawn = normal(jax.random.fold_in(key, number), (DRAWS,))
            above = [jnp.sum(drawn > level, dtype=jnp.int32) for level in levels]
            below = [jnp.sum(drawn < -level, dtype=jnp.int32) for level in levels]
            return jnp.stack(above + below)

        return jnp.sum(jax.vmap(one)(first + jnp.arange(keys)), axis=0)

    return count


def two_sided(count: int, draws: int, chance: float) -> float:
    """Twice the smaller tail."""
    return min(1.0, 2 * min(binom.cdf(count, draws, chance), binom.sf(count - 1, draws, chance)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    keys = 2 if jax.default_backend() == "cpu" else 1024
    count, key = compiled(keys), jax.random.key(arguments.seed, impl="threefry2x32")
    count(key, jnp.int32(0)).block_until_ready()
    found, calls, began = np.zeros(2 * len(LEVELS), np.int64), 0, time.monotonic()
    while time.monotonic() - began < arguments.seconds:
        found += np.asarray(count(key, jnp.int32(calls * keys)), np.int64)
        calls += 1
    spent, draws = time.monotonic() - began, calls * keys * DRAWS
    print(f"{draws:.3g} normals on {jax.devices()[0].device_kind} in {spent:.0f} s: {draws / spent / 1e9:.3g} G/s\n")
    print("| beyond | due on each side | above | below | p above | p below |\n|---|---|---|---|---|---|")
    smallest = 1.0
    for level, above, below in zip(LEVELS, found[: len(LEVELS)], found[len(LEVELS) :], strict=True):
        chance = float(norm.sf(np.float64(np.float32(level))))
        p = [two_sided(int(number), draws, chance) for number in (above, below)]
        smallest = min(smallest, *p)
        print(f"| {level:g} | {draws * chance:,.1f} | {above:,} | {below:,} | {p[0]:.3f} | {p[1]:.3f} |")
    print(f"\nsmallest p-value times {2 * len(LEVELS)}: {min(1.0, 2 * len(LEVELS) * smallest):.3g}")


if __name__ == "__main__":
    main()
