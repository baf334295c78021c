"""Tails of the loss of the pair of [chua2024] at one threshold, by whichever of three methods is accurate there."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.shuffling.capped import CappedSum, Round
from guarantees.shuffling.contour import Below, below_threshold

FEW_ROUNDS = 12
"""Up to here a plain lattice beats the contour integral, whose integrand then decays slowly..."""
SMALL_SHIFT = 0.1
"""...unless a round says so little that the sum is nearly normal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """The four tails at one threshold, and an estimate of the error of the upper two."""

    without_above: float
    without_below: float
    with_above: float
    with_below: float
    error: float


def few_rounds(round: Round, rounds: int) -> Point:
    """Condition on all rounds but one, in closed form; another round above the cap decides for 'above'.

    No other round can bring the sum below zero once one has ``r^2 - r > (T-1)/4``.
    """
    others = rounds - 1
    cap = (1 + np.sqrt(1 + others)) / 2
    width = (others + 1) * others / 4 + 1
    points = 2**16 if rounds <= 4 else 2**18
    law = CappedSum(round, others, cap, -others / 4 - 0.25, width, points, sharpen=False)
    masses = law.masses()
    big = -np.expm1(others * np.log(max(float(round.at_most(np.array(others / 4), 0)), 1e-300)))
    above = [float(np.clip(big + masses @ round.above(-law.sums, k), 0, 1)) for k in (1, 2)]
    below = [float(np.clip(masses @ round.at_most(-law.sums, k), 0, 1)) for k in (1, 2)]
    return _point(above, below, 1e-7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Tails from the split by large rounds: without and with the record, and about what was left out of each."""

    above: list[float]
    below: list[float]
    missing: float

    @property
    def share(self) -> float:
        """What was left out, relative to the smaller tail above."""
        return self.missing / max(min(self.above), 1e-300)


def split_by_large(round: Round, rounds: int) -> Split | None:
    """Tails where large rounds are few; None where they are not.

    With R the sum of the capped rounds. Above: the special round alone, ``sum P(R) P_k(r^2 - r > -R)``; exactly one
    other above the cap, ``(T-1) sum P_k(R) P_0(r^2 - r > max(-R, cap))``. Below: the opposite of each. Left out: two
    others, or one other together with a special round above the cap that would not do alone.
    """
    distance = rounds * round.capped_mean()
    jump = np.array(distance / 2 if distance >= 1 else 0.0)
    crowded = (rounds - 1) * float(round.above(jump, 0))
    if distance <= 0 or crowded > 0.01:
        return None
    law = _capped_law(round, rounds, distance, float(jump))
    # others below a cap of 1 only pull down; what the FFT puts above zero is round-off, and would count fully
    inside = law.sums <= (0.0 if jump == 0 else np.inf)
    above, below, missing = [], [], 0.0
    plain = law.masses(0)
    for k in (1, 2):
        alone = float((plain * round.above(-law.sums, k))[inside].sum()) * (1 + crowded)
        enough = round.above(np.maximum(-law.sums, jump), 0)
        joint = law.masses(k) * (rounds - 1)
        other = float((joint * enough)[inside].sum())
        too_little = float((joint * (round.above(jump, 0) - enough))[inside].sum())
        above.append(float(np.clip(alone + other, 0.0, 1.0)))
        below.append(float(np.clip((plain * round.at_most(-law.sums, k))[inside].sum() + too_little, 0.0, 1.0)))
        short = float(round.above(jump, k) - round.above(np.array(distance), k))
        missing = max(missing, crowded**2 + crowded * short)
    return Split(above=above, below=below, missing=missing)


def _capped_law(round: Round, rounds: int, distance: float, jump: float) -> CappedSum:
    """The others' sum around its mean ``-distance``, tilted upwards as far as the lattice's precision allows."""
    cap = (1 + np.sqrt(1 + 4 * jump)) / 2
    deviation = np.sqrt(rounds * round.capped_square())
    low = -distance - 12 * deviation - 0.5
    plain = CappedSum(round, rounds - 2, cap, low, -2 * low + 4 * jump, 2**17)
    if distance < 1:
        return dataclasses.replace(plain, sharpen=False)
    precise = np.sqrt(1e-4 / (rounds * plain.added_variance))
    tilt = min(20 / distance, 12 / (12 * deviation + 0.5), 8 / jump, precise)
    return dataclasses.replace(plain, tilt=tilt)


def tails_at(*, rounds: int, mu: float, threshold: float) -> Point:
    """The tails at one threshold.

    Where all other rounds together are small, the split by large rounds; few rounds: a lattice. Else the contour
    integral, one minus it above, and delta itself from ``E S^-``, unless a loss above is too rare for that.
    """
    round = Round(mu, 1.5 * mu**2 + threshold)
    small = rounds * round.capped_mean() < 1
    split = split_by_large(round, rounds) if small else None
    if split is not None and split.share < 1e-5:
        return _point(split.above, split.below, max(1e-6, split.share))
    if rounds <= FEW_ROUNDS and mu > SMALL_SHIFT:
        return few_rounds(round, rounds)
    below = below_threshold(rounds=rounds, mu=mu, threshold=threshold)
    point = _from_below(below, rounds, mu, threshold)
    delta = point.with_above - np.exp(threshold) * point.without_above
    if threshold > 0 and (1e-14 * np.exp(threshold) > 1e-6 * delta or below.remainder > 1e-11):
        split = split or split_by_large(round, rounds)
        if split is not None and (split.share < 1e-3 or split.missing < 1e-14):
            return _point(split.above, [1 - a for a in split.above], max(1e-6, split.share) * split.above[1])
    return point


def _point(above: list[float], below: list[float], error: float) -> Point:
    return Point(without_above=above[0], without_below=below[0], with_above=above[1], with_below=below[1], error=error)


def _from_below(below: Below, rounds: int, mu: float, threshold: float) -> Point:
    without_above, with_above = 1 - below.without, 1 - below.with_record
    if threshold > 0:
        # E S^+ = E S + E S^- loses fewer digits than the difference of the two tails
        excess = rounds * (np.exp(-(mu**2) - 2 * threshold) - np.exp(-(mu**2) - threshold)) + below.shortfall
        delta = float(np.exp(mu**2 + 2 * threshold) * excess / rounds)
        with_above = float(np.exp(threshold)) * without_above + max(0.0, delta)
    return _point([without_above, with_above], [below.without, below.with_record], 1e-12)
