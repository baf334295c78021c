"""The test that looks only at the largest coordinate: a closed-form curve above the truth."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from guarantees.checks import AboveZero, Count, checked
from guarantees.claim import Claim
from guarantees.laws.consistency import defect_at
from guarantees.laws.law import Certificate, LossLaw, Tails
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff

FARTHEST_CUT = 45.0
"""Largest cut in deviations of the noise: a normal is larger with probability 1e-441."""
RARE = 1e-11
"""If the maximum is exceeded less often than this, it is by one coordinate alone, up to this share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LargestCoordinateLaw(LossLaw):
    """The largest of ``rounds`` standard normals of which one is shifted: by more with the record than without.

    The likelihood ratio of the maximum increases in it, so its best tests are 'maximum > cut' and the slope of the
    curve at a cut is minus the ratio there. (Without a shift on the other side:
    ``(e^(s x - s^2/2) + (M-1) Phi(x-s)/Phi(x)) / M``, both increasing; otherwise seen numerically only, and where
    it failed the curve would still be one that the maximum attains.) A positive ``cut_step`` allows only the cuts
    that are its multiples: the curve through their points.
    """

    rounds: int
    with_shift: float
    without_shift: float = 0.0
    cut_step: float = 0.0
    error: float = 1e-13

    @property
    def certificate(self) -> Certificate | None:
        """A closed form; with a shift or few cuts on the other side, only a proof that the maximum leaks this much."""
        if self.without_shift == 0 and self.cut_step == 0:
            return None
        return Certificate(
            proved="every point is attained by tests on the maximum", estimated="rounding", round_off=1e-13, leaked=self
        )

    def defect(self) -> float:
        """Defect seen at a few thresholds."""
        return defect_at(self)

    def _log_below(self, cut: Array, shift: float) -> Array:
        """``ln P(max <= cut) = ln Phi(cut - shift) + (M-1) ln Phi(cut)``."""
        others = float(self.rounds - 1) * log_ndtr(cut) if self.rounds > 1 else 0.0
        return log_ndtr(cut - shift) + others

    def _log_above(self, cut: Array, shift: float) -> Array:
        """``ln P(max > cut)``; where the probability underflows, from the sum over all coordinates."""
        below = self._log_below(cut, shift)
        each = log_ndtr(shift - cut)
        if self.rounds > 1:
            each = np.logaddexp(each, np.log(float(self.rounds - 1)) + log_ndtr(-cut))
        with np.errstate(divide="ignore"):
            return np.where(below > -RARE, each, np.log(-np.expm1(below)))

    def _log_density(self, cut: Array, shift: float) -> Array:
        """Log density of the maximum without ``(M-1) ln Phi(cut)``: one hazard per coordinate, the shifted apart."""
        own = -((cut - shift) ** 2) / 2
        if self.rounds > 1:
            others = np.log(float(self.rounds - 1)) - cut**2 / 2 - log_ndtr(cut) + log_ndtr(cut - shift)
            own = np.logaddexp(own, others)
        return own

    def loss(self, cut: Array) -> Array:
        """Log-likelihood ratio of the maximum."""
        return self._log_density(cut, self.with_shift) - self._log_density(cut, self.without_shift)

    def cut(self, threshold: Array) -> Array:
        """The maximum at which the loss equals the threshold."""
        # Beyond these cuts no tail is above 1e-300; what the loss is there does not matter.
        end = FARTHEST_CUT + 2 * self.with_shift
        low, high = self.loss(np.array([-end, end]))
        t = np.clip(np.asarray(threshold, float), low, high)
        reach = np.full(t.shape, end)
        with np.errstate(invalid="ignore"):
            found = _find_root(
                lambda x, goal: self.loss(x) - goal,
                (-reach, reach),
                args=(t,),
                tolerances={"xatol": 1e-13, "xrtol": 1e-14},
            )
        return np.where(np.isinf(threshold), threshold, self._allowed(found.x, t))

    def _allowed(self, cut: Array, threshold: Array) -> Array:
        """The better of the two allowed cuts next to the best one."""
        if self.cut_step == 0:
            return cut
        lower = np.floor(cut / self.cut_step) * self.cut_step
        upper = lower + self.cut_step

        def gain(x: Array) -> Array:
            # Up to a factor and a constant the same; the second keeps its digits where both maxima lie above.
            without, with_record = self._log_below(x, self.without_shift), self._log_below(x, self.with_shift)
            above = -np.expm1(with_record) - np.exp(np.minimum(threshold + self._log_above(x, self.without_shift), 700))
            below = np.exp(without) - np.exp(np.minimum(with_record - threshold, 700))
            return np.where(threshold > 0, above, below)

        with np.errstate(divide="ignore"):
            return np.where(gain(upper) > gain(lower), upper, lower)

    def tails(self, threshold: Array) -> Tails:
        """Tails of the maximum at the cut that belongs to the threshold."""
        cut = self.cut(np.asarray(threshold, float))
        without, with_record = self._log_below(cut, self.without_shift), self._log_below(cut, self.with_shift)
        return Tails(
            without_above=-np.expm1(without),
            without_below=np.exp(without),
            with_above=-np.expm1(with_record),
            with_below=np.exp(with_record),
        )

    def far_delta(self, epsilon: Array) -> Array:
        """``P_with(max > cut) - e^eps P_without(max > cut)`` at the cut that belongs to epsilon."""
        cut = self.cut(epsilon)
        lost = np.exp(np.minimum(epsilon + self._log_above(cut, self.without_shift), 0.0))
        return np.maximum(-np.expm1(self._log_below(cut, self.with_shift)) - lost, 0.0)

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """``P_without(max <= cut) - e^eps P_with(max <= cut)`` at the cut that belongs to epsilon."""
        cut = self.cut(-epsilon)
        lost = np.exp(np.minimum(epsilon + self._log_below(cut, self.with_shift), 0.0))
        return np.maximum(np.exp(self._log_below(cut, self.without_shift)) - lost, 0.0)

    def threshold(self, alpha: Array) -> Array:
        """Threshold at a level: in closed form if nothing is shifted without the record, else a searched cut."""
        alpha = np.asarray(alpha, float)
        level = np.clip(alpha, 1e-300, 1 - 1e-16)
        cut = -ndtri(-np.expm1(np.log1p(-level) / float(self.rounds)))
        if self.without_shift > 0:
            found = _find_root(
                lambda x, goal: self._log_below(x, self.without_shift) - np.log1p(-goal),
                (cut - 1e-9, cut + self.without_shift + 1e-9),
                args=(level,),
                tolerances={"xatol": 1e-13, "xrtol": 1e-14},
            )
            cut = found.x
        slope = self.loss(cut) if self.cut_step == 0 else self._chord(cut)
        return np.where(alpha <= 0, np.inf, np.where(alpha >= 1, -np.inf, slope))

    def _chord(self, cut: Array) -> Array:
        """Log slope of the line through the two allowed points around a cut."""
        lower = np.floor(cut / self.cut_step) * self.cut_step

        def log_mass(shift: float) -> Array:
            low, high = self._log_below(lower, shift), self._log_below(lower + self.cut_step, shift)
            return high + np.log(-np.expm1(np.minimum(low - high, -1e-300)))

        return log_mass(self.with_shift) - log_mass(self.without_shift)


