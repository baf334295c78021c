"""Curves from what users hand over: a privacy profile, a privacy loss distribution, sampled losses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from guarantees.checks import require
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.large_losses import LARGE
from guarantees.laws.law import Certificate
from guarantees.numerics.array import Array

TRUSTED_DELTA = 1e-10
"""dp-accounting's pessimistic deltas were seen below the truth from about 1e-11 down (against mpmath)."""

EPSILONS_PER_UNIT = 1e9

ROUNDING = 1e-12
"""Beyond LARGE, a mass below zero by at most this is rounding."""

PLD_ERROR = 2e-11
"""Estimated rounding error of dp-accounting's convolutions."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HalfProfile:
    """One direction of a profile: delta at increasing epsilons, the first of them 0."""

    epsilon: Array
    delta: Array

    @property
    def widths(self) -> Array:
        """Distances of neighbouring points in ``e^eps``."""
        # e^b - e^a as e^a expm1(b - a): neighbours on a fine lattice agree in most digits.
        with np.errstate(over="ignore"):
            return np.exp(self.epsilon[:-1]) * np.expm1(np.diff(self.epsilon))

    @property
    def rates(self) -> Array:
        """Chord slopes in ``e^eps``: the tail under the second law between neighbours; 0 beyond the last."""
        return np.append((self.delta[:-1] - self.delta[1:]) / self.widths, 0.0)

    @property
    def masses(self) -> Array:
        """Masses under the first law at each point but the first: the drops of the chords' slopes.

        Beyond LARGE each slope is multiplied by its own e^eps before they are subtracted, which neither overflows nor
        underflows.
        """
        drop, apart = -np.diff(self.delta), np.diff(self.epsilon)
        with np.errstate(over="ignore"):
            far = drop / -np.expm1(-apart) - np.append(drop[1:] / np.expm1(apart[1:]), 0.0)
        near = -np.diff(self.rates) * np.exp(np.minimum(self.epsilon[1:], LARGE))
        return np.where(self.epsilon[1:] > LARGE, far, near)

    def hull(self) -> HalfProfile:
        """The profile at only those points that lie on the lower convex hull."""
        last = int(np.argmin(self.delta)) + 1
        cut = HalfProfile(epsilon=self.epsilon[:last], delta=self.delta[:last])
        masses, near = cut.masses, int(np.searchsorted(cut.epsilon, LARGE, side="right"))
        if not (masses < 0).any():
            return cut
        kept = cut._near_hull(near)
        whole = cut._kept([*kept, *range(near, last)])
        if not (whole.masses[max(len(kept) - 2, 0) :] < -ROUNDING).any():
            # what rounding makes of a straight line far out is left as it is
            return whole
        for point in range(near, last):
            while len(kept) > 1 and cut._above_chord(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        return cut._kept(kept)

    def _kept(self, points: list[int]) -> HalfProfile:
        """The profile at only these points."""
        return HalfProfile(epsilon=self.epsilon[points], delta=self.delta[points])

    def _near_hull(self, number: int) -> list[int]:
        """Those of the first points that lie on their hull; its slopes are the isotonic regression of all slopes."""
        from scipy.optimize import isotonic_regression

        if number < 3:
            return list(range(number))
        found = isotonic_regression(self.rates[: number - 1], weights=self.widths[: number - 1], increasing=False)
        return [*found.blocks[:-1].tolist(), number - 1]

    def _above_chord(self, left: int, middle: int, right: int) -> bool:
        """Whether a point lies above the chord of two others, in ``e^eps``."""
        a, b, c = (float(self.epsilon[point]) for point in (left, middle, right))
        share = math.expm1(a - b) / math.expm1(a - c) * math.exp(b - c)
        low, height, high = (float(self.delta[point]) for point in (left, middle, right))
        return height > low + share * (high - low)

    def starting_at(self, value: float) -> HalfProfile:
        """The profile with another delta at epsilon 0."""
        return dataclasses.replace(self, delta=np.append(value, self.delta[1:]))


def law_from_profile(
    epsilons: ArrayLike,
    deltas: ArrayLike,
    reverse_deltas: ArrayLike | None = None,
    *,
    error: float = 0.0,
    smallest_delta: float = 0.0,
) -> DiscreteLaw:
    """Law of the pair that leaks most among all with at most these deltas at these epsilons.

    Its profile joins the given points linearly in ``e^eps`` (their lower convex hull, constant beyond the
    last), so its curve is ``f(a) = max(0, 1-delta-e^eps a, e^-eps (1-delta-a))`` over the given points.
    [dong2022, proposition 2.12; gomez2025, appendix A.4] Deltas are with_given_without; the reverse ones
    are taken equal when absent.
    """
    eps = np.asarray(epsilons, float).reshape(-1)
    order = np.argsort(eps)
    forward = np.asarray(deltas, float).reshape(-1)
    backward = forward if reverse_deltas is None else np.asarray(reverse_deltas, float).reshape(-1)
    require("epsilons", eps.size and np.all(np.diff(eps[order]) > 0), "distinct", epsilons)
    require("epsilons", np.all(np.isfinite(eps) & (eps >= 0)), "finite and >= 0", epsilons)
    for name, given in (("deltas", forward), ("reverse_deltas", backward)):
        require(name, given.shape == eps.shape, f"as many as epsilons ({eps.size})", given.size)
        require(name, np.all((given >= 0) & (given <= 1)), "in [0, 1]", given)
    eps, forward, backward = eps[order], forward[order], backward[order]
    if eps[0] == 0:
        start = min(forward[0], backward[0])
        upper = HalfProfile(epsilon=eps, delta=forward).starting_at(start)
        lower = HalfProfile(epsilon=eps, delta=backward).starting_at(start)
    else:
        eps = np.append(0.0, eps)
        upper, lower = _recentred(
            HalfProfile(epsilon=eps, delta=np.append(1.0, forward)),
            HalfProfile(epsilon=eps, delta=np.append(1.0, backward)),
        )
    return law_from_halves(upper, lower, error=error, smallest_delta=smallest_delta)


def law_from_promises(promises: Iterable[tuple[float, float]]) -> DiscreteLaw:
    """Law of several (epsilon, delta) promises together; negative epsilons, which accountants give, count as 0.

    Epsilons that lie within 2e-9 of each other are rounded up to multiples of 1e-9, which promises less: slopes between
    nearer points are lost in digits.
    """
    # where an epsilon is repeated the smallest delta says most
    said = {max(epsilon, 0.0): delta for epsilon, delta in sorted(promises, key=lambda promise: -promise[1])}
    epsilons = np.array(sorted(said))
    apart = np.diff(epsilons, prepend=-np.inf, append=np.inf)
    near = np.minimum(apart[:-1], apart[1:]) < 2 / EPSILONS_PER_UNIT
    # the product of a multiple of 1e-9 may be rounded to more than its whole number
    nearest, above = (whole(epsilons * EPSILONS_PER_UNIT) / EPSILONS_PER_UNIT for whole in (np.round, np.ceil))
    rounded = np.where(near, np.maximum(np.where(nearest >= epsilons, nearest, above), epsilons), epsilons)
    profile: dict[float, float] = {}
    for own, epsilon in zip(epsilons.tolist(), rounded.tolist(), strict=True):
        profile[epsilon] = min(said[own], profile.get(epsilon, 1.0))
    # an epsilon that is larger by x moves a rate by at most x
    error = 1e-12 + float(np.max(rounded - epsilons, initial=0.0))
    return law_from_profile(list(profile), list(profile.values()), error=error)


def law_from_halves(
    upper: HalfProfile, lower: HalfProfile, *, error: float = 0.0, smallest_delta: float = 0.0
) -> DiscreteLaw:
    """The law whose profile is the lower convex hull of the points of both directions.

    Negative epsilons are the other direction: ``D_-eps(with||without) = 1 - e^-eps (1 - D_eps(without||with))``.
    """
    upper, lower = upper.hull(), lower.hull()
    centre = 1 - upper.delta[0] - upper.rates[0] - lower.rates[0]
    for _ in range(len(upper.epsilon) + len(lower.epsilon)):
        if centre >= 0:
            break
        # The point at 0 lies above the chord of its neighbours: lower it, and look at the neighbours again.
        before = len(upper.epsilon) + len(lower.epsilon)
        upper, lower = (half.hull() for half in _recentred(upper, lower))
        centre = 1 - upper.delta[0] - upper.rates[0] - lower.rates[0]
        if len(upper.epsilon) + len(lower.epsilon) == before:
            break
    law = _assembled(upper, lower, max(0.0, centre))
    return dataclasses.replace(law, error=error, smallest_delta=smallest_delta)


def _recentred(upper: HalfProfile, lower: HalfProfile) -> tuple[HalfProfile, HalfProfile]:
    """Both directions, with the value at epsilon 0 moved onto the chord between the nearest points on its two sides."""

    def nearest(half: HalfProfile) -> tuple[float, float]:
        return (float(half.epsilon[1]), float(half.delta[1])) if len(half.epsilon) > 1 else (np.inf, 0.0)

    (a, delta_a), (b, delta_b) = nearest(upper), nearest(lower)
    # From x = e^-b, where h = 1 - x + x delta_b, to x = e^a, where h = delta_a; either may lie at infinity.
    with np.errstate(over="ignore"):
        to_right, to_left = np.expm1(a), -np.expm1(-b)
    share = 1.0 if np.isinf(to_right) else to_right / (to_right + to_left)
    value = float(share * (to_left + np.exp(-b) * delta_b) + (1 - share) * delta_a)
    return upper.starting_at(value), lower.starting_at(value)


def _assembled(upper: HalfProfile, lower: HalfProfile, centre: float) -> DiscreteLaw:
    """Law with atoms at the points of both directions: their masses are the drops of the chords' slopes."""
    with_above, without_below = np.maximum(upper.masses, 0.0), np.maximum(lower.masses, 0.0)
    above, below = with_above * np.exp(-upper.epsilon[1:]), without_below * np.exp(-lower.epsilon[1:])
    ends = np.array([np.inf])
    return DiscreteLaw(
        np.concatenate([-ends, -lower.epsilon[:0:-1], [0.0], upper.epsilon[1:], ends]),
        np.concatenate([lower.delta[-1:], without_below[::-1], [centre], above, [0.0]]),
        np.concatenate([[0.0], below[::-1], [centre], with_above, upper.delta[-1:]]),
    )


