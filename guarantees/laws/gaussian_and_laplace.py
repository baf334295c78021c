"""Laws of textbook mechanisms, in closed form."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from guarantees.answers import answers
from guarantees.checks import require
from guarantees.laws.consistency import defect_at
from guarantees.laws.discrete_law import DiscreteLaw, no_leak
from guarantees.laws.large_losses import LARGE
from guarantees.laws.law import LossLaw, Tails
from guarantees.numerics.array import Array
from guarantees.vocabulary import Relation

LARGEST_MU = 1e8
"""Largest mu accepted: losses reach ``mu^2``, and floats resolve 1e16 only to 2."""


SHORT = 0.1
"""Shifts below this are integrated over, which keeps digits that a difference would lose."""
FARTHEST = 1e3
"""Deviation beyond which normal densities and tails are zero."""
NODES, WEIGHTS = (np.polynomial.legendre.leggauss(6)[place] / 2 + (0.5 if place == 0 else 0.0) for place in (0, 1))
"""Gauss's rule on [0, 1]."""

ROUNDING = 2e-16
"""Rounding error of a rate per unit of mu: that much the cut of a test is rounded."""


def rounded_to(mu: float, error: float) -> float:
    """The error with rounding at a large mu added; refused if the noise hides nothing."""
    if mu > LARGEST_MU:
        raise ValueError(
            f"mu (1 / noise_multiplier, times the root of the number of releases) must be at most {LARGEST_MU:g}, "
            f"got {mu:g}: such noise hides nothing, and floats do not resolve its epsilon."
        )
    return max(error, ROUNDING * mu)


def normal_density(x: Array) -> Array:
    """The density of N(0, 1)."""
    return np.exp(-np.square(np.minimum(np.abs(x), 1e9)) / 2) / np.sqrt(2 * np.pi)


def mills_ratio(x: Array) -> Array:
    """The upper tail of N(0, 1) over its density, for x >= 0."""
    return np.sqrt(np.pi / 2) * erfcx(np.maximum(x, 0.0) / np.sqrt(2.0))


def gain(x: Array, shift: Array | float) -> Array:
    """``phi(x - shift) (m(x - shift) - m(x))`` with m Mills' ratio, for ``x >= 0``: what the record's side has more.

    That is ``P(X > x - shift) - phi(x - shift)/phi(x) P(X > x)`` of a standard normal X.
    """
    x, shift = np.broadcast_arrays(x, shift)
    value = np.maximum(ndtr(shift - x) - normal_density(x - shift) * mills_ratio(x), 0.0)
    short = shift < SHORT
    value[short] = _short_drop(x[short], shift[short], (x - shift)[short])
    return value


def loss(x: Array, shift: Array | float) -> Array:
    """``phi(x) (m(x - shift) - m(x))``, for any x: what the side without the record has more.

    That is ``phi(x)/phi(x - shift) P(X > x - shift) - P(X > x)``.
    """
    x, shift = np.broadcast_arrays(x, shift)
    value = np.maximum(np.exp(log_ndtr(shift - x) - shift * (x - shift / 2)) - ndtr(-x), 0.0)
    short = shift < SHORT
    value[short] = _short_drop(x[short], shift[short], x[short])
    return value


def _short_drop(x: Array, shift: Array, at: Array) -> Array:
    """``phi(at) int (1 - y m(y)) dy`` from ``x - shift`` to x: a difference of ``m`` that keeps all digits."""
    x, at = (np.clip(number, -FARTHEST, FARTHEST)[..., None] for number in (x, at))
    y = x - shift[..., None] * NODES
    slopes = normal_density(at) - y * np.exp((y - at) * (y + at) / 2) * ndtr(-y)
    return shift * (np.maximum(slopes, 0.0) @ WEIGHTS)


