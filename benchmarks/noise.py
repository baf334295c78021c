"""Normals per second, drawn and reduced, beside the same map fed by Threefry and jax.random.normal, in the same run.

    python benchmarks/noise.py [--repeats 7]

All are compiled, vmapped over the keys of numbered trials and reduced to one sum of squares a trial. Repetitions
alternate, and the best of each counts. Wall time is what a user waits for; processor time is robust to other work on
the machine, and says on a CPU what the draws cost. On an accelerator sixty-four times as many trials are drawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from mechanisms.randomness import noise
from mechanisms.randomness.bits import Words, key_words

SHAPES = ((10_000, 100), (100, 26_010), (2, 1_485_217))
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: Words, counter: Words) -> Words:
    """Threefry-2x32 with 20 rounds, the generator of jax.random."""
    schedule = (key.high, key.low, key.high ^ key.low ^ jnp.uint32(0x1BD11BDA))
    x, y = counter.high + schedule[0], counter.low + schedule[1]
    for block in range(5):
        for distance in ROTATIONS[block % 2]:
            x = x + y
            y = ((y << jnp.uint32(distance)) | (y >> jnp.uint32(32 - distance))) ^ x
        x = x + schedule[(block + 1) % 3]
        y = y + schedule[(block + 2) % 3] + jnp.uint32(block + 1)
    return Words(x, y)


def threefry_normal(key: jax.Array, shape: tuple[int]) -> jax.Array:
    """Pairs from Threefry, in the form that is fastest on each device."""
    own, pairs = key_words(key), -(-shape[0] // 2)

    def draw(start: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        index = start + jax.lax.iota(jnp.uint32, size)
        return noise.normal_pair(threefry(own, Words(jnp.ones_like(index), index)))

    if jax.default_backend() == "cpu":
        tile = -(-pairs // 2)
        _, both = jax.lax.scan(
            lambda _, start: (None, jax.lax.complex(*draw(start, tile))), None, jnp.array([0, tile], jnp.uint32)
        )
        both = both.reshape(-1)[:pairs]
        drawn = jnp.real(both), jnp.imag(both)
    else:
        drawn = jax.lax.optimization_barrier(draw(jnp.uint32(0), pairs))
    return jnp.stack(drawn, axis=-1).reshape(-1)[: shape[0]]


DRAWS = {"ours": noise.normal, "threefry": threefry_normal, "jax.random.normal": jax.random.normal}


def compiled(draw: Callable, trials: int, dimension: int, loops: int) -> Callable[[], jax.Array]:
    def one(trial: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(draw(jax.random.fold_in(jax.random.key(0), trial), (dimension,))))

    @jax.jit
    def run(first: jax.Array) -> jax.Array:
        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            start = first + index.astype(jnp.uint32) * jnp.uint32(trials)
            return total + jnp.sum(jax.vmap(one)(start + jnp.arange(trials, dtype=jnp.uint32)))

        return jax.lax.fori_loop(0, loops, add, jnp.float32(0))

    return lambda: run(jnp.uint32(0)).block_until_ready()


def best_times(programs: dict[str, Callable], repeats: int) -> dict[str, tuple[float, float]]:
    """Smallest wall and processor seconds of each program, repetitions alternating."""
    best = {}
    for program in programs.values():
        program()
    for _ in range(repeats):
        for name, program in programs.items():
            wall, processor = time.perf_counter(), time.process_time()
            program()
            spent = (time.perf_counter() - wall, time.process_time() - processor)
            best[name] = tuple(map(min, spent, best.get(name, spent)))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    device = jax.devices()[0]
    more = 1 if device.platform == "cpu" else 64
    print(f"{device.platform}: {device.device_kind}, jax {jax.__version__}")
    print(
        "| trials x dimension | " + " | ".join(f"{name}, ns/normal" for name in DRAWS) + " | ratios, wall | processor |"
    )
    print("|---" * (len(DRAWS) + 3) + "|")
    for trials, dimension in SHAPES:
        loops = max(1, 4_000_000 // (trials * dimension)) * (1 if more == 1 else 16)
        programs = {name: compiled(draw, trials * more, dimension, loops) for name, draw in DRAWS.items()}
        walls, processors = zip(*best_times(programs, repeats).values(), strict=True)
        each = 1e9 / (trials * more * dimension * loops)
        cells = [f"{wall * each:.4g}" for wall in walls]
        for times in (walls, processors):
            cells.append(", ".join(f"{other / times[0]:.2f}" for other in times[1:]))
        print(f"| {trials * more:,} x {dimension:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
