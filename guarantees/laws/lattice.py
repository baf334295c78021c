"""A privacy loss put on a lattice, once so that it leaks provably more and once so that it leaks less."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.hockey_stick import first_within, hockey_stick
from guarantees.laws.large_losses import FAR, LARGE
from guarantees.laws.law import LossLaw, Reversed, Tails
from guarantees.laws.profile import HalfProfile, law_from_halves
from guarantees.numerics.array import Array

FARTHEST = 1e5
"""Losses beyond this count as infinite in a composition: a lattice that reached them would be too coarse to tell."""

FEW = 1e10
"""Beyond LARGE, losses are followed until this many times the usual mass is left: less is worth no coarse lattice."""

NUDGE = 1e-6
"""Share of a cell within which an atom counts as lying on the lattice point."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reach:
    """How far a loss must be followed in each direction until the rest is negligible."""

    lower: float
    upper: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LatticePair:
    """Two laws on one lattice between whose curves the true curve lies, also after composition."""

    safe: DiscreteLaw
    leaked: DiscreteLaw


def reach(law: LossLaw, mass: float) -> Reach:
    """Epsilons beyond which each direction's profile is within ``mass`` of its mass at infinity."""
    # A law known only to some error shows nothing but that error further out; given masses are what they are.
    noise = law.error if law.noise is None else law.noise
    mass = mass if noise <= 1e-14 else max(mass, noise)

    def side(one: LossLaw) -> float:
        at_infinity = hockey_stick(one, np.array([FAR]))
        goals = np.array([mass, FEW * mass])
        found, near = first_within(lambda eps: hockey_stick(one, eps) - at_infinity, goals)
        support = one.support
        largest = FARTHEST if support is None else max(0.0, float(support[1]))
        end = min(found, max(near, LARGE))
        return float(min(end, FARTHEST, largest if np.isfinite(largest) else FARTHEST))

    return Reach(lower=side(Reversed(law)), upper=side(law))


def discretise(law: LossLaw, span: Reach, spacing: float) -> LatticePair:
    """Lattice laws that dominate, and are dominated by, the given one.

    The profile ``h(x) = D_x(with||without)`` is convex in ``x = e^eps``. Joining its values at the lattice
    points gives a pair that leaks more everywhere (each loss is split between its two neighbours with both
    masses kept); lowering the points by the largest height of a chord over the two tangents of its cell gives
    one that leaks less. Order of curves is kept by composition. [doroshenko2022; dong2022, lemma C.1]
    """
    (upper, upper_low), (lower, lower_low) = (
        _half(one, end, spacing) for one, end in ((law, span.upper), (Reversed(law), span.lower))
    )
    start = min(upper.delta[0], lower.delta[0])
    start_low = min(upper_low.delta[0], lower_low.delta[0])
    return LatticePair(
        safe=law_from_halves(upper.starting_at(start), lower.starting_at(start)),
        leaked=law_from_halves(upper_low.starting_at(start_low), lower_low.starting_at(start_low)),
    )


def _half(law: LossLaw, end: float, spacing: float) -> tuple[HalfProfile, HalfProfile]:
    """One direction on the lattice: its values, and lowered values whose chords lie below the profile."""
    eps = spacing * np.arange(int(np.ceil(end / spacing - 1e-9)) + 2)
    tails = law.tails(eps)
    value = hockey_stick(law, eps, tails)
    # All slopes of a cell, and its width, in units of e^eps at its left end: neither overflows.
    inside, width = NUDGE * spacing, np.expm1(spacing)
    at = _scaled_tail(eps, tails, value)
    left_slope, right_slope = at[:-1].copy(), np.exp(-spacing) * at[1:]
    # Slopes just inside each cell, so that an atom on (or a rounding error off) a lattice point counts as on it.
    nudged = _may_have_mass(law, eps, 2 * inside)
    left, right = nudged[:-1], nudged[1:]
    left_slope[left] = np.exp(-inside) * _scaled_tail_of(law, eps[:-1][left] + inside)
    right_slope[right] = np.exp(inside - spacing) * _scaled_tail_of(law, eps[1:][right] - inside)
    chord = (value[:-1] - value[1:]) / width
    left, right = np.maximum(left_slope - chord, 0.0), np.maximum(chord - right_slope, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        height = np.where(left * right > 0, left * right * width / (left + right), 0.0)
    # What the two slopes may overstate between the lattice point and the place where they were taken.
    height += (at[:-1] - left_slope + right_slope - np.exp(-spacing) * at[1:]) * NUDGE * width
    lowered = value - np.maximum(np.append(height, 0.0), np.append(0.0, height))
    # Beyond the lattice only the mass at infinity is sure.
    lowered[-1] = min(lowered[-1], float(hockey_stick(law, np.array([FAR]))[0]))
    if (lowered < 0).any():
        first = max(int(np.argmax(lowered < 0)), 1)
        lowered[first:] = 0.0
        # The chord down to zero must stay below the tangent at its lower end.
        lowered[first - 1] = max(0.0, min(lowered[first - 1], right_slope[first - 1] * width))
    return HalfProfile(epsilon=eps, delta=value), HalfProfile(epsilon=eps, delta=lowered)


def _scaled_tail(epsilon: Array, tails: Tails, delta: Array) -> Array:
    """``e^eps P_without(L > eps)``; beyond LARGE computed as the other tail less delta."""
    near = np.exp(np.minimum(epsilon, LARGE)) * tails.without_above
    return np.where(epsilon > LARGE, tails.with_above - delta, near)


def _scaled_tail_of(law: LossLaw, epsilon: Array) -> Array:
    if not epsilon.size:
        return epsilon
    tails = law.tails(epsilon)
    return _scaled_tail(epsilon, tails, hockey_stick(law, epsilon, tails))


def _may_have_mass(law: LossLaw, epsilon: Array, near: float) -> Array:
    """Which points lie close to a loss that has mass of its own; all of them if that is unknown."""
    if law.point_masses is None:
        return np.ones(epsilon.shape, bool)
    return np.any(np.abs(epsilon[:, None] - np.array(law.point_masses, float)) <= near, axis=1)


def dense(law: DiscreteLaw, spacing: float) -> tuple[int, Array]:
    """Index of the first finite atom, and ln of the masses without the record at every lattice point from there."""
    finite = np.isfinite(law.losses)
    losses = law.losses[finite]
    at = np.rint(losses / spacing).astype(np.int64)
    masses = np.full(at[-1] - at[0] + 1, -np.inf)
    with np.errstate(divide="ignore"):
        # from the side that sees large losses, where the other may underflow
        masses[at - at[0]] = np.where(
            losses > LARGE,
            np.log(np.maximum(law.with_record[finite], 0.0)) - losses,
            np.log(np.maximum(law.without[finite], 0.0)),
        )
    return int(at[0]), masses
