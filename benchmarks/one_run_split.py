"""Would another share of the risk for chance prove more by 'inside out'? The same scores for every share.

    python benchmarks/one_run_split.py [--seeds 1000] [--canaries 100000] [--sigmas .5 1 2 4] [--splits .5 .7 .8 .9]

Epsilon at 1e-5 from Gaussian canary scores: median, its standard error (from order statistics) and deciles over seeds,
for the share that the package takes and for those asked for.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from unittest import mock

import numpy as np

import audit
from audit.bounds import number_of_guesses

RISK, DELTA = 0.05, 1e-5


def proven(sigma: float, canaries: int, splits: list[float], seed: int) -> list[float]:
    """By the package's share, then by the others."""
    rng = np.random.default_rng(seed)
    coins = rng.random(canaries) < 0.5
    scores = coins + sigma * rng.normal(size=canaries)
    found = [audit.one_run(scores, coins, risk=RISK, delta=DELTA).epsilon(DELTA)]
    for split in splits:
        with mock.patch.object(number_of_guesses, "risk_split", lambda exposed, split=split: split):
            found.append(audit.one_run(scores, coins, risk=RISK, delta=DELTA).epsilon(DELTA))
    return found


def told(values: np.ndarray) -> str:
    """Median, error and deciles."""
    ordered = np.sort(values)
    half = np.sqrt(len(values)) / 2
    low, high = (ordered[int(np.clip(len(values) / 2 + side * half, 0, len(values) - 1))] for side in (-1, 1))
    first, last = np.quantile(values, [0.1, 0.9])
    return f"{np.median(values):.3f} +- {(high - low) / 2:.3f} [{first:.2f}, {last:.2f}]"


def main() -> None:
    """Print a row for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--canaries", type=int, default=100_000)
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--splits", type=float, nargs="+", default=[0.5, 0.7, 0.8, 0.9])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    taken = number_of_guesses.risk_split((options.canaries - int(number_of_guesses.SAMPLE * options.canaries)) * DELTA)
    names = [f"{taken:.3f} (the package's)", *(f"{split:g}" for split in options.splits)]
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for sigma in options.sigmas:
            cases = zip(
                *itertools.product([sigma], [options.canaries], [options.splits], range(options.seeds)), strict=True
            )
            found = np.array(list(pool.map(proven, *cases, chunksize=5)))
            for name, values in zip(names, found.T, strict=True):
                print(f"| sigma {sigma:g} | share {name} | {told(values)} |", flush=True)


if __name__ == "__main__":
    main()
