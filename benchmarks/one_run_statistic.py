"""Another statistic than one count: wrong guesses weigh more the more extreme their scores. What would it prove?

    python benchmarks/one_run_statistic.py [--seeds 1000] [--sigma 1] [--groups 100 400] [--weight 1.5] [--processes 2]

Labelled: the epsilon of the largest mu such that mu-GDP is refuted, from 1e5 Gaussian canary scores. The guesses of the
first number of most extreme scores are one group, those up to the second number another; the statistic is weight times
the wrong ones of the first group plus those of the second. Its largest probability under all mechanisms with the
deltas of mu-GDP at some levels of epsilon is bounded by a linear program over laws of both numbers: the program of
audit/bounds/sharp_guesses.py in two dimensions. Flows over its edge are left out, which can only raise the answer. The
solver's answer is taken as it is: not certified, and no part of the package. Beside it one count, by the certificate.

Either epsilon falls where its statistic grows, so its median over seeds is that of the median statistic, and deciles
alike: programs are solved for those only, and printed as they come.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

import guarantees
from audit.bounds.bounds_from_guesses import mu_refuted
from audit.bounds.sharp_guesses import sharp_mu
from audit.one_run.procedure import guesses_of_claim
from guarantees.laws.gaussian_and_laplace import gaussian_delta

RISK, DELTA, CANARIES = 0.05, 1e-5, 100_000
LEVELS, LOWEST, HIGHEST = 9, 0.45, 1.1
"""Levels of epsilon, from so many to so many times the epsilon of the truth."""
TOLERANCE = 5e-3
MOST = 2500
"""Guesses on a side that are kept of each seed."""
PARTS = (0.5, 0.1, 0.9)
"""Quantiles that are printed, the median first."""


def wrong_guesses(sigma: float, seed: int) -> np.ndarray:
    """How many of the k most extreme on each side are wrong, for every k."""
    rng = np.random.default_rng(seed)
    coins = rng.random(CANARIES) < 0.5
    ranked = coins[np.argsort(-(coins + sigma * rng.normal(size=CANARIES)))]
    return (np.cumsum(~ranked) + np.cumsum(ranked[::-1]))[:MOST]


def largest(groups: tuple[int, int], weight: float, told: float, mu: float, levels: np.ndarray) -> float:
    """Largest probability of a statistic of at most ``told`` under mechanisms with the deltas of mu-GDP."""
    shape = (int(2 * told / weight) + 8, int(2 * told) + 8)
    place, wrong = np.arange(np.prod(shape)).reshape(shape), np.indices(shape)
    near = [
        (place[:-1].ravel(), place[1:].ravel(), groups[0] - wrong[0][:-1].ravel(), wrong[0][1:].ravel()),
        (place[:, :-1].ravel(), place[:, 1:].ravel(), groups[1] - wrong[1][:, :-1].ravel(), wrong[1][:, 1:].ravel()),
    ]
    here, there, right, turned = (np.concatenate(parts) for parts in zip(*near, strict=True))
    count, each = len(here), len(levels)
    row, first = np.arange(count * each), place.size
    total = count * each + np.tile(np.arange(each), count)
    ones = np.ones(len(row))
    kept = -np.repeat(turned, each) * np.tile(np.exp(levels), count)
    upper = csr_matrix(
        (
            np.concatenate([np.repeat(right, each), kept, -ones, ones]),
            (
                np.concatenate([row, row, row, total]),
                np.concatenate([np.repeat(here, each), np.repeat(there, each), first + row, first + row]),
            ),
        ),
        (count * each + each, first + count * each),
    )
    limit = np.concatenate([np.zeros(count * each), CANARIES * gaussian_delta(levels, mu)])
    law = (np.arange(upper.shape[1]) < first).astype(float)
    gain = np.zeros(upper.shape[1])
    gain[:first] = np.where(weight * wrong[0] + wrong[1] <= told, -1.0, 0.0).ravel()
    solved = linprog(gain, A_ub=upper, b_ub=limit, A_eq=law[None, :], b_eq=[1.0], method="highs-ipm")
    return -solved.fun if solved.status == 0 else 1.0


def weighted_epsilon(groups: tuple[int, int], weight: float, sigma: float, told: float) -> float:
    """Epsilon of the largest mu that the statistic refutes."""
    truth = float(guarantees.gaussian(mu=1 / sigma).epsilon(DELTA))
    levels = np.linspace(LOWEST * truth, HIGHEST * truth, LEVELS)
    low, high = 0.6 / sigma, 1.0 / sigma
    while high - low > TOLERANCE / sigma:
        middle = (low + high) / 2
        refuted = largest(groups, weight, told, middle, levels) <= RISK
        low, high = (middle, high) if refuted else (low, middle)
    return float(guarantees.gaussian(mu=low).epsilon(DELTA))


def counted_epsilon(guesses: int, wrong: int) -> float:
    """The same of one count, by the certificate."""
    right = guesses - wrong
    mu = mu_refuted(right, guesses, coins=CANARIES, risk=RISK)
    return float(guarantees.gaussian(mu=sharp_mu(right, guesses, coins=CANARIES, risk=RISK, above=mu)).epsilon(DELTA))


def main() -> None:
    """Print median and deciles of both on the same scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--groups", type=int, nargs=2, default=[100, 400])
    parser.add_argument("--weight", type=float, default=1.5)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    inner, outer = options.groups
    claim = guarantees.gaussian(mu=1 / options.sigma)
    alone = guesses_of_claim(claim, CANARIES, delta=DELTA, risk=RISK)[0]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context) as pool:
        found = list(pool.map(partial(wrong_guesses, options.sigma), range(options.seeds), chunksize=10))
        wrong = [own[alone - 1] for own in found]
        told = [options.weight * own[inner // 2 - 1] + own[outer // 2 - 1] - own[inner // 2 - 1] for own in found]
        ask = partial(weighted_epsilon, (inner, outer - inner), options.weight, options.sigma)
        rows = {
            f"one count, {2 * alone} guesses": (partial(counted_epsilon, 2 * alone), wrong),
            f"{options.weight:g} x wrong of {inner} + wrong of {outer - inner}": (ask, told),
        }
        asked = {
            (name, part): pool.submit(proven, np.quantile(said, 1 - part, method="inverted_cdf").item())
            for part in PARTS
            for name, (proven, said) in rows.items()
        }
        for (name, part), answer in asked.items():
            print(f"| sigma {options.sigma:g} | {name} | quantile {part:g} | {answer.result():.2f} |", flush=True)


if __name__ == "__main__":
    main()
