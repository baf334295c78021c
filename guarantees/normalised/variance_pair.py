"""Pairs of Gaussians of unequal variance, which arise from dividing by a data-dependent number."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import gammainccinv, gammaincinv

from guarantees.checks import Count, Finite, Positive, checked
from guarantees.claim import Claim, unusual
from guarantees.laws.consistency import defect_at
from guarantees.laws.discrete_law import no_leak
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.large_losses import integrated_delta
from guarantees.laws.law import Certificate, LossLaw, Reversed, Tails, estimate, invert
from guarantees.laws.summed_law import SummedLaw, summed
from guarantees.laws.tabulated_law import TabulatedLaw
from guarantees.numerics.array import Array
from guarantees.numerics.changed_scale import scale_log_moment
from guarantees.numerics.chi_square import LARGE_SHAPE, gamma_tails, square_rounding
from guarantees.numerics.noncentral import ball_mass, ball_masses
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import Relation


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariancePairLaw(LossLaw):
    """N(0, I) against N(0, scale^2 I) with ``degrees`` coordinates, scale < 1.

    The loss ``-degrees ln scale - (scale^-2 - 1) |x|^2 / 2`` decreases in |x|^2, which is chi-square (times
    scale^2 with the record): all four tails are incomplete gamma functions.
    """

    degrees: float
    scale: float

    @property
    def error(self) -> float:
        """Rounding error of the tails and of their thresholds."""
        return 1e-13 + square_rounding(self.degrees)

    @property
    def _curvature(self) -> float:
        return (1 - self.scale) * (1 + self.scale) / (2 * self.scale**2)

    def defect(self) -> float:
        """Defect seen at a few thresholds."""
        return defect_at(self)

    def tails(self, threshold: Array) -> Tails:
        """Central chi-square tails."""
        t = np.asarray(threshold, float)
        square = np.maximum(0.0, (-self.degrees * np.log(self.scale) - t) / self._curvature)
        half = self.degrees / 2
        without_above, without_below = gamma_tails(half, square / 2)
        with_above, with_below = gamma_tails(half, square / 2 / self.scale**2)
        return Tails(
            without_above=without_above,
            without_below=without_below,
            with_above=with_above,
            with_below=with_below,
        )

    def threshold(self, alpha: Array) -> Array:
        """The loss at the chi-square quantile, searched where scipy's quantiles lose the far tail."""
        a = np.asarray(alpha, float)
        half = self.degrees / 2
        if half >= LARGE_SHAPE:
            return invert(self.tails, a)
        lower, upper = gammaincinv(half, np.minimum(a, 0.5)), gammainccinv(half, np.minimum(1 - a, 0.5))
        loss = -self.degrees * np.log(self.scale) - 2 * self._curvature * np.where(a < 0.5, lower, upper)
        return np.where(a <= 0, np.inf, loss)

    def compose(self, times: int) -> VariancePairLaw:
        """The exact law of T rounds: T times as many coordinates."""
        return dataclasses.replace(self, degrees=times * self.degrees)


