"""Trials per second of a whole audit step, beside a bare draw-and-reduce of the same shape in the same run.

    python benchmarks/throughput.py [--seconds 2] [--score likelihood_ratio max_coordinate]

'audit' draws the batch, clips, sums, adds noise, normalises, scores and counts; the likelihood ratio reads sums that
are made while the noise is drawn, max_coordinate the stored vector. 'bare' draws the same number of normals (the
simulator's own) and sums their squares; 'jax.random.normal' does that with JAX's generator; NumPy's column is SFC64 in
a thread for every core. Best of several repetitions of at least the given time; ratios are what counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

import distinguishers
import mechanisms
from audit.trials import traced
from mechanisms.randomness.noise import normal

RECORDS = 4


def audit_rate(dimension: int, seconds: float, score: str) -> tuple[float, int]:
    pair = mechanisms.worst_case_pair(records=RECORDS, dimension=dimension, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.05, clip=0.1, noise_multiplier=10.0)
    exact = score == "likelihood_ratio"
    test = distinguishers.likelihood_ratio(step, pair) if exact else distinguishers.max_coordinate()
    program = traced.compile_program(step, pair.without, test, side="without")
    source = program.source(jax.random.key(0))
    edges = np.linspace(-20, 20, 201, dtype=np.float32)[None]
    return rate(lambda n: source.cells(0, n, edges), program.chunk, seconds), program.chunk


def bare_rate(dimension: int, chunk: int, seconds: float, draw) -> float:
    def one(key: jax.Array, trial: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(draw(jax.random.fold_in(key, trial), (dimension,))))

    @jax.jit
    def total(key: jax.Array, chunks: jax.Array) -> jax.Array:
        def add(index: jax.Array, carry: jax.Array) -> jax.Array:
            trials = index.astype(jnp.uint32) * jnp.uint32(chunk) + jnp.arange(chunk, dtype=jnp.uint32)
            return carry + jnp.sum(jax.vmap(one, in_axes=(None, 0))(key, trials))

        return jax.lax.fori_loop(0, chunks, add, jnp.float32(0))

    key = jax.random.key(0)
    return rate(lambda n: total(key, jnp.int32(n // chunk)).block_until_ready(), chunk, seconds)


def numpy_rate(dimension: int, seconds: float) -> float:
    """NumPy's fastest generator, a thread for every core that this process may use, drawing and summing squares."""
    threads = len(os.sched_getaffinity(0))

    def draw(thread: int, trials: int) -> float:
        generator, drawn, total = np.random.Generator(np.random.SFC64(thread)), np.empty(dimension, np.float32), 0.0
        for _ in range(trials // threads):
            generator.standard_normal(out=drawn, dtype=np.float32)
            total += float(np.dot(drawn, drawn))
        return total

    with ThreadPoolExecutor(threads) as pool:
        return rate(lambda n: list(pool.map(draw, range(threads), [n] * threads)), threads, seconds)


def rate(run, chunk: int, seconds: float) -> float:
    """Trials per second, best of three, each run long enough to time."""
    run(chunk)
    trials = chunk
    while True:
        began = time.perf_counter()
        run(trials)
        spent = time.perf_counter() - began
        if spent > seconds / 3:
            break
        trials *= 2
    best = spent
    for _ in range(2):
        began = time.perf_counter()
        run(trials)
        best = min(best, time.perf_counter() - began)
    return trials / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--score", nargs="+", default=["likelihood_ratio", "max_coordinate"])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 26_010, 1_485_217])
    arguments = parser.parse_args()
    device = jax.devices()[0]
    print(f"{device.platform}: {device.device_kind}, jax {jax.__version__}, N = {RECORDS}")
    print("| score | dimension | chunk | trials/s | G normals/s | audit / bare | / jax.random.normal | / NumPy |")
    print("|---|---|---|---|---|---|---|---|")
    for score, dimension in itertools.product(arguments.score, arguments.dimensions):
        audit, chunk = audit_rate(dimension, arguments.seconds, score)
        bare = bare_rate(dimension, chunk, arguments.seconds, normal)
        plain = bare_rate(dimension, chunk, arguments.seconds, jax.random.normal)
        numpy = numpy_rate(dimension, arguments.seconds)
        speed = f"{audit:,.1f} | {audit * dimension / 1e9:.3f}"
        ratios = f"{audit / bare:.2f} | {audit / plain:.2f} | {audit / numpy:.2f}"
        print(f"| {score} | {dimension:,} | {chunk} | {speed} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
