"""Trials that collapsed simulators make in a second of processor time: drawn alone, and drawn, scored and counted.

    python benchmarks/collapsed.py [--dimensions 100 26010 1485217] [--records 4 59999]

A collapsed round draws the batch as counts, the coordinates in the span and one chi-square for all others: neither
dimension nor records matter. 'Scored' is a whole audit step with the exact likelihood ratio, whose mixture grows with
the records that a batch may have. Processor seconds of all threads together.
"""

from __future__ import annotations

import argparse
import itertools
import time

import jax
import numpy as np

import distinguishers
import mechanisms
from audit.trials import traced
from audit.trials.keys import trial_number
from audit.trials.programs import programs_of, release_of

DIVISORS = ("none", "expected_batch", "realised_batch")


def rate(run, seconds: float) -> float:
    """Trials a processor second; ``run`` says how many it made."""
    run()
    began, trials = time.process_time(), 0
    while time.process_time() - began < seconds:
        trials += run()
    return trials / (time.process_time() - began)


def rates(divisor: str, records: int, dimension: int, seconds: float) -> tuple[float, float]:
    """Drawn, and drawn, scored and counted."""
    pair = mechanisms.worst_case_pair(records=records, dimension=dimension, clip=0.1)
    chance = 0.05 if records < 100 else 0.005
    step = mechanisms.one_round(normalise_by=divisor, rate=chance, clip=0.1, noise_multiplier=10.0).collapsed()
    program = traced.compile_program(step, pair.without, distinguishers.likelihood_ratio(step, pair), side="without")
    key, chunk = jax.random.key(0), program.chunk
    release = release_of(step, pair.without)
    draw = programs_of(release).draw_chunk

    def drawn() -> int:
        chunks = range(0, 8 * chunk, chunk)
        jax.block_until_ready([draw(release, key, trial_number(first), size=chunk) for first in chunks])
        return 8 * chunk

    source, edges = program.source(key), np.linspace(-20, 20, 201, dtype=np.float32)[None]

    def scored() -> int:
        source.cells(0, 8 * chunk, edges)
        return 8 * chunk

    return rate(drawn, seconds), rate(scored, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 26_010, 1_485_217])
    parser.add_argument("--records", type=int, nargs="+", default=[4, 59_999])
    arguments = parser.parse_args()
    print("| divisor | records | dimension | M trials/CPU s, drawn | scored |\n|---|---|---|---|---|")
    for divisor, records, n in itertools.product(DIVISORS, arguments.records, arguments.dimensions):
        drawn, scored = rates(divisor, records, n, arguments.seconds)
        print(f"| {divisor} | {records:,} | {n:,} | {drawn / 1e6:.2f} | {scored / 1e6:.2f} |", flush=True)


if __name__ == "__main__":
    main()
