"""Tails of the loss of 003's pair at one threshold, by whichever of three methods is accurate there."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.shuffling.capped import CappedSum, Round
from guarantees.shuffling.contour import Below, below_threshold

FEW_ROUNDS = 12
"""Up to here a plain lattice beats the contour integral, whose integrand then decays slowly."""


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
    law = CappedSum(round, others, cap, -others / 4 - 0.25, width, 2**16 if rounds <= 4 else 2**18)
    masses = law.masses()
    big = -np.expm1(others * np.log(max(float(round.at_most(np.array(others / 4), 0)), 1e-300)))
    above = [float(np.clip(big + masses @ round.above(-law.sums, k), 0, 1)) for k in (1, 2)]
    below = [float(np.clip(masses @ round.at_most(-law.sums, k), 0, 1)) for k in (1, 2)]
    return Point(
        without_above=above[0],
        without_below=below[0],
        with_above=above[1],
        with_below=below[1],
        error=max(abs(a + b - 1) for a, b in zip(above, below, strict=True)) + 1e-7,
    )


def rare_above(round: Round, rounds: int) -> tuple[list[float], float]:
    """P(S > 0) without and with the record where large rounds are few, and about the share that is left out.

    With R the sum of the capped rounds: the special round alone, ``sum P(R) P_k(r^2 - r > -R)``; exactly one other
    above the cap, ``(T-1) sum P_k(R) P_0(r^2 - r > max(-R, cap))``. Left out: two others, or one other together with
    a special round above the cap that would not do alone.
    """
    distance = rounds * (np.exp(-(round.log_tau - round.mu**2 / 2)) - np.exp(2 * round.mu**2 - 2 * round.log_tau))
    if distance <= 0:
        return [1.0, 1.0], np.inf
    jump = np.array(distance / 2)
    crowded = (rounds - 1) * float(round.above(jump, 0))
    if crowded > 0.01:
        return [1.0, 1.0], np.inf
    law = _capped_law(round, rounds, distance, float(jump))
    # a small total cannot be turned by others below the cap, and their round-off would count fully
    inside = law.sums <= (0.0 if distance < 1 else np.inf)
    values, left_out = [], 0.0
    plain = law.masses(0)
    for k in (1, 2):
        alone = float((plain * round.above(-law.sums, k))[inside].sum()) * (1 + crowded)
        other = float((law.masses(k) * round.above(np.maximum(-law.sums, jump), 0))[inside].sum()) * (rounds - 1)
        values.append(max(alone + other, 0.0))
        short = float(round.above(jump, k) - round.above(np.array(max(distance, float(jump))), k))
        left_out = max(left_out, (crowded**2 + crowded * short) / max(values[-1], 1e-300))
    return values, left_out


def _capped_law(round: Round, rounds: int, distance: float, jump: float) -> CappedSum:
    """The others' sum around its mean ``-distance``, tilted upwards as far as the lattice's precision allows."""
    cap = (1 + np.sqrt(1 + 4 * jump)) / 2
    deviation = np.sqrt(rounds * np.exp(2 * round.mu**2 - 2 * round.log_tau))
    low = -distance - 12 * deviation - 0.5
    plain = CappedSum(round, rounds - 2, cap, low, -2 * low + 4 * jump, 2**17)
    if distance < 1:
        return dataclasses.replace(plain, sharpen=False)
    precise = np.sqrt(1e-4 / (rounds * plain.added_variance))
    tilt = min(20 / distance, 12 / (12 * deviation + 0.5), 8 / jump, precise)
    return dataclasses.replace(plain, tilt=tilt)


def tails_at(*, rounds: int, mu: float, threshold: float) -> Point:
    """The tails at one threshold.

    Few rounds: a lattice. Else the contour integral, one minus it above, and delta itself from ``E S^-``; where a
    loss above is too rare for that, or all rounds together too small, the split by large rounds.
    """
    round = Round(mu, 1.5 * mu**2 + threshold)
    if rounds <= FEW_ROUNDS:
        return few_rounds(round, rounds)
    mean = rounds * np.exp(-(mu**2) - threshold)
    if mean < 1:
        above, left_out = rare_above(round, rounds)
        if left_out < 1e-5 or mean < 0.05:
            return _from_above(above, left_out)
    below = below_threshold(rounds=rounds, mu=mu, threshold=threshold)
    point = _from_below(below, rounds, mu, threshold, mean)
    round_off = 1e-14 * np.exp(threshold)
    if round_off > 1e-6 * (point.with_above - np.exp(threshold) * point.without_above):
        above, left_out = rare_above(round, rounds)
        if left_out < 1e-3 and min(above) > 0:
            return _from_above(above, left_out)
    return point


def _from_above(above: list[float], left_out: float) -> Point:
    without, with_record = above
    return Point(
        without_above=without,
        without_below=1 - without,
        with_above=with_record,
        with_below=1 - with_record,
        error=max(left_out, 1e-6) * with_record,
    )


def _from_below(below: Below, rounds: int, mu: float, threshold: float, mean: float) -> Point:
    without_above, with_above = 1 - below.without, 1 - below.with_record
    if threshold > 0:
        # E S^+ = E S + E S^- loses fewer digits than the difference of the two tails
        excess = rounds * np.exp(-(mu**2) - 2 * threshold) - mean + below.shortfall
        delta = float(np.exp(mu**2 + 2 * threshold) * excess / rounds)
        with_above = float(np.exp(threshold)) * without_above + max(0.0, delta)
    return Point(
        without_above=without_above,
        without_below=below.without,
        with_above=with_above,
        with_below=below.with_record,
        error=1e-12,
    )
