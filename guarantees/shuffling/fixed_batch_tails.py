"""Tails of the loss of the pair of [chua2024] at one threshold, by whichever of four methods is accurate there."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.shuffling.capped_lognormal_sums import CappedSum, Round
from guarantees.shuffling.contour import Below, below_threshold, saddle_point

FEW_ROUNDS = 12
"""Rounds up to which a plain lattice beats the contour integral, whose integrand then decays slowly..."""
FINE = 1e-8
"""Estimated error at which a method's answer is accepted at once."""
STEEPEST = 2000.0
"""Largest tilt that does not overflow: a round lowers the sum by up to 1/4."""
SMALL_SHIFT = 0.1
"""...unless a round reveals so little that the sum is nearly normal."""


@dataclasses.dataclass(frozen=True)
class Point:
    """The four tails at one threshold, and an estimate of the absolute error of either delta read from them."""

    without_above: float
    without_below: float
    with_above: float
    with_below: float
    error: float


def few_rounds(round: Round, rounds: int) -> Point:
    """Tails for few rounds: condition on all rounds but one; another round above the cap decides for 'above'.

    No other round can bring the sum below zero once one has ``r^2 - r > (T-1)/4``.
    """
    others = rounds - 1
    cap = (1 + np.sqrt(1 + others)) / 2
    width = (others + 1) * others / 4 + 1
    points = 2**16 if rounds <= 4 else 2**18
    law = CappedSum(round, others, cap, -others / 4 - 0.25, width, points, sharpen=False)
    masses = law.masses()
    big = -np.expm1(others * np.log(max(float(round.at_most(np.array(others / 4), 0)), 1e-300)))
    # larger sums are above, whatever the last round does
    open_, surely = law.sums <= 0.25, float(masses[law.sums > 0.25].sum())
    masses, places = masses[open_], round.places(-law.sums[open_])
    # sums, not dot products, for which BLAS would wake its threads
    above = [float(np.clip(big + surely + np.sum(masses * places.above(k)), 0, 1)) for k in (1, 2)]
    below = [float(np.clip(np.sum(masses * places.at_most(k)), 0, 1)) for k in (1, 2)]
    return _point(above, below, 1e-7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Tails from the split by large rounds, without and with the record, and roughly what each leaves out."""

    above: list[float]
    below: list[float]
    missing: float

    @property
    def share(self) -> float:
        """What is left out, relative to the smaller tail above."""
        return self.missing / max(min(self.above), 1e-300)

    @property
    def error(self) -> float:
        """Estimated error of either delta: what is left out, and the lattice."""
        return self.missing + min(1e-6 * self.above[1], FINE)


def split_by_large(round: Round, rounds: int, *, most: float = np.inf) -> Split | None:
    """Tails if large rounds are few; None if they are not, or if more than ``most`` would surely be missing.

    With R the sum of the capped rounds. Above: the special round alone, ``sum P(R) P_k(r^2 - r > -R)``; exactly one
    other above the cap, ``(T-1) sum P_k(R) P_0(r^2 - r > max(-R, cap))``. Below: the opposite of each. Left out: two
    others, or one other together with a special round above the cap that would not do alone.
    """
    distance = rounds * round.capped_mean()
    jump = np.array(distance / 2 if distance >= 1 else 0.0)
    crowded = (rounds - 1) * float(round.above(jump, 0))
    short = max(float(round.above(jump, k) - round.above(np.array(distance), k)) for k in (1, 2))
    missing = crowded**2 + crowded * short
    if distance <= 0 or crowded > 0.01 or missing > most:
        return None
    law = _capped_law(round, rounds, distance, float(jump))
    # others below a cap of 1 only pull down; what the FFT puts above zero is round-off, and would count fully
    inside = law.sums <= (0.0 if jump == 0 else np.inf)
    left = -law.sums[inside]
    places, plain = round.places(left), law.masses(0)[inside]
    enough = round.above(np.maximum(left, jump), 0)
    above, below = [], []
    for k in (1, 2):
        alone = float((plain * places.above(k)).sum()) * (1 + crowded)
        joint = law.masses(k)[inside] * (rounds - 1)
        other = float((joint * enough).sum())
        too_little = float((joint * (round.above(jump, 0) - enough)).sum())
        above.append(float(np.clip(alone + other, 0.0, 1.0)))
        below.append(float(np.clip((plain * places.at_most(k)).sum() + too_little, 0.0, 1.0)))
    return Split(above=above, below=below, missing=missing)


def _capped_law(round: Round, rounds: int, distance: float, jump: float) -> CappedSum:
    """Sum of the other rounds around its mean ``-distance``, tilted upwards as far as precision allows."""
    cap = (1 + np.sqrt(1 + 4 * jump)) / 2
    deviation = np.sqrt(rounds * round.capped_square())
    low = -distance - 12 * deviation - 0.5
    plain = CappedSum(round, rounds - 2, cap, low, -2 * low + 4 * jump, 2**17)
    if distance < 1:
        return dataclasses.replace(plain, sharpen=False)
    precise = np.sqrt(1e-4 / (rounds * plain.added_variance))
    tilt = min(20 / distance, 12 / (12 * deviation + 0.5), 8 / jump, precise)
    return dataclasses.replace(plain, tilt=tilt)


def downward_tilt(rounds: int, mu: float, threshold: float, low: float) -> float:
    """The tilt that makes sums at or below zero typical, and sums that would wrap around the lattice rare."""
    return -min(max(saddle_point(rounds=rounds, mu=mu, threshold=threshold), -10 / low), STEEPEST)


def tilted_lattice(round: Round, rounds: int, threshold: float, points: int) -> Point:
    """Tails by conditioning on all rounds but one, on a lattice tilted so that sums at or below zero are typical.

    No sum of the others above 1/4 can be brought back to zero, so the lattice need not hold larger ones. The error is
    estimated from a lattice half as fine: it falls by more than half each time.
    """
    others = rounds - 1
    pulled, spread = max(others * round.capped_mean(), 0.0), np.sqrt(others * round.capped_square())
    low = -min(others / 4, pulled + 12 * spread + 0.5)
    cap = (1 + np.sqrt(2 - 4 * low)) / 2
    tilt = downward_tilt(rounds, round.mu, threshold, low)
    found = []
    for fineness in (points // 2, points):
        law = CappedSum(round, others, cap, low, -2 * low + 1, fineness, tilt, sharpen=False)
        inside = law.sums <= 0.25
        masses = law.masses()[inside]
        places = round.places(-law.sums[inside])
        found.append([float(np.clip(np.sum(masses * places.at_most(k)), 0.0, 1.0)) for k in (1, 2)])
    coarse, below = found
    error = abs(below[0] - coarse[0]) * max(1.0, np.exp(threshold)) + abs(below[1] - coarse[1]) * max(
        1.0, np.exp(-threshold)
    )
    return _point([1 - part for part in below], below, float(error))


def tails_at(*, rounds: int, mu: float, threshold: float) -> Point:
    """The tails at one threshold.

    Where all other rounds together are small, the split by large rounds; few rounds: a lattice. Else the contour
    integral, one minus it above, and delta itself from ``E S^-``, unless a loss above is too rare for that; where
    its integrand falls too slowly, a tilted lattice.
    """
    round = Round(mu, 1.5 * mu**2 + threshold)
    small, few = rounds * round.capped_mean() < 1, rounds <= FEW_ROUNDS and mu > SMALL_SHIFT
    # of few rounds a split that misses more is never taken; of many it may be, below
    split = split_by_large(round, rounds, most=FINE if few else np.inf) if small else None
    if split is not None and split.share < 1e-5 and split.missing < FINE:
        return _point(split.above, split.below, split.error)
    if few:
        return few_rounds(round, rounds)
    below = below_threshold(rounds=rounds, mu=mu, threshold=threshold)
    point = _from_below(below, rounds, mu, threshold)
    delta = point.with_above - np.exp(threshold) * point.without_above
    rare = 1e-14 * np.exp(threshold) > 1e-6 * delta
    if threshold > 0 and (rare or point.error > FINE):
        split = split or split_by_large(round, rounds)
        if split is not None and (split.share < 1e-3 or split.missing < 1e-14):
            above = _point(split.above, [1 - a for a in split.above], split.error)
            if rare:
                return above
            point = min(point, above, key=lambda one: one.error)
    for points in (2**18, 2**20):
        if point.error > 4 * FINE:
            point = min(point, tilted_lattice(round, rounds, threshold, points), key=lambda one: one.error)
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
    error = 1e-12 + below.defect * max(1.0, float(np.exp(threshold)))
    error = max(error, below.remainder if below.remainder > 1e-11 else 0.0)
    return _point([without_above, with_above], [below.without, below.with_record], error)
