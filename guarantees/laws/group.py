"""The law of a Poisson-sampled Gaussian step between datasets that differ in several records."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import ndtr, ndtri

from guarantees.answers import answers
from guarantees.checks import require
from guarantees.laws.consistency import defect_at
from guarantees.laws.gaussian_and_laplace import GaussianLaw, gain, loss, rounded_to, sampled_law
from guarantees.laws.law import LossLaw, Tails
from guarantees.numerics.array import Array
from guarantees.numerics.distributions import binom
from guarantees.vocabulary import Relation

NEWTON_STEPS = 60
"""Most Newton steps; about ten are enough for this convex function."""


@answers(closed=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupLaw(LossLaw):
    """N(0, 1) against N(J mu, 1) with J binomial(group, rate): how many of the differing records are in the batch.

    The loss ``ln sum_j P(J = j) exp(j mu x - j^2 mu^2 / 2)`` increases in x, so its tails are normal tails.
    """

    mu: float
    rate: float
    group: int
    error: float = 1e-14

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", rounded_to(self.group * self.mu, self.error))

    @property
    def support(self) -> tuple[float, float]:
        """The range of the loss, which never falls below ``ln P(J = 0)``."""
        return (self.group * float(np.log1p(-self.rate)) if self.rate < 1 else -np.inf), np.inf

    def compose(self, times: int) -> GaussianLaw | None:
        """Composition without sampling, where all records are in every batch; None with it: there is no closed form."""
        return GaussianLaw(mu=self.group * self.mu * float(np.sqrt(times))) if self.rate == 1.0 else None

    @property
    def _weights(self) -> Array:
        return binom.pmf(np.arange(self.group + 1), self.group, self.rate)

    def _attended(self, x: Array) -> tuple[Array, Array]:
        """``ln sum_(j >= 1) P(J = j) exp(j mu x - j^2 mu^2 / 2)`` and its slope."""
        j = np.arange(1, self.group + 1)
        with np.errstate(divide="ignore"):
            exponents = np.log(self._weights[1:]) + j * self.mu * x[..., None] - (j * self.mu) ** 2 / 2
        top = exponents.max(axis=-1, keepdims=True)
        terms = np.exp(exponents - top)
        total = terms.sum(axis=-1)
        return top[..., 0] + np.log(total), (terms * j).sum(axis=-1) / total * self.mu

    def _cut(self, threshold: Array) -> Array:
        """The x at which the loss equals the threshold, by Newton's method: convex, so it never turns back."""
        t = np.atleast_1d(np.asarray(threshold, float))
        log_absent = self.group * np.log1p(-self.rate) if self.rate < 1 else -np.inf
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # ln(e^t - P(J = 0)): through expm1 where both are near 1, else through their ratio, which keeps small ones
            small = np.log(np.maximum(np.expm1(np.minimum(t, 30.0)) - np.expm1(log_absent), 0.0))
            ratio = t + np.log1p(-np.exp(np.minimum(log_absent - t, 0.0)))
            goal = np.where((t < 30.0) & (log_absent > -1.0), small, np.where(t > log_absent, ratio, -np.inf))
        x = np.where(goal > 0, np.inf, -np.inf)
        finite = np.isfinite(goal)
        wanted = goal[finite]
        # one term alone is at most the sum: its crossing lies right of the one sought; the last ones may underflow
        last = int(np.flatnonzero(self._weights)[-1])
        at = (wanted - np.log(self._weights[last])) / (last * self.mu) + last * self.mu / 2
        for _ in range(NEWTON_STEPS):
            value, slope = self._attended(at)
            step = (value - wanted) / slope
            at = at - step
            # quadratic convergence: the step after one so small is below rounding
            if np.all(np.abs(step) <= 1e-9 * np.maximum(1.0, np.abs(at))):
                break
        x[finite] = at
        return x.reshape(np.shape(threshold))

    def defect(self) -> float:
        """Defect seen at a few thresholds."""
        return defect_at(self)

    def tails(self, threshold: Array) -> Tails:
        """Normal tails, mixed over the number of records on the side with them."""
        x = self._cut(threshold)
        shifts = np.arange(self.group + 1) * self.mu
        return Tails(
            without_above=ndtr(-x),
            without_below=ndtr(x),
            with_above=ndtr(shifts - x[..., None]) @ self._weights,
            with_below=ndtr(x[..., None] - shifts) @ self._weights,
        )

    def far_delta(self, epsilon: Array) -> Array:
        """Delta as for one record, averaged over the number of differing records in the batch."""
        return gain(self._cut(epsilon)[..., None], self._shifts) @ self._weights[1:]

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta of the exchanged pair; only a large group that is nearly always sampled has such large losses."""
        losses = loss(self._shifts - self._cut(-epsilon)[..., None], self._shifts)
        with np.errstate(divide="ignore"):
            log_weights = binom.logpmf(np.arange(1, self.group + 1), self.group, self.rate)
            return np.exp(log_weights + np.log(losses) + epsilon[..., None]).sum(axis=-1)

    @property
    def _shifts(self) -> Array:
        """Mean of the output for each possible number of differing records in the batch."""
        return np.arange(1, self.group + 1) * self.mu

    def threshold(self, alpha: Array) -> Array:
        """The loss at the normal quantile, in closed form."""
        x = -ndtri(np.asarray(alpha, float))
        attended = np.where(x > 0, np.inf, -np.inf)
        finite = np.isfinite(x)
        attended[finite] = self._attended(x[finite])[0]
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log(self._weights[0]), attended)


def group_law(*, rate: float, noise_multiplier: float, group: int, relation: Relation) -> LossLaw:
    """Law of the worst pair of one Poisson-sampled Gaussian step if ``group`` records differ.

    All of them pull in one direction, and the batch holds a binomial number of them. [ganesh2024]
    """
    require("group", isinstance(group, int) and group >= 1, "an integer >= 1", group)
    if group == 1:
        return sampled_law(rate=rate, noise_multiplier=noise_multiplier, relation=relation)
    rule = "add_remove or zero_out for groups (for substitution no tight pair is proved)"
    require("relation", relation in ("add_remove", "zero_out"), rule, relation)
    if rate == 1:
        return GaussianLaw(mu=group / noise_multiplier)
    return GroupLaw(mu=1 / noise_multiplier, rate=rate, group=group)
