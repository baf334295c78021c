"""How often each one-run procedure is wrong where the truth is known: 2,000 null runs each, 95%.

    python benchmarks/one_run_coverage.py [--runs 2000] [--canaries 1000] [--processes 2]
        [--only 'inside out'] [--null 'all shown']

Nulls without a curve: coins answered by randomised response at epsilon 1; nothing shown; all shown with probability
delta and nothing else, with canaries times delta of .01, 1 and 100. A bound above the truth is wrong. Labelled
procedures are asked whether they refute the mu of independent Gaussian canaries, which is their truth. 'In turn' (delta
0) sees the heads of four canaries in a coordinate with two-sided geometric noise of epsilon 1. A curve: canaries of 20
steps sampled at rate .1, noise 1, judged against the claim that they keep.

Attacks: 'one-sided' says 'in' of a fifth of the canaries that are in and, at epsilon 1, of fewer of those that are out,
and nothing else, which procedures that choose or have one side are drawn to. 'The worst training' keeps the claimed
curve and correlates its answers so that the claim is refuted as often as a linear program can make it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from one_run import sixteen_pairs
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

import audit
import guarantees
from audit.bounds.bounds_from_guesses import curve_refuted, gaussian_inverse
from audit.bounds.sharp_guesses import profile_of, sharp_tail
from audit.one_run.procedure import guesses_of_claim
from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.search import first

RISK, SMALL = 0.05, 1e-5
MU = 1.0
RATE, STEPS, NOISE = 0.1, 20, 1.0
KEPT = 1e-4
"""Probability of all that the worst training may show beyond its claim: the program's tolerance."""
TOLD = 0.2
"""Share of the canaries that are in of whom 'one-sided' says so."""
Run = Callable[[np.random.Generator, int], bool]
"""Whether the statement is wrong, of so many canaries."""


def answered(rng: np.random.Generator, coins: np.ndarray) -> np.ndarray:
    """Randomised response at epsilon 1; scores within an answer are random."""
    told = coins ^ (rng.random(len(coins)) > np.e / (1 + np.e))
    return told + rng.random(len(coins))


def shown(rng: np.random.Generator, coins: np.ndarray, delta: float) -> np.ndarray:
    """Everything as often as delta, else nothing."""
    return coins * (rng.random() < delta) + 0.5 * rng.random(len(coins))


def agnostic(procedure: str, exposed: float | None, rng: np.random.Generator, canaries: int) -> bool:
    """Whether an epsilon is above the truth."""
    coins = rng.random(canaries) < 0.5
    delta = SMALL if exposed is None or exposed == 0 else exposed / canaries
    truth = 1.0 if exposed is None else 0.0
    scores = answered(rng, coins) if exposed is None else shown(rng, coins, delta if exposed else 0.0)
    if procedure == "inside out (default)":
        return audit.one_run(scores, coins, risk=RISK, delta=delta).epsilon(delta) > truth
    pairs = sixteen_pairs(canaries) if procedure == "sixteen pairs" else [of_claim(canaries)]
    return audit.one_run(scores, coins, risk=RISK, guesses=pairs).epsilon(delta) > truth


@functools.cache
def of_claim(canaries: int) -> tuple[int, int]:
    """The numbers of guesses of a claim of mu 1."""
    return guesses_of_claim(guarantees.gaussian(mu=MU), canaries, delta=SMALL, risk=RISK)


def labelled(procedure: str, rng: np.random.Generator, canaries: int) -> bool:
    """Whether the true mu of Gaussian canaries is refuted."""
    coins = rng.random(canaries) < 0.5
    (counted,) = audit.one_run(
        coins + rng.normal(size=canaries) / MU, coins, risk=RISK, guesses=[of_claim(canaries)]
    ).guesses
    return refutes(procedure, counted.right, counted.guessed, counted.coins)


@functools.cache
def refutes(procedure: str, right: int, guessed: int, coins: float) -> bool:
    """By the recursion or by the sharp tail; the same counts come again."""
    if curve_refuted(right, guessed, coins=coins, inverse=gaussian_inverse(MU), risk=RISK):
        return True
    if procedure.endswith("recursion"):
        return False
    # both bound the same tail, so the smaller one does
    return sharp_tail(right, guessed, coins=coins, profile=lambda e: gaussian_delta(e, MU) + 1e-15) <= RISK


