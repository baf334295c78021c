"""Pools for the displacement bound: the first slots, known through upper bounds of their own shuffle's profiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.numerics.array import Array
from guarantees.shuffling.barycentre import RATIOS, weight_excess
from guarantees.shuffling.stop_loss import Kind

DISTANCE: Mapping[Kind, float] = {"with_given_without": 1.0, "without_given_with": 1.0, "replacement": 2.0}
"""Largest distance between the two versions of the record."""
OTHER: Mapping[Kind, Kind] = {
    "with_given_without": "without_given_with",
    "without_given_with": "with_given_without",
    "replacement": "replacement",
}
"""The divergence with its two sides exchanged."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Upper bound of a profile: values at some epsilons, joined linearly in e^eps, where the truth is convex."""

    mu: float
    """Distance of one release, whose profile is never below this one."""
    epsilons: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    deltas: Array = dataclasses.field(default_factory=lambda: np.zeros(0))

    def __call__(self, epsilon: Array | float) -> Array:
        """The bound at any epsilons >= 0; constant beyond the last one given."""
        e = np.asarray(epsilon, float)
        bound = gaussian_delta(e, self.mu)
        if len(self.epsilons):
            bound = np.minimum(bound, np.interp(np.exp(np.minimum(e, 600.0)), np.exp(self.epsilons), self.deltas))
        return bound

    def inverse(self, deltas: Array) -> Array:
        """Smallest epsilons of a grid at which the bound is at most each delta; the largest one if there is none."""
        grid = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 300) * (10 * self.mu + self.mu**2)])
        return grid[np.minimum(np.searchsorted(-self(grid), -deltas), len(grid) - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """The first ``slots`` slots with bounds of their shuffle's profiles, one for each kind."""

    slots: int
    profiles: Mapping[Kind, Profile]
    sharper: Profile | None = None
    """A better bound of how far the weights exceed their mean than the largest replacement gives."""

    @property
    def replaced(self) -> Profile:
        """``d``: the profile between any two pools that differ in one record."""
        return self.profiles["replacement"]

    @property
    def weights(self) -> Profile:
        """Average over the records of how far the weights exceed t times their mean, as a function of ln t."""
        return self.sharper or self.replaced

    def pair(self, kind: Kind, ratio: Array) -> Array:
        """Upper bound of ``int (H_0 - ratio H_0')^+``; below ratio 1 it is computed from the other direction."""
        ratio = np.asarray(ratio, float)
        upper = self.profiles[kind](np.log(np.maximum(ratio, 1.0)))
        inverse = 1 / np.clip(ratio, 1e-200, 1.0)
        lower = 1 - ratio + np.maximum(ratio, 0.0) * self.profiles[OTHER[kind]](np.log(inverse))
        return np.where(ratio >= 1, upper, lower)


def one_slot(noise_multiplier: float) -> Pool:
    """The pool of only the first slot: Gaussians at distance 1 or 2, and all of them around their barycentre."""
    return Pool(
        slots=1,
        profiles={kind: Profile(mu=far / noise_multiplier) for kind, far in DISTANCE.items()},
        sharper=Profile(mu=2 / noise_multiplier, epsilons=np.log(RATIOS), deltas=weight_excess(noise_multiplier)),
    )
