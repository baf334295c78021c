"""Figure 2 of keinan2025, rebuilt: several canaries in one coordinate hide one another unless coins are revealed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

import audit
from audit.bounds.guesses_in_turn import log_odds
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
    scores = np.repeat(log_odds(known, canaries.coins, turn=0), each)
    return audit.one_run(scores, canaries.coins.ravel(), risk=RISK, delta=0.0, seed=seed).epsilon(0.0)


def revealing(reveal: str, each: int, seed: int) -> float:
    """One of each coordinate guessed and the others revealed, or all in turn."""
    found = audit.one_training(
        training(seed),
        weights=COORDINATES,
        places=COORDINATES,
        each=each,
        noise_multiplier=NOISE,
        risk=RISK,
        delta=0.0,
        seed=seed,
        reveal="in_turn" if reveal == "in turn" else "others",
    )
    return found.epsilon(0.0)


def lines(*, seeds: int) -> Iterable[str]:
    """The table, medians over seeds."""
    yield "| canaries in a coordinate | all guessed at once | one guessed, others revealed | guessed in turn |"
    yield "|---|---|---|---|"
    for each in EACH:
        ways = [[at_once(each, seed) for seed in range(seeds)]]
        ways += [[revealing(way, each, seed) for seed in range(seeds)] for way in ("others", "in turn")]
        yield f"| {each} | " + " | ".join(f"{np.median(way):.2f}" for way in ways) + " |"
    yield (
        f"keinan2025, figure 2, as far as rebuilt: {COORDINATES:,} coordinates, noise {NOISE:g}, one step, epsilon at "
        f"delta 0, risk {RISK:g}, medians of {seeds} seeds. The authors' code was not run."
    )