def pair_log_moment(z: Array, dimension: int, scales: Array, shifts: Array, weights: Array) -> Array:
    """``ln sum weights E_without e^(z loss)`` of N(0, I) against N(shift e, scale^2 I); scales may be 1.

    One pair has ``s^(-n z) (1 + z (s^-2 - 1))^(-n/2) exp(z (z-1) shift^2 / (2 (s^2 + z (1-s^2))))``.
    """
    z = np.asarray(z)[..., None]
    shifted = z * (z - 1) * shifts**2 / (2 * (scales**2 + z * (1 - scales) * (1 + scales)))
    exponents = np.log(weights) + shifted + dimension * scale_log_moment(z, scales)
    top = np.real(exponents).max(axis=-1)
    return np.log(np.exp(exponents - top[..., None]).sum(axis=-1)) + top


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShiftedPairLaw(TabulatedLaw):
    """N(0, I) against N(shift e, scale^2 I); shift and scale < 1 are one of several, drawn and revealed.

    With c = shift/(1-s^2) the loss is ``-n ln s + shift^2/(2(1-s^2)) - (s^-2 - 1) |x - c e|^2 / 2``: a ball
    around c e, so the tails are noncentral chi-square laws. ``error`` is an estimate of their quadrature
    (compared with mpmath to 1e-12 in relative terms) plus ``lost``, the weight of what was left out.
    """

    dimension: int
    scales: Array
    shifts: Array
    weights: Array
    lost: float = 0.0

    @property
    def error(self) -> float:
        """Error as the class says; in one dimension, rounding a threshold near the largest loss costs a square root."""
        rounding = 2e-8 / np.sqrt(self._gap.min()) if self.dimension == 1 else 1e-13
        return float(rounding) + square_rounding(self.dimension) + self.lost

    @property
    def certificate(self) -> Certificate:
        """An estimate only: the quadrature was compared with exact values, not bounded."""
        return estimate("the quadrature of noncentral chi-square laws, and what was left out", self.error)

    @property
    def point_masses(self) -> tuple[float, ...]:
        """No point masses: every loss is a distance from a point."""
        return ()

    @property
    def work(self) -> int:
        """Evaluations for both sides of every draw: some fifty panels of twelve points each."""
        return 1200 * len(self.scales)

    @property
    def _gap(self) -> Array:
        return (1 - self.scales) * (1 + self.scales)

    def _room(self, threshold: Array) -> Array:
        t = np.clip(np.asarray(threshold, float), -1e290, 1e290)[..., None]
        return (-self.dimension * np.log(self.scales) - t) * 2 * self.scales**2 / self._gap

    def _balls_without(self, threshold: Array) -> tuple[Array, Array]:
        """Excess and centre of the balls in which the loss exceeds the threshold, in units of the noise without."""
        return self._room(threshold) - self.shifts**2 / self._gap, np.abs(self.shifts) / self._gap

    def _balls_with(self, threshold: Array) -> tuple[Array, Array]:
        """Excess and centre of those balls in units of the noise with the record."""
        excess = self._room(threshold) / self.scales**2 + self.shifts**2 / self._gap
        return excess, self.scales * np.abs(self.shifts) / self._gap

    def _without(self, threshold: Array) -> tuple[Array, Array]:
        inside, outside = ball_masses(*self._balls_without(threshold), self.dimension - 1)
        return inside @ self.weights, outside @ self.weights

    def _with_record(self, threshold: Array) -> tuple[Array, Array]:
        inside, outside = ball_masses(*self._balls_with(threshold), self.dimension - 1)
        return inside @ self.weights, outside @ self.weights

    def far_delta(self, epsilon: Array) -> Array:
        """Delta as the integrated tail; only balls that are neither empty nor full are computed."""

        def above(loss: Array) -> Array:
            return ball_mass(*self._balls_with(loss), self.dimension - 1) @ self.weights

        return integrated_delta(above, epsilon, self.error)

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta of the exchanged pair, as the integrated tail."""

        def below(loss: Array) -> Array:
            return ball_mass(*self._balls_without(-loss), self.dimension - 1, outside=True) @ self.weights

        return integrated_delta(below, epsilon, self.error)

    def log_moment(self, z: Array) -> Array:
        """``ln E_without e^(z loss)``, in closed form."""
        return pair_log_moment(z, self.dimension, self.scales, self.shifts, self.weights)

    def compose(self, times: int) -> SummedLaw | None:
        """Composition by contour integrals of the closed-form moments; None if they decay too slowly."""
        lowest = -float((self.scales**2 / self._gap).min())
        return summed(SummedLaw(log_moment=self.log_moment, lowest=lowest, times=times, lost=self.lost))


def variance_pair_law(*, dimension: int, scale: float, shift: float) -> LossLaw:
    """Law of ``variance_pair``."""
    if scale == 1:
        if shift == 0:
            return no_leak()
        return GaussianLaw(mu=abs(shift))
    if scale > 1:
        return Reversed(variance_pair_law(dimension=dimension, scale=1 / scale, shift=abs(shift) / scale))
    if shift == 0:
        return VariancePairLaw(degrees=dimension, scale=scale)
    return ShiftedPairLaw(
        dimension=dimension, scales=np.array([scale]), shifts=np.array([abs(shift)]), weights=np.ones(1)
    )


@checked
def variance_pair(
    *, dimension: Count, scale: Positive, shift: Finite = 0.0, relation: Relation = "add_remove"
) -> Claim:
    """N(0, I) against N(shift e, scale^2 I) in ``dimension`` coordinates.

    For scale s < 1 the loss decreases in ``|x - c e|^2``, c = shift/(1-s^2), a noncentral chi-square:
    ``f(a) = ncx2.sf(ncx2.ppf(a; n, c^2)/s^2; n, s^2 c^2)``. Without a shift it is evaluated so; with one,
    the same law is integrated over the coordinate along e, because c explodes as s approaches 1.
    The curve decreases in |shift| at every point: moving the best test's ball together with the second mean
    keeps its power and, by Anderson's inequality, lowers its level. [wang2026, theorem 3.4 for one coordinate]

    What this one pair leaks. With a shift the numerical error is estimated, not proved.

    Args:
      dimension: n, coordinates, at least 1.
      scale: s, standard deviation with the record over that without it, above 0 and finite.
      shift: distance of the two means, in standard deviations of the noise without the record; finite.
      relation: which neighbours the curve is for.

    Returns:
      The claim, for one step.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.variance_pair(dimension=100, scale=0.9).total_variation, 3)
      0.543
    """
    return Claim(
        curve=TradeOff(variance_pair_law(dimension=dimension, scale=scale, shift=shift)),
        name="variance_pair",
        parameters={"dimension": dimension, "scale": scale, "shift": shift} | unusual(relation, "add_remove"),
        relation=relation,
        source="wang2026, table 1",
    )
