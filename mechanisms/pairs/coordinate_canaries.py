"""Canaries of one training that do not hide one another: gradients in distinct coordinates, in by fair coins.

They join a batch as rows of gradients, before the user's code clips, sums and adds noise: the same for every framework.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from guarantees.checks import Count, FromZero, Positive, Rate, checked, require
from guarantees.numerics.distributions import binom

CHUNK = 64
"""Rows at once: a batch of thousands of canaries never is one array of its size times the weights."""
COINS, BATCHES = 0xC014, 0xBA7C
"""Keep draws apart from each other and from a training's own ``default_rng(seed)``."""
TINY = 1e-300


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CoordinateCanaries:
    """Several canaries in each of some coordinates; the last of each is guessed, the coins of the others are revealed.

    Canaries in one coordinate add up there and hide one another; whoever knows all coins but one sees that one as if it
    were alone. Revealed coins are never guessed. [keinan2025]
    """

    coordinates: np.ndarray
    """Which weight each place is about, in the flat order of the weights."""
    coins: np.ndarray
    """Whether each canary is in the training, (places, canaries in one place)."""
    size: int
    """Coordinates of all weights."""
    length: float
    """Norm of a canary's gradient before clipping."""
    rate: float
    """How often a canary joins a batch; 1 for all steps."""
    seed: int
    drawn: list[int] = dataclasses.field(default_factory=list, repr=False)
    """How many canaries joined each batch that ``batches`` drew."""

    @property
    def guessed(self) -> np.ndarray:
        """The coin of every place that is guessed."""
        return self.coins[:, -1]

    @property
    def records(self) -> np.ndarray:
        """Of each canary that is in the training, the place: one record more for each."""
        return np.nonzero(self.coins)[0]

    def batches(self, steps: int) -> Iterator[np.ndarray]:
        """Poisson batches: for each step, the places of the canaries that join, as long as they are many."""
        rng = _generator(self.seed, BATCHES)
        for _ in range(steps):
            joining = self.records[rng.random(len(self.records)) < self.rate]
            self.drawn.append(len(joining))
            yield joining

    def rows(self, joining: ArrayLike, *, chunk: int = CHUNK) -> Iterator[np.ndarray]:
        """Gradients of the joining canaries, (chunk, size) at a time; the last chunk ends with rows of zeros.

        All chunks have one shape, so compiled code compiles once, and a row of zeros adds nothing to a sum.
        """
        places = np.asarray(joining, int)
        for first in range(0, len(places), chunk):
            part = places[first : first + chunk]
            found = np.zeros((chunk, self.size), np.float32)
            found[np.arange(len(part)), self.coordinates[part]] = self.length
            yield found

    def seen(self, noisy_sum: Any) -> np.ndarray:
        """What a step's noisy sum shows in every place: of a flat vector, or of arrays in the order of the weights."""
        parts = noisy_sum if isinstance(noisy_sum, list | tuple) else [noisy_sum]
        # PyTorch's tensors may track gradients or lie on a device
        held = [part.detach().cpu() if hasattr(part, "detach") else part for part in parts]
        flat = [np.asarray(part, dtype=float).ravel() for part in held]
        require("noisy_sum", sum(map(len, flat)) == self.size, f"of {self.size} numbers", sum(map(len, flat)))
        return np.concatenate(flat)[self.coordinates]

    def likelihoods(self, seen: Iterable[ArrayLike], *, clip: float, noise_multiplier: float) -> np.ndarray:
        """Log likelihood of what was seen in every place, (places, 1 + canaries in one place), by how many were in.

        Exact, up to a constant of the place, where the training does what it says and no other record moves these
        coordinates.
        """
        reached = min(self.length, clip)
        moved = np.stack([np.asarray(step, float) for step in seen]) / reached
        deviation = noise_multiplier * clip / reached
        numbers = np.arange(self.coins.shape[1] + 1)
        joined = np.log(np.maximum(binom.pmf(numbers, numbers[:, None], self.rate), TINY))
        found = np.zeros((len(self.coordinates), len(numbers)))
        for step in moved:
            dense = -0.5 * ((step[:, None] - numbers) / deviation) ** 2
            found += np.stack([np.logaddexp.reduce(dense + row, axis=1) for row in joined], axis=1)
        return found

    def moved_by(self, seen: np.ndarray) -> tuple[float, float]:
        """How far a canary that joins moves what was seen, by least squares over the places, and its standard error."""
        inside, means = self.coins.sum(1) - self.coins.sum(1).mean(), seen.mean(0)
        size = max(float(inside @ inside), TINY)
        slope = float(inside @ means) / size
        left = means - means.mean() - slope * inside
        error = float(np.sqrt(left @ left / max(1, len(means) - 2) / size))
        return slope / self.rate, error / self.rate

    def scores(self, seen: Iterable[ArrayLike], *, clip: float, noise_multiplier: float) -> np.ndarray:
        """Log likelihood ratio of every guessed coin, the others in its place being known.

        Where the training does not do what it says it is some score: that costs tightness, never validity.
        """
        known = self.likelihoods(seen, clip=clip, noise_multiplier=noise_multiplier)
        places, revealed = np.arange(len(known)), self.coins[:, :-1].sum(1)
        return known[places, revealed + 1] - known[places, revealed]


@checked
def coordinate_canaries(
    size: Count,
    *,
    places: Count,
    each: Count = 1,
    length: Positive = 10.0,
    rate: Rate = 1.0,
    seed: FromZero = 0,
) -> CoordinateCanaries:
    """Canaries for a model with ``size`` weights, their coordinates spread evenly, their coins drawn by the seed.

    Args:
      size: how many weights the model has.
      places: how many coordinates hold canaries, and how many coins are guessed.
      each: canaries in one coordinate. All but one of their coins are revealed.
      length: norm of each gradient; at least the clipping norm, or clipping is not tested.
      rate: how often a record joins a batch.
      seed: draws coins and batches. The training must not know it.

    Returns:
      The canaries: ``batches``, ``rows`` and ``seen`` for the training, ``scores`` afterwards.

    Raises:
      ValueError: an argument is out of range, or there are more places than weights.
    """
    require("places", places <= size, f"at most the {size} weights", places)
    coordinates = np.arange(places) * (size // places) + size // (2 * places)
    coins = _generator(seed, COINS).random((places, each)) < 0.5
    return CoordinateCanaries(
        coordinates=coordinates, coins=coins, size=size, length=length, rate=float(rate), seed=seed
    )


def _generator(seed: int, *purpose: int) -> np.random.Generator:
    # default_rng((seed, 0)) would be default_rng(seed)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=purpose))
