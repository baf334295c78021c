"""Clopper-Pearson limits on error rates, and the lower bounds on epsilon, delta and mu that follow."""

from __future__ import annotations

import dataclasses
import math
import operator

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv, ndtri

from guarantees.checks import Delta, NotNegative, Share, checked, require


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorCounts:
    """How often a fixed test erred. Integers only: a rate cannot be turned back into a count.

    Args:
      false_alarms: times the test said 'with' on an output drawn without the record.
      trials_without: outputs drawn without it.
      misses: times the test said 'without' on an output drawn with the record.
      trials_with: outputs drawn with it.

    Raises:
      ValueError: a count is negative, not a whole number, or larger than its trials.

    Examples:
      >>> import audit
      >>> counts = audit.ErrorCounts(false_alarms=3, trials_without=1000, misses=400, trials_with=1000)
      >>> counts.misses
      400
    """

    false_alarms: int
    trials_without: int
    misses: int
    trials_with: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            try:
                object.__setattr__(self, field.name, operator.index(value))
            except TypeError:
                raise TypeError(
                    f"{field.name} must be an integer count, got {value!r}; a rate cannot be turned back into one."
                ) from None
        require("false_alarms", 0 <= self.false_alarms <= self.trials_without, "in 0..trials_without", self)
        require("misses", 0 <= self.misses <= self.trials_with, "in 0..trials_with", self)
        require("trials_without", self.trials_without > 0, "> 0", self.trials_without)
        require("trials_with", self.trials_with > 0, "> 0", self.trials_with)

    @property
    def rates(self) -> tuple[float, float]:
        """Shares of trials that were false alarms and misses: estimates, not bounds."""
        return self.false_alarms / self.trials_without, self.misses / self.trials_with


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper limits on both error rates of one test: a proven point of the trade-off plane."""

    alpha: float
    beta: float


def require_risk(risk: float) -> None:
    """Refuse a risk that is not strictly between 0 and 1."""
    require("risk", 0 < risk < 1, "in (0, 1)", risk)


def clopper_pearson_upper(errors: ArrayLike, trials: ArrayLike, *, risk: ArrayLike) -> np.ndarray:
    """Upper limit on an error rate, exceeded by the truth with probability at most ``risk``. [clopper1934]

    ``P{Bin(n, p) <= k} = risk`` at the limit p: the upper quantile of Beta(k + 1, n - k); 1 where every trial erred.
    """
    k, n = np.asarray(errors, float), np.asarray(trials, float)
    found = betainccinv(k + 1, np.maximum(n - k, 1), risk)
    # below risks of 1e-100 the quantile is not always found: then nothing is said
    return np.where((k >= n) | np.isnan(found), 1.0, found)


def clopper_pearson_lower(errors: ArrayLike, trials: ArrayLike, *, risk: ArrayLike) -> np.ndarray:
    """Lower limit on an error rate, above the truth with probability at most ``risk``; 0 where no trial erred."""
    k, n = np.asarray(errors, float), np.asarray(trials, float)
    found = betaincinv(np.maximum(k, 1), n - k + 1, risk)
    return np.where((k <= 0) | np.isnan(found), 0.0, found)


def clopper_pearson_interval(errors: int, trials: int, risk: float) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval at this risk. [clopper1934]"""
    low = clopper_pearson_lower(errors, trials, risk=risk / 2)
    return float(low), float(clopper_pearson_upper(errors, trials, risk=risk / 2))


def limits(counts: ErrorCounts, *, risk: float) -> Limits:
    """Upper limits on alpha and beta, at half of the risk each: they hold together but with probability ``risk``."""
    require_risk(risk)
    return Limits(
        alpha=float(clopper_pearson_upper(counts.false_alarms, counts.trials_without, risk=risk / 2)),
        beta=float(clopper_pearson_upper(counts.misses, counts.trials_with, risk=risk / 2)),
    )