@answers(closed=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianLaw(LossLaw):
    """N(0, 1) against N(mu, 1), seen in a batch with probability ``rate``.

    The loss ``ln(1 - rate + rate exp(mu x - mu^2/2))`` increases in x, so its tails are normal tails.
    """

    mu: float
    rate: float = 1.0
    error: float = 1e-15

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", rounded_to(self.mu, self.error))

    @property
    def support(self) -> tuple[float, float]:
        """The range of the loss, which never falls below ``ln(1 - rate)``."""
        return (float(np.log1p(-self.rate)) if self.rate < 1 else -np.inf), np.inf

    def compose(self, times: int) -> GaussianLaw | None:
        """Composition without sampling, ``mu sqrt(times)``; None with sampling, which has no closed form."""
        return GaussianLaw(mu=self.mu * float(np.sqrt(times))) if self.rate == 1.0 else None

    def _cut(self, threshold: Array) -> Array:
        """The x at which the loss equals the threshold."""
        t = np.asarray(threshold, float)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rate == 1.0:
                exponent = t
            else:
                # ln((e^t - 1 + rate) / rate), through expm1 where t is small and through t where it is large
                ratio = np.expm1(np.minimum(t, 30.0)) / self.rate
                small = np.log1p(np.maximum(ratio, -1.0))
                small = np.where(np.isinf(ratio), np.log(np.expm1(t)) - np.log(self.rate), small)
                large = t - np.log(self.rate) + np.log1p(-(1.0 - self.rate) * np.exp(-np.maximum(t, 1.0)))
                exponent = np.where(t < 30.0, small, large)
            return exponent / self.mu + self.mu / 2

    def defect(self) -> float:
        """Defect seen at a few thresholds."""
        return defect_at(self)

    def tails(self, threshold: Array) -> Tails:
        """Normal tails, mixed at ``rate`` on the side with the record."""
        x = self._cut(threshold)
        always = Tails(
            without_above=ndtr(-x), without_below=ndtr(x), with_above=ndtr(self.mu - x), with_below=ndtr(x - self.mu)
        )
        return always.sampled(self.rate)

    def far_delta(self, epsilon: Array) -> Array:
        """``rate (P(X > x - mu) - phi(x - mu) P(X > x)/phi(x))`` at the cut x, where the densities' ratio is e^eps."""
        return self.rate * gain(self._cut(epsilon), self.mu)

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta of the exchanged pair: without sampling the same, with it the mirror image up to the largest loss."""
        if self.rate == 1.0:
            return self.far_delta(epsilon)
        value = np.zeros(epsilon.shape)
        some = epsilon < -self.support[0]
        value[some] = self.rate * np.exp(epsilon[some]) * loss(self.mu - self._cut(-epsilon[some]), self.mu)
        return value

    def threshold(self, alpha: Array) -> Array:
        """The loss at the normal quantile, in closed form."""
        x = -ndtri(np.asarray(alpha, float))
        shift = self.mu * x - self.mu**2 / 2
        if self.rate == 1.0:
            return shift
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + shift)


@answers(closed=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SubstitutedGaussianLaw(LossLaw):
    """N(0, 1) mixed at ``rate`` with N(-mu, 1), against the same mixed with N(mu, 1): one record for another.

    The loss ``ln((A + B u) / (A + B / u))``, ``u = e^(mu x)``, ``A = 1 - rate``, ``B = rate e^(-mu^2/2)``,
    increases in x and is odd; solving it for u is a quadratic equation.
    """

    mu: float
    rate: float
    error: float = 1e-15

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", rounded_to(self.mu, self.error))

    def _cut(self, threshold: Array) -> Array:
        """The x at which the loss equals the threshold."""
        t = np.abs(np.asarray(threshold, float))
        log_a, log_b = np.log1p(-self.rate), np.log(self.rate) - self.mu**2 / 2
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # ln u, with both terms of the root's numerator as logarithms: neither overflows.
            linear = log_a + np.log(-np.expm1(-t)) + t
            root = 0.5 * np.logaddexp(2 * linear, np.log(4.0) + 2 * log_b + t)
            log_u = np.logaddexp(linear, root) - np.log(2.0) - log_b
            # the same without a difference of logarithms, of which little is left where mu is small
            odd = np.exp(log_a - log_b) * np.sinh(np.minimum(t, LARGE) / 2)
            fine = (self.mu < SHORT) & (t <= LARGE) & np.isfinite(odd)
            log_u = np.where(fine, t / 2 + np.arcsinh(odd), log_u)
        log_u = np.where(np.isinf(t), np.inf, log_u)
        return np.sign(threshold) * log_u / self.mu

    def defect(self) -> float:
        """Defect seen at a few thresholds."""
        return defect_at(self)

    def tails(self, threshold: Array) -> Tails:
        """Normal tails mixed on both sides."""
        x = self._cut(threshold)

        def mixed(side: Array, shift: float) -> Array:
            return (1 - self.rate) * ndtr(side) + self.rate * ndtr(side + shift)

        return Tails(
            without_above=mixed(-x, -self.mu),
            without_below=mixed(x, self.mu),
            with_above=mixed(-x, self.mu),
            with_below=mixed(x, -self.mu),
        )

    def far_delta(self, epsilon: Array) -> Array:
        """``rate (gain(x) + e^eps loss(x + mu))`` at the cut x: what one record gains there and the other loses."""
        x = self._cut(epsilon)
        with np.errstate(divide="ignore"):
            lost = np.exp(epsilon + np.log(loss(x + self.mu, self.mu)))
        return self.rate * (gain(x, self.mu) + lost)

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta of the exchanged pair: the same, as the pair is its own mirror image."""
        return self.far_delta(epsilon)


@answers(closed=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceLaw(LossLaw):
    """Laplace(0, 1) against Laplace(epsilon, 1): atoms at +-epsilon, exponential between."""

    scale: float
    error: float = 1e-15

    @property
    def support(self) -> tuple[float, float]:
        """The range of the loss, which is bounded by epsilon."""
        return -self.scale, self.scale

    def defect(self) -> float:
        """Defect seen at a few thresholds."""
        return defect_at(self)

    def tails(self, threshold: Array) -> Tails:
        """Tails of the loss ``|x| - |x - epsilon|``."""
        t = np.asarray(threshold, float)
        x = (np.clip(t, -self.scale, self.scale) + self.scale) / 2
        inside0, inside1 = np.exp(-x) / 2, np.exp(x - self.scale) / 2
        above, below = t >= self.scale, t < -self.scale
        return Tails(
            without_above=np.where(above, 0.0, np.where(below, 1.0, inside0)),
            without_below=np.where(above, 1.0, np.where(below, 0.0, 1 - inside0)),
            with_above=np.where(above, 0.0, np.where(below, 1.0, 1 - inside1)),
            with_below=np.where(above, 1.0, np.where(below, 0.0, inside1)),
        )

    def far_delta(self, epsilon: Array) -> Array:
        """Delta in closed form: ``1 - e^((eps - scale)/2)`` below the atom, 0 beyond."""
        return -np.expm1(np.minimum((epsilon - self.scale) / 2, 0.0))

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta of the exchanged pair: the same, as the pair is its own mirror image."""
        return self.far_delta(epsilon)

    def threshold(self, alpha: Array) -> Array:
        """Threshold at a level, in closed form between the atoms."""
        with np.errstate(divide="ignore"):
            x = -np.log(2 * np.asarray(alpha, float))
        return np.clip(2 * x - self.scale, -self.scale, self.scale)


def gaussian_law(mu: float) -> LossLaw:
    """mu-GDP, also at 0 (perfect privacy) and infinity (none)."""
    if mu == 0:
        return no_leak()
    if np.isinf(mu):
        return DiscreteLaw(np.array([-np.inf, np.inf]), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    return GaussianLaw(mu=mu)


def gaussian_delta(epsilon: Array | float, mu: Array | float) -> Array:
    """``Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)``, any sign of epsilon."""
    e = np.asarray(epsilon, float)
    return np.maximum(ndtr(mu / 2 - e / mu) - np.exp(e + log_ndtr(-mu / 2 - e / mu)), 0.0)


def sampled_law(*, rate: float, noise_multiplier: float, relation: Relation) -> LossLaw:
    """Law of the worst pair of one Poisson-sampled Gaussian step.

    Add/remove and zero-out neighbours share one pair; under substitution the two records pull in opposite
    directions, at distance 2. [zhu2022, theorem 11; lebeda2025]
    """
    rule = "add_remove, zero_out or substitution (a sampled step has no pair for 'any')"
    require("relation", relation in ("add_remove", "zero_out", "substitution"), rule, relation)
    mu = 1 / noise_multiplier
    if relation != "substitution":
        return GaussianLaw(mu=mu, rate=rate)
    return GaussianLaw(mu=2 * mu) if rate == 1 else SubstitutedGaussianLaw(mu=mu, rate=rate)
