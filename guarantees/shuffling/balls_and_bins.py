"""Balls and bins: every record draws its batch independently. Its pair is the 0/1 pair, here with a second method."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import ndtr

from guarantees.checks import AboveZero, Share, checked, require
from guarantees.claim import Claim, unusual
from guarantees.numerics.array import Array
from guarantees.numerics.distributions import Distribution
from guarantees.shuffling.isolated import isolated_shuffle
from guarantees.vocabulary import Relation

BETA = Distribution("beta")
CHUNK = 2**22
"""Normal draws held at once."""


@checked
def balls_and_bins(*, rounds: int, noise_multiplier: float, epochs: int = 1, relation: Relation = "zero_out") -> Claim:
    """Each record in one uniformly drawn batch per epoch, independently of the others. [chua2025]

    Where a record lies tells nothing about the others, so the 0/1 pair of ``isolated_shuffle`` dominates whatever
    the others do, and the promise holds for zero-out and add/remove neighbours. It does NOT hold for batches of
    fixed size, however shuffled.

    Args:
      rounds: batches in one epoch, from 1 to 1e8.
      noise_multiplier: standard deviation of the noise over the clipping norm, at least 0.1.
      epochs: how often all records are assigned again, at least 1.
      relation: which neighbours the promise is for; it is proved for ``"zero_out"`` and ``"add_remove"`` only.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.balls_and_bins(rounds=1, noise_multiplier=2.0, epochs=4)
      >>> round(claim.epsilon(1e-5), 2)  # one batch an epoch hides nothing: four times 0.5-GDP is 1-GDP
      4.38
    """
    isolated = isolated_shuffle(rounds=rounds, noise_multiplier=noise_multiplier, epochs=epochs)
    return dataclasses.replace(
        isolated,
        name="balls_and_bins",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "epochs": epochs}
        | unusual(relation, "zero_out"),
        relation=relation,
        observation="all noisy batch sums, every record's batch drawn independently and uniformly each epoch",
        source="chua2025",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeltaEstimate:
    """A Monte Carlo estimate of one delta."""

    mean: float
    standard_error: float
    lower: float
    """``lower`` and ``upper`` hold jointly but with probability ``risk``, whatever the number of trials."""
    upper: float
    trials: int
    risk: float


def _conditional(others: Array, target: float, noise_multiplier: float) -> Array:
    """E[(Y + S - target)^+ ; Y the largest round | the others], between 0 and 1."""
    total, largest = others.sum(axis=1), others.max(axis=1)
    needed = np.maximum(largest, target - total)
    z = noise_multiplier * np.log(needed) + 0.5 / noise_multiplier
    return ndtr(1 / noise_multiplier - z) + (total - target) * ndtr(-z)


@checked
def balls_and_bins_estimate(
    rng: np.random.Generator,
    *,
    rounds: int,
    noise_multiplier: AboveZero,
    epsilon: float,
    trials: int = 20_000,
    risk: Share = 0.05,
) -> DeltaEstimate:
    """Delta (with_given_without) of one epoch by conditional Monte Carlo, independent of the lattice.

    ``delta = E Z``, ``Z = Phi(mu - z_k) + (S - tT) Phi(-z_k)``, S and M the sum and the largest of T-1 rounds,
    ``k = max(M, tT - S)``, ``t = e^eps``, ``z_k = sigma ln k + mu/2``: the largest round is integrated out.
    The limits are Clopper-Pearson on one coin of probability Z per trial: exact, and much wider than the error bar.
    """
    require("rounds", rounds >= 2, ">= 2", rounds)
    require("trials", trials >= 2, ">= 2", trials)
    target, values = rounds * float(np.exp(epsilon)), np.empty(trials)
    rows = max(1, CHUNK // rounds)
    for start in range(0, trials, rows):
        stop = min(start + rows, trials)
        x = rng.standard_normal((stop - start, rounds - 1))
        others = np.exp(x / noise_multiplier - 0.5 / noise_multiplier**2)
        values[start:stop] = _conditional(others, target, noise_multiplier)
    values = np.clip(values, 0.0, 1.0)
    hits = int((rng.random(trials) < values).sum())
    return DeltaEstimate(
        mean=float(values.mean()),
        standard_error=float(values.std(ddof=1) / np.sqrt(trials)),
        lower=float(BETA.ppf(risk / 2, hits, trials - hits + 1)) if hits else 0.0,
        upper=float(BETA.isf(risk / 2, hits + 1, trials - hits)) if hits < trials else 1.0,
        trials=trials,
        risk=risk,
    )