@checked
def max_coordinate(*, rounds: Count, noise_multiplier: AboveZero) -> Claim:
    """What the largest coordinate alone reveals about the 0/1 pair. [ertan2026, equation 17]

    ``f_sub(a) = Phi(Phi^-1((1-a)^(1/M)) - 1/sigma) (1-a)^((M-1)/M)``. An upper bound of the true curve (a test the
    adversary can run), not a guarantee.

    Args:
      rounds: M, batches in one epoch, at least 1.
      noise_multiplier: sigma, standard deviation of the noise over the clipping norm, above 0.

    Returns:
      The claim, for one epoch and zero_out neighbours.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.max_coordinate(rounds=10, noise_multiplier=1.0).delta(1.0), 4)
      0.0021
    """
    return Claim(
        curve=TradeOff(LargestCoordinateLaw(rounds=rounds, with_shift=1 / noise_multiplier)),
        name="max_coordinate",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier},
        relation="zero_out",
        unit="epoch",
        steps=int(rounds),
        observation="the largest of the rounds' isolated projections (0/1 pair): a leak at least, not a guarantee",
        source="ertan2026, equation 17",
    )


@checked
def fixed_point_separation(*, rounds: Count, noise_multiplier: AboveZero) -> float:
    """``(1 - 2a)/sqrt 2`` at ``f_sub(a) = a``: lemma 5.3 used where it does not hold. [ertan2026]

    f_sub is not symmetric, so this is smaller than its separation, ``max_coordinate(...).separation``.
    """
    law = LargestCoordinateLaw(rounds=rounds, with_shift=1 / noise_multiplier)

    def gap(cut: Array) -> Array:
        above = -np.expm1(rounds * log_ndtr(cut))
        return above - ndtr(cut - law.with_shift) * np.exp((rounds - 1) * log_ndtr(cut))

    cut = _find_root(gap, (np.array(-40.0), np.array(40.0 + law.with_shift))).x
    return float((1 + 2 * np.expm1(rounds * log_ndtr(cut))) / np.sqrt(2))


def _find_root(*arguments: Any, **options: Any) -> Any:
    """SciPy's root search for all entries of an array, imported on first use: that takes a fifth of a second."""
    from scipy.optimize import elementwise

    return elementwise.find_root(*arguments, **options)
