"""Figure 2 of keinan2025, rebuilt: several canaries in one coordinate hide one another unless coins are revealed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from scipy.special import comb

import audit
from guarantees.numerics.array import Array
from mechanisms.pairs.coordinate_canaries import CoordinateCanaries, coordinate_canaries

COORDINATES, NOISE, RISK = 1000, 1.0, 0.05
EACH = (1, 2, 4, 8)
SCALE = {"clip": 1.0, "noise_multiplier": NOISE}


def training(seed: int) -> Callable[[CoordinateCanaries], Iterable[Array]]:
    """One step that releases the sum of all canaries that are in, with noise; no model and no other records."""
    rng = np.random.default_rng((seed, 1))

    def train(canaries: CoordinateCanaries) -> Iterable[Array]:
        for joining in canaries.batches(1):
            yield np.bincount(joining, minlength=COORDINATES) + NOISE * rng.normal(size=COORDINATES)

    return train


def at_once(each: int, seed: int) -> float:
    """All coins of a coordinate guessed from what is seen there: their scores are the same."""
    canaries = coordinate_canaries(COORDINATES, places=COORDINATES, each=each, seed=seed)
    known = canaries.likelihoods(training(seed)(canaries), **SCALE)
    # one coin is there or not, the others of its coordinate are fair
    prior = np.log(comb(each - 1, np.arange(each)))
    present, absent = (np.logaddexp.reduce(part + prior, axis=1) for part in (known[:, 1:], known[:, :-1]))
    scores = np.repeat(present - absent, each)
    return audit.one_run(scores, canaries.coins.ravel(), risk=RISK, delta=0.0, seed=seed).epsilon(0.0)


def revealing(each: int, seed: int) -> float:
    """One of each coordinate guessed and the others revealed."""
    found = audit.one_training(
        training(seed),
        weights=COORDINATES,
        places=COORDINATES,
        each=each,
        noise_multiplier=NOISE,
        risk=RISK,
        delta=0.0,
        seed=seed,
    )
    return found.epsilon(0.0)


def lines(*, seeds: int) -> Iterable[str]:
    """The table, medians over seeds."""
    yield "| canaries in a coordinate | all guessed at once | one guessed, others revealed |"
    yield "|---|---|---|"
    for each in EACH:
        ways = [[way(each, seed) for seed in range(seeds)] for way in (at_once, revealing)]
        yield f"| {each} | " + " | ".join(f"{np.median(way):.2f}" for way in ways) + " |"
    yield (
        f"keinan2025, figure 2, as far as rebuilt: {COORDINATES:,} coordinates, noise {NOISE:g}, one step, epsilon at "
        f"delta 0, risk {RISK:g}, medians of {seeds} seeds. The authors' code was not run."
    )
