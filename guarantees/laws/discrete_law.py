"""A privacy loss with finitely many values."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from guarantees.answers import answers
from guarantees.laws.large_losses import LARGE, AtomProfile
from guarantees.laws.law import Certificate, LossLaw, Tails, four
from guarantees.numerics.array import Array
from guarantees.numerics.powers import running_sums

FEW = 16
"""Losses with at most this many values have their deltas summed anew at every epsilon."""


@answers(noise=0.0)
@dataclasses.dataclass(frozen=True, eq=False)
class DiscreteLaw(LossLaw):
    """A loss with finitely many values: a piecewise linear curve.

    ``atoms``, the losses, increase strictly; the first may be -inf (never seen with the record) and the last +inf
    (never seen without it). Each finite atom has ``with = exp(loss) * without``.
    """

    atoms: Array
    without: Array
    with_record: Array
    error: float = 0.0
    smallest_delta: float = 0.0  # pyright: ignore[reportIncompatibleMethodOverride]
    """Below this delta the masses are not to be trusted, and epsilon is refused."""
    certificate: Certificate | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def losses(self) -> Array:
        """The values of the loss, increasing."""
        return self.atoms

    @property
    def vertices(self) -> Tails:
        """The four tails between the atoms: entry i lies above atoms 0..i-1 and below atoms i.. ."""
        return self._vertices

    @functools.cached_property
    def _vertices(self) -> Tails:
        def below(masses: Array) -> Array:
            return np.concatenate([np.zeros(1), running_sums(masses)])

        return Tails(
            without_above=below(self.without[::-1])[::-1],
            without_below=below(self.without),
            with_above=below(self.with_record[::-1])[::-1],
            with_below=below(self.with_record),
        )

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest loss that has any mass."""
        held = np.flatnonzero((self.without > 0) | (self.with_record > 0))
        return float(self.losses[held[0]]), float(self.losses[held[-1]])

    def tails(self, threshold: Array) -> Tails:
        """Sums over the atoms above, and at or below, each threshold."""
        at = np.searchsorted(self.losses, np.asarray(threshold, float), side="right")
        return four(lambda rates: rates[at], self.vertices)

    def threshold(self, alpha: Array) -> Array:
        """The atom at which a randomised test of this level randomises."""
        level = np.asarray(alpha, float)
        at = np.searchsorted(-self.vertices.without_above, -level, side="left")
        # a mass that underflows still keeps a test of level 0 from raising an alarm
        return np.where(level <= 0, self.support[1], self.losses[np.clip(at - 1, 0, len(self.losses) - 1)])

    @property
    def closed(self) -> bool:
        """Whether the masses are given, not computed, and few."""
        return len(self.losses) <= FEW and self.error == 0

    @functools.cached_property
    def _far(self) -> tuple[AtomProfile, AtomProfile]:
        start = 0.0 if self.closed else LARGE
        return (
            AtomProfile(self.losses, self.with_record, start=start),
            AtomProfile(-self.losses[::-1], self.without[::-1], start=start),
        )

    def far_delta(self, epsilon: Array) -> Array:
        """The sum of ``with (1 - e^(eps - loss))`` over larger losses."""
        return self._far[0].delta(epsilon)

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """The sum of ``without (1 - e^(eps + loss))`` over losses below ``-eps``."""
        return self._far[1].delta(epsilon)

    def defect(self) -> float:
        """Lost mass and broken likelihood ratios, summed over the atoms.

        ``E_with e^-L + P_without(L = -inf) = 1`` and ``E_without e^L + P_with(L = inf) = 1``, and both sides sum to 1.
        """
        masses = np.concatenate([self.without, self.with_record])
        if np.isnan(masses).any():
            return np.inf
        finite = np.isfinite(self.losses)
        t, p, q = self.losses[finite], self.without[finite], self.with_record[finite]
        with np.errstate(over="ignore", invalid="ignore"):
            forward, backward = np.where(p > 0, p * np.exp(t), 0.0), np.where(q > 0, q * np.exp(-t), 0.0)
            # An atom of 1e-300 may overflow on the other side: only what both can show is compared.
            broken = np.abs(np.minimum(forward, 1e290) - q)[t <= 0].sum() + np.abs(backward - p)[t > 0].sum()
        lost = max(abs(float(side.sum()) - 1) for side in (self.without, self.with_record))
        return max(lost, float(broken), -float(masses.min()))


def no_leak() -> DiscreteLaw:
    """The law of a loss that is always 0: both sides are alike."""
    return DiscreteLaw(atoms=np.zeros(1), without=np.ones(1), with_record=np.ones(1))
