"""Algorithm 1 of [wang2026] with every intermediate test, beside a loop over SciPy's tests in the same run.

    python benchmarks/algorithm_one.py [--dimensions 100 26010] [--trials 10000 1000] [--loop 3]

N = 4: 32 votes an output, each of two tests. 'Compile' is all that comes before the first chunk is done. The loop runs
the given few trials, a test for each of the 32 subsets and hypotheses, and is scaled to the number of trials beside
it. Processor seconds of all threads together; SciPy has no p-value for Anderson-Darling with known mean and variance,
nor for our moments.
"""

from __future__ import annotations

import argparse
import itertools
import time

import jax
import numpy as np
from scipy import stats

import distinguishers
import mechanisms
from audit.trials import traced
from distinguishers.battery import Battery

RECORDS, RATE, CLIP, NOISE, LEVEL = 4, 0.05, 0.1, 10.0, 0.05
TESTS = ("chi_square", "kolmogorov_smirnov", "anderson_darling", "cramer_von_mises", "moments")


def norm_test(z: np.ndarray) -> float:
    """Two-sided p-value of the squared norm."""
    square = float(z @ z)
    return 2 * min(stats.chi2.cdf(square, z.size), stats.chi2.sf(square, z.size))


SCIPY = {
    "chi_square": norm_test,
    "kolmogorov_smirnov": lambda z: stats.kstest(z, "norm").pvalue,
    "cramer_von_mises": lambda z: stats.cramervonmises(z, "norm").pvalue,
}


def loop(test: str, outputs: np.ndarray) -> float:
    """Processor seconds of Algorithm 1, one batch, one test and one output after the other."""
    rng, began = np.random.default_rng(0), time.process_time()
    for output in outputs:
        votes = 0
        for batch in itertools.product((0, 1), repeat=RECORDS):
            for extra in (0, 1):
                passed = []
                for records, total in ((RECORDS, -sum(batch)), (RECORDS + 1, extra - sum(batch))):
                    divisor = RATE * records
                    z = output * divisor / (NOISE * CLIP)
                    z[0] -= total / NOISE
                    passed.append(SCIPY[test](z) > LEVEL)
                votes += rng.integers(2) if passed[0] == passed[1] else passed[1]
    return time.process_time() - began


def ours(score, step, pair, trials: int) -> tuple[float, float, float]:
    """Seconds: processor, until the first chunk is done; processor and wall, of the trials."""
    began = time.process_time()
    program = traced.compile_program(step, pair.without, score, side="without")
    source = program.source(jax.random.key(0))
    edges = np.tile(np.linspace(-1, 1, 201, dtype=np.float32), (len(score.members), 1))
    source.cells(0, program.chunk, edges)
    compiled, wall = time.process_time(), time.perf_counter()
    source.cells(0, trials, edges)
    return compiled - began, time.process_time() - compiled, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 26_010])
    parser.add_argument("--trials", type=int, nargs="+", default=[10_000, 1000], help="for each dimension")
    parser.add_argument("--loop", type=int, default=3, help="trials of SciPy's loop, scaled")
    arguments = parser.parse_args()
    print("| test | dimension | trials | compile, CPU s | CPU s | wall s | SciPy's loop, scaled, CPU s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    step = mechanisms.one_round(normalise_by="expected_batch", rate=RATE, clip=CLIP, noise_multiplier=NOISE)
    for n, trials in zip(arguments.dimensions, arguments.trials, strict=True):
        pair = mechanisms.worst_case_pair(records=RECORDS, dimension=n, clip=CLIP)
        scores = {test: distinguishers.normality_test(step, pair, test=test, level=LEVEL) for test in TESTS}
        outputs = np.random.default_rng(0).normal(size=(arguments.loop, n)) * NOISE * CLIP / (RATE * RECORDS)
        for test, score in {**scores, "all five": Battery(parts=tuple(scores.values()), neighbours=pair)}.items():
            compiled, cpu, wall = ours(score, step, pair, trials)
            theirs = loop(test, outputs) * trials / arguments.loop if test in SCIPY and arguments.loop else None
            beside = "| | |" if theirs is None else f"| {theirs:,.0f} | {theirs / cpu:,.0f} |"
            print(f"| {test} | {n:,} | {trials:,} | {compiled:.1f} | {cpu:.2f} | {wall:.2f} {beside}", flush=True)


if __name__ == "__main__":
    main()
