"""What one training proves: epsilon at 1e-5 from 1e5 Gaussian canary scores, medians and deciles over seeds.

    python benchmarks/one_run.py [--seeds 100] [--canaries 100000] [--sigmas .5 1 2 4] [--processes 2]

Rows: 'inside out' (the default, no claim), one number of guesses from the claim, sixteen declared pairs that share the
risk (the default until 0.1.0), the best number picked afterwards (not valid, what papers print), limits that no valid
test exceeds in the median, and 'labelled': the epsilon of the largest refuted mu, proven only of mu-GDP trainings, by
the published recursion and by the sharp certificate.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import audit
import guarantees
from audit.bounds.bounds_from_guesses import epsilon_from_guesses, mu_refuted
from audit.bounds.sharp_guesses import profile_of, sharp_tail
from audit.one_run import plan as planning
from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.search import halved

TOLERANCE = 1e-3
RISK, DELTA = 0.05, 1e-5


def sixteen_pairs(canaries: int) -> list[tuple[int, int]]:
    """Eight numbers of guesses on both sides and on one, over a logarithmic scale."""
    last = int(canaries / 2 - 1.5 * math.sqrt(canaries))
    ks = np.unique(np.geomspace(max(8, canaries // 500), last, 8).round().astype(int)).tolist()
    return [(k, k) for k in ks] + [(k, 0) for k in ks]


def picked_afterwards(scores: np.ndarray, coins: np.ndarray) -> float:
    """The best of forty numbers of guesses, each at full risk: not valid."""
    ranked = coins[np.argsort(-scores)]
    right = np.cumsum(ranked) + np.cumsum(~ranked[::-1])
    ks = np.unique(np.geomspace(3, 0.47 * len(coins), 40).astype(int)).tolist()
    return max(epsilon_from_guesses(int(right[k - 1]), 2 * k, exposed=len(coins) * DELTA, risk=RISK) for k in ks)


def proven(sigma: float, canaries: int, seed: int) -> tuple[dict[str, float], tuple[int, int, float]]:
    """What each procedure proves on the same scores, and the count that the labelled ones read."""
    rng = np.random.default_rng(seed)
    coins = rng.random(canaries) < 0.5
    scores = coins + sigma * rng.normal(size=canaries)
    claim = guarantees.gaussian(mu=1 / sigma)
    from_claim = audit.one_run(scores, coins, risk=RISK, delta=DELTA, claim=claim)
    pairs = audit.one_run(scores, coins, risk=RISK, guesses=sixteen_pairs(canaries))
    (counted,) = from_claim.guesses
    bounds = {
        "inside out (default)": audit.one_run(scores, coins, risk=RISK, delta=DELTA).epsilon(DELTA),
        "k from the claim": from_claim.epsilon(DELTA),
        "sixteen pairs": pairs.epsilon(DELTA),
        "picked afterwards (not valid)": picked_afterwards(scores, coins),
    }
    return bounds, (counted.right, counted.guessed, counted.coins)


def sharp_mu(right: int, guessed: int, *, coins: float, above: float) -> float:
    """A mu above ``above`` such that the guesses refute mu-GDP by the sharp tail; ``above`` where there is none."""

    def refuted(mu: float) -> bool:
        profile = profile_of(guarantees.gaussian(mu=mu).curve, "both")
        return sharp_tail(right, guessed, coins=coins, profile=profile) <= RISK

    low, step = above, max(0.02 * above, TOLERANCE)
    while refuted(low + step):
        low, step = low + step, 2 * step
    return halved(lambda mu: not refuted(mu), low, low + step, within=TOLERANCE)[0]


def labelled(count: tuple[int, int, float]) -> dict[str, float]:
    """Epsilon of the largest refuted mu, by the recursion and by the sharp certificate."""
    right, guessed, coins = count
    mu = mu_refuted(right, guessed, coins=coins, risk=RISK)
    more = sharp_mu(right, guessed, coins=coins, above=mu)
    recursion, sharp = (float(guarantees.gaussian(mu=each).epsilon(DELTA)) if each else 0.0 for each in (mu, more))
    return {"labelled mu-GDP, published recursion": recursion, "labelled mu-GDP, sharp certificate": sharp}


def covers(levels: np.ndarray, leaks: np.ndarray, mu: float) -> bool:
    """Whether mu-GDP allows these deltas."""
    return bool(np.all(gaussian_delta(levels, mu) >= leaks))


def labelled_limit(sigma: float, canaries: int) -> float:
    """Epsilon that no valid labelled test exceeds in the median: as the plan's limit, of adversaries that keep a mu.

    The adversary of the plan, which tells clipped odds a share of the time, keeps the least mu whose deltas are at
    least its own at all epsilons.
    """
    losses = planning._losses(guarantees.gaussian(mu=1 / sigma))
    right, both = losses.right, losses.both
    order = np.argsort(-right)
    count = canaries * np.cumsum(both[order])
    told = losses.with_record >= losses.without
    limit = math.inf
    for clipped in np.geomspace(planning.FEWEST_CLIPPED, planning.MOST_CLIPPED, planning.CLIPS):
        place = min(int(np.searchsorted(count, clipped)), len(order) - 1)
        clip = float(right[order[place]])
        if not 0.5 < clip < 1:
            continue
        beta = planning._rejected(right[order[:place]], both[order[:place]], clip, canaries)
        if beta < RISK:
            continue
        more, levels = np.minimum(right, clip), np.linspace(0.0, math.log(clip / (1 - clip)), 60)[:-1]
        gains = 2 * both * np.maximum(more - np.exp(levels)[:, None] * (1 - more), 0.0)
        leaks = min(1.0, RISK / beta) * np.maximum(gains[:, told].sum(1), gains[:, ~told].sum(1))
        limit = min(limit, halved(functools.partial(covers, levels, leaks), 0.0, 2 / sigma, rounds=40)[1])
    return float(guarantees.gaussian(mu=limit).epsilon(DELTA))


def main() -> None:
    """Print one row a procedure: median [first decile, last decile] for each sigma."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--canaries", type=int, default=100_000)
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    cases = list(itertools.product(options.sigmas, [options.canaries], range(options.seeds)))
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        runs = list(pool.map(proven, *zip(*cases, strict=True), chunksize=5))
        # the same counts come again and again
        counts = list({count for _, count in runs})
        known = dict(zip(counts, pool.map(labelled, counts), strict=True))
    found: dict[float, list[dict[str, float]]] = {sigma: [] for sigma in options.sigmas}
    for (sigma, _, _), (bounds, count) in zip(cases, runs, strict=True):
        found[sigma].append(bounds | known[count])
    theory = [f"{float(guarantees.gaussian(mu=1 / sigma).epsilon(DELTA)):.2f}" for sigma in options.sigmas]
    print("| | " + " | ".join(f"sigma {sigma:g}" for sigma in options.sigmas) + " |")
    print("|---|" + "---|" * len(options.sigmas))
    print("| theory | " + " | ".join(theory) + " |")
    limits = [
        audit.plan_one_run(claim=guarantees.gaussian(mu=1 / sigma), canaries=options.canaries).limit
        for sigma in options.sigmas
    ]
    print("| no valid agnostic test exceeds in the median | " + " | ".join(f"{limit:.2f}" for limit in limits) + " |")
    limits = [labelled_limit(sigma, options.canaries) for sigma in options.sigmas]
    print("| no valid labelled test exceeds in the median | " + " | ".join(f"{limit:.2f}" for limit in limits) + " |")
    for name in found[options.sigmas[0]][0]:
        cells = []
        for sigma in options.sigmas:
            low, middle, high = np.quantile([each[name] for each in found[sigma]], [0.1, 0.5, 0.9])
            cells.append(f"{middle:.2f} [{low:.2f}, {high:.2f}]")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
