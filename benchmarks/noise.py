"""Normals per second, drawn and reduced, beside jax.random.normal in the same run.

    python benchmarks/noise.py [--repeats 7]

Both sides are compiled, vmapped over the keys of numbered trials and reduced to one sum of squares a trial. Repetitions
alternate, and the best of each counts. Wall time is what a user waits for; processor time is robust to other work on
the machine, and says on a CPU what the draws cost. On an accelerator sixty-four times as many trials are drawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from mechanisms import noise

SHAPES = ((10_000, 100), (100, 26_010), (2, 1_485_217))
DRAWS = {"mechanisms.noise.normal": noise.normal, "jax.random.normal": jax.random.normal}


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
    print("| trials x dimension | ours, ns/normal | jax.random.normal | ratio, wall | ratio, processor |")
    print("|---|---|---|---|---|")
    for trials, dimension in SHAPES:
        loops = max(1, 4_000_000 // (trials * dimension)) * (1 if more == 1 else 16)
        programs = {name: compiled(draw, trials * more, dimension, loops) for name, draw in DRAWS.items()}
        (wall, processor), (their_wall, their_processor) = best_times(programs, repeats).values()
        each = 1e9 / (trials * more * dimension * loops)
        ratios = f"{their_wall / wall:.2f} | {their_processor / processor if more == 1 else float('nan'):.2f}"
        print(
            f"| {trials * more:,} x {dimension:,} | {wall * each:.4g} | {their_wall * each:.4g} | {ratios} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