@functools.cache
def sampled_claim() -> guarantees.Claim:
    """Of the sampled canaries."""
    return guarantees.poisson_training(rate=RATE, noise_multiplier=NOISE, steps=STEPS, accountant="certified")


def curve(rng: np.random.Generator, canaries: int) -> bool:
    """Whether the claim that sampled canaries keep is refuted."""
    coins = rng.random(canaries) < 0.5
    seen = (rng.random((STEPS, canaries)) < RATE) * coins + NOISE * rng.normal(size=(STEPS, canaries))
    scores = np.log1p(RATE * np.expm1((seen - 0.5) / NOISE**2)).sum(0)
    return audit.one_run(scores, coins, risk=RISK, claim=sampled_claim()).verdict == "violation"


def worst_law(correct: int, guesses: int, coins: float, deltas: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Of the number of right guesses, kept by a training with these deltas: one that has ``correct`` most often."""
    finer = np.linspace(0.0, 14.0, 2000)
    known = coins * deltas(finer)
    epsilons = np.linspace(0.0, finer[known > KEPT / 10][-1], 60)
    k, levels = guesses, len(epsilons)
    j, e = (axis.ravel() for axis in np.meshgrid(np.arange(k), np.arange(levels), indexing="ij"))
    row = np.arange(k * levels)
    entries = [
        (row, j + 1, j + 1.0),
        (row, j, -np.exp(epsilons[e]) * (k - j)),
        (row, k + 1 + row, np.full(len(row), -1.0)),
        (k * levels + e, k + 1 + row, np.ones(len(row))),
    ]
    rows, columns, values = (np.concatenate(each) for each in zip(*entries, strict=True))
    law = np.arange(k + 1 + k * levels) <= k
    wins = np.where(law & (np.arange(len(law)) >= correct), -1.0, 0.0)
    upper, number = csr_matrix((values, (rows, columns))), np.arange(k)
    # somewhat less than allowed at each level, so that no more than allowed is used between two
    for share in (0.95, 0.9, 0.8, 0.6):
        limit = np.concatenate([np.zeros(len(row)), share * coins * deltas(epsilons)])
        solved = linprog(wins, A_ub=upper, b_ub=limit, A_eq=law[None, :].astype(float), b_eq=[1.0])
        found = np.maximum(solved.x[: k + 1], 0.0)
        found /= found.sum()
        used = np.maximum((number + 1) * found[1:] - np.exp(finer)[:, None] * (k - number) * found[:-1], 0.0).sum(1)
        if np.all(used <= known + KEPT):
            return found
    raise RuntimeError("the worst training breaks the claim, so it is no null.")


def told_at_worst(
    law: np.ndarray, pair: tuple[int, int], rng: np.random.Generator, canaries: int
) -> tuple[np.ndarray, np.ndarray]:
    """Coins and scores of a training that names some canaries and says 'in' or 'out' of each, so many of them rightly.

    Given the coins every answer with as many right is as likely: the law is all that a coin can change.
    """
    coins, guessed = rng.random(canaries) < 0.5, sum(pair)
    named, right = rng.permutation(canaries)[:guessed], np.arange(guessed) < rng.choice(guessed + 1, p=law)
    scores = 0.5 * rng.random(canaries)
    scores[named] += np.where(coins[named] == right, 1.0, -1.0)
    return coins, scores


@functools.cache
def feared(claim: str, canaries: int) -> tuple[np.ndarray, tuple[int, int]]:
    """The law whose training refutes a claim that it keeps most often, and the claim's numbers of guesses."""
    judged, rng = CURVES[claim](), np.random.default_rng(0)
    pair = guesses_of_claim(judged, canaries, delta=SMALL, risk=RISK)
    if pair[0] != pair[1]:
        raise RuntimeError(f"the worst training names canaries on both sides, the claim asks for {pair}.")
    profile, guessed = profile_of(judged.curve, "both"), sum(pair)
    needed = first(lambda v: sharp_tail(v, guessed, coins=canaries, profile=profile) <= RISK, guessed // 2, guessed)

    def of_both(epsilons: np.ndarray) -> np.ndarray:
        # the training treats 'in' and 'out' alike, so it keeps the smaller delta
        return np.minimum(*(judged.curve.delta(epsilons, way) for way in ("with_given_without", "without_given_with")))

    best, least = np.zeros(0), -1
    # the training cannot fix how many it calls 'in', and what is guessed beside its answers is right by chance only
    for more in range(6):
        law = worst_law(needed + more, guessed, canaries, of_both)
        runs = [told_at_worst(law, pair, rng, canaries) for _ in range(1000)]
        refuted = sum(audit.one_run(s, c, risk=RISK, guesses=[pair]).guesses[0].right >= needed for c, s in runs)
        if refuted > least:
            best, least = law, refuted
    return best, pair


def worst_training(claim: str, rng: np.random.Generator, canaries: int) -> bool:
    """Whether a curve is refuted that the worst training keeps."""
    coins, scores = told_at_worst(*feared(claim, canaries), rng, canaries)
    return audit.one_run(scores, coins, risk=RISK, claim=CURVES[claim]()).verdict == "violation"


def one_sided(procedure: str, rng: np.random.Generator, canaries: int) -> bool:
    """Whether an epsilon is above the 1 of answers that are all 'in'."""
    coins = rng.random(canaries) < 0.5
    told = rng.random(canaries) < np.where(coins, TOLD, TOLD / np.e)
    scores = told + 0.5 * rng.random(canaries)
    pairs = {
        "inside out (default)": None,
        "one side, k fixed": [(int(0.4 * TOLD * canaries), 0)],
        "sixteen pairs": sixteen_pairs(canaries),
    }[procedure]
    return audit.one_run(scores, coins, risk=RISK, delta=SMALL, guesses=pairs).epsilon(SMALL) > 1.0


CURVES = {"gaussian": functools.partial(guarantees.gaussian, mu=MU), "sampled": sampled_claim}
EXPOSED = {
    "randomised response": None,
    "nothing shown": 0.0,
    "all shown, m delta .01": 0.01,
    "all shown, m delta 1": 1.0,
    "all shown, m delta 100": 100.0,
}
AGNOSTIC = ("inside out (default)", "k from the claim", "sixteen pairs")
CASES: dict[tuple[str, str], Run] = {
    (procedure, kind): functools.partial(agnostic, procedure, exposed)
    for procedure, (kind, exposed) in itertools.product(AGNOSTIC, EXPOSED.items())
}
CASES |= {
    (procedure, f"Gaussian, mu {MU:g}"): functools.partial(labelled, procedure)
    for procedure in ("labelled, published recursion", "labelled, sharp certificate")
}
CASES[("verdict on a curve", "sampled, keeps its claim")] = curve
# added last: a null's seeds follow from its place
CASES |= {
    (procedure, "one-sided, epsilon 1"): functools.partial(one_sided, procedure)
    for procedure in ("inside out (default)", "one side, k fixed", "sixteen pairs")
}
CASES |= {
    ("verdict on a curve", f"the worst training, {claim}"): functools.partial(worst_training, claim) for claim in CURVES
}


def wrong(name: tuple[str, str], canaries: int, first: int, last: int) -> int:
    """How many of these runs are wrong."""
    place = list(CASES).index(name)
    # 18 was a procedure that is gone; the seeds of those behind it stay
    place += place >= 18
    return sum(CASES[name](np.random.default_rng((place, seed)), canaries) for seed in range(first, last))


def main() -> None:
    """Print a row for each procedure and null."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", type=int, default=100, help="runs that one process does at a time")
    parser.add_argument("--only", default="", help="procedures whose name begins so")
    parser.add_argument("--null", default="", help="nulls whose name begins so")
    options = parser.parse_args()
    chosen = [name for name in CASES if name[0].startswith(options.only) and name[1].startswith(options.null)]
    print(f"| procedure | null | wrong of {options.runs:,} at {RISK:g} |\n|---|---|---|")
    parts = [(first, min(first + options.part, options.runs)) for first in range(0, options.runs, options.part)]
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        found = {
            name: [pool.submit(wrong, name, options.canaries, first, last) for first, last in parts] for name in chosen
        }
        for (procedure, kind), counts in found.items():
            print(f"| {procedure} | {kind} | {sum(count.result() for count in counts)} |", flush=True)


if __name__ == "__main__":
    main()