def epsilon_at(point: Limits, *, delta: float) -> tuple[float, float]:
    """Epsilon that a proven point implies: (with given without, without given with), at least 0 each.

    ``1 - beta <= exp(epsilon) alpha + delta`` and ``1 - alpha <= exp(epsilon) beta + delta``.
    [wang2026, equation 2]
    """

    def ratio(power: float, error: float) -> float:
        excess = power - delta
        if excess <= 0:
            return 0.0
        return math.inf if error == 0 else max(0.0, math.log(excess / error))

    return ratio(1 - point.beta, point.alpha), ratio(1 - point.alpha, point.beta)


def delta_at(point: Limits, *, epsilon: float) -> tuple[float, float]:
    """Delta that a proven point implies, in the same two directions. [wang2026, equation 3]"""
    scale = math.exp(epsilon)
    return (
        max(0.0, 1 - point.beta - scale * point.alpha),
        max(0.0, 1 - point.alpha - scale * point.beta),
    )


def mu_at(point: Limits) -> float:
    """Largest mu whose Gaussian trade-off curve passes through or above a proven point."""
    return max(0.0, float(-ndtri(point.alpha) - ndtri(point.beta)))


@checked
def epsilon_lower_bound(counts: ErrorCounts, *, delta: Delta, risk: Share) -> float:
    """Largest epsilon that the error counts rule out, at the given risk.

    Any (epsilon, delta)-DP mechanism has ``1 - beta <= exp(epsilon) * alpha + delta`` for every test; both rates are
    replaced by Clopper-Pearson upper limits, at half of the risk each. [nasr2023; clopper1934]

    Holds for one test fixed before these trials were drawn. Zero means "nothing shown", not "private".

    Args:
      counts: errors of the test on trials that were not used to choose it.
      delta: the delta at which epsilon is asked, in [0, 1).
      risk: probability that the returned value exceeds the truth, in (0, 1).

    Returns:
      Epsilon, at least 0.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import audit
      >>> counts = audit.ErrorCounts(false_alarms=3, trials_without=1000, misses=400, trials_with=1000)
      >>> round(audit.epsilon_lower_bound(counts, delta=1e-5, risk=0.05), 2)
      4.18
    """
    return max(epsilon_at(limits(counts, risk=risk), delta=delta))


@checked
def delta_lower_bound(counts: ErrorCounts, *, epsilon: NotNegative, risk: Share) -> float:
    """Largest delta at ``epsilon`` that the error counts rule out, at the given risk.

    Holds for one test fixed before these trials were drawn. Zero means "nothing shown", not "private".

    Args:
      counts: errors of the test on trials that were not used to choose it.
      epsilon: the epsilon at which delta is asked, at least 0.
      risk: probability that the returned value exceeds the truth, in (0, 1).

    Returns:
      Delta, at least 0.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import audit
      >>> counts = audit.ErrorCounts(false_alarms=3, trials_without=1000, misses=400, trials_with=1000)
      >>> round(audit.delta_lower_bound(counts, epsilon=0.0, risk=0.05), 2)
      0.56
    """
    return max(delta_at(limits(counts, risk=risk), epsilon=epsilon))


@checked
def mu_lower_bound(counts: ErrorCounts, *, risk: Share) -> float:
    """Largest mu such that mu-GDP is ruled out, at the given risk. [nasr2023]

    Holds for one test fixed before these trials were drawn. Zero means "nothing shown", not "private".

    Args:
      counts: errors of the test on trials that were not used to choose it.
      risk: probability that the returned value exceeds the truth, in (0, 1).

    Returns:
      Mu, at least 0.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import audit
      >>> counts = audit.ErrorCounts(false_alarms=3, trials_without=1000, misses=400, trials_with=1000)
      >>> round(audit.mu_lower_bound(counts, risk=0.05), 2)
      2.55
    """
    return mu_at(limits(counts, risk=risk))