def law_from_pld(with_given_without: Any, without_given_with: Any | None = None) -> DiscreteLaw:
    """Law of dp-accounting's privacy loss distribution, computed from its profile and not from its masses.

    The masses of a pessimistic distribution are those of no pair (their two sides do not match), and curves
    read off them can lie on the wrong side of the diagonal; the profile is an upper bound by construction.
    dp-accounting's own floor applies: nothing is trusted below delta 1e-10.
    """
    if without_given_with is None and hasattr(with_given_without, "_pmf_remove"):
        pld = with_given_without
        with_given_without, without_given_with = pld._pmf_remove, pld._pmf_add
    upper = _half_from_pmf(with_given_without)
    lower = upper if without_given_with is None else _half_from_pmf(without_given_with)
    start = min(upper.delta[0], lower.delta[0])
    law = law_from_halves(
        upper.starting_at(start), lower.starting_at(start), error=PLD_ERROR, smallest_delta=TRUSTED_DELTA
    )
    certificate = Certificate(
        proved=f"dp-accounting's distribution is pessimistic, for delta >= {TRUSTED_DELTA:g}",
        estimated="rounding errors of its convolutions",
        round_off=PLD_ERROR,
        safe=law,
    )
    return dataclasses.replace(law, certificate=certificate)


def _half_from_pmf(pmf: Any) -> HalfProfile:
    """Deltas of one direction at the PMF's own lattice points, between which they are linear in ``e^eps``."""
    dense = pmf.to_dense_pmf()
    losses = dense._discretization * (dense._lower_loss + np.arange(dense.size))
    masses = np.asarray(dense._probs, np.longdouble)
    from_above = np.cumsum(masses[::-1])[::-1]
    discounted = np.cumsum((masses * np.exp(-losses.astype(np.longdouble)))[::-1])[::-1]
    eps = np.append(0.0, losses[losses > 0])
    at = np.minimum(np.searchsorted(losses, eps), dense.size - 1)
    delta = from_above[at] - np.exp(eps.astype(np.longdouble)) * discounted[at] + dense._infinity_mass
    delta = np.clip(delta.astype(float), 0.0, 1.0)
    small = delta <= TRUSTED_DELTA
    last = int(np.argmax(small)) if small.any() else len(delta) - 1
    return HalfProfile(epsilon=eps[: last + 1], delta=np.maximum(delta[: last + 1], TRUSTED_DELTA))
