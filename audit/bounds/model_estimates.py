"""Estimates for those who accept a model of the scores. Never part of a verdict or an exit code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from audit.bounds.clopper_pearson import require_risk
from guarantees.checks import require
from guarantees.families import closed_form as families
from guarantees.numerics.array import Array
from guarantees.numerics.distributions import chi2, fisher, nct, norm
from guarantees.numerics.root import root
from guarantees.numerics.rounding import at_least

FEWEST = 20
"""Scores per side below which the checks of the model have no meaning."""
FARTHEST = 13.0
"""Statistic of Anderson and Darling from which the p-value (4e-31 here) is said to be 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """Checks of a model on the scores, each with its p-value; together they refuse a true model at ``risk``."""

    checks: Mapping[str, float]
    risk: float

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that contradict the model."""
        return tuple(name for name, p in self.checks.items() if p < self.risk / len(self.checks))

    @property
    def passed(self) -> bool:
        """Whether nothing contradicted the model, which does not show that it holds."""
        return not self.failed


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelEstimate:
    """What would follow if the scores came from a family; ``epsilon`` is None where the scores contradict it."""

    family: str
    epsilon: float | None
    mu: float | None
    """Lower limit on the shift in standard deviations."""
    delta: float
    risk: float
    scores: int
    gate: Gate
    assumption_free: float

    @property
    def wording(self) -> str:
        """The only words in which this estimate may be shown."""
        free = f"the assumption-free bound on the same data is {at_least(self.assumption_free)}."
        if self.epsilon is None:
            reasons = ", ".join(f"{name} p = {self.gate.checks[name]:.1e}" for name in self.gate.failed)
            return f"{self.scores:,} scores contradict {self.family} ({reasons}), so it gives no estimate; {free}"
        epsilon = at_least(self.epsilon)
        return (
            f"IF the scores follow {self.family} exactly, also beyond the data, then epsilon >= {epsilon} "
            f"(delta {self.delta:g}, risk {self.risk:g}); {self.scores:,} scores did not contradict {self.family}; "
            f"this does not show that {self.family} holds; {free}"
        )


def gaussian_shift(
    without: ArrayLike,
    with_record: ArrayLike,
    *,
    delta: float,
    risk: float,
    assumption_free: float,
    gate_risk: float = 0.05,
) -> ModelEstimate:
    """Epsilon if both sides are normal with one variance and different means.

    ``t = (mean1 - mean0) / (s sqrt(1/n0 + 1/n1))`` has a noncentral t law whose parameter is
    ``mu / sqrt(1/n0 + 1/n1)``; its lower limit gives mu and, through the Gaussian curve, epsilon.
    [johnson1940; docs/validity.md, section 7]

    Says nothing if the model is wrong, and a contamination that the gate misses can make it too large: 1% of scores
    with 1.3 times the deviation pass the gate at 1e5 scores per side.
    """
    sides = _sides(without, with_record)
    _border(delta, risk, gate_risk)
    n0, n1 = sides[0].size, sides[1].size
    spread = np.sqrt(1 / n0 + 1 / n1)
    squares = sum(float(np.sum((side - side.mean()) ** 2)) for side in sides)
    freedom = n0 + n1 - 2
    statistic = float((sides[1].mean() - sides[0].mean()) / (np.sqrt(squares / freedom) * spread))
    mu = max(0.0, _noncentrality(statistic, freedom, risk) * spread)
    ratio = float(np.var(sides[1], ddof=1) / np.var(sides[0], ddof=1))
    checks = {"equal variances": _two_sided(fisher.sf(ratio, n1 - 1, n0 - 1))}
    for name, side in zip(("without", "with"), sides, strict=True):
        checks |= _normality((side - side.mean()) / side.std(ddof=1), name)
    gate = Gate(checks=checks, risk=gate_risk)
    epsilon = float(families.gaussian(mu=mu).epsilon(delta)) if mu > 0 else 0.0
    return ModelEstimate(
        family="the Gaussian shift family",
        epsilon=epsilon if gate.passed else None,
        mu=mu if gate.passed else None,
        delta=delta,
        risk=risk,
        scores=n0 + n1,
        gate=gate,
        assumption_free=assumption_free,
    )


def subsampled_gaussian(
    without: ArrayLike,
    with_record: ArrayLike,
    *,
    rate: float,
    delta: float,
    risk: float,
    assumption_free: float,
    shift: float = 1.0,
    gate_risk: float = 0.05,
) -> ModelEstimate:
    """Epsilon if scores are N(0, s^2) without and, with the record, shifted with the known probability ``rate``.

    ``shift`` is known too (the clipping norm in the score's unit); only s is estimated:
    ``s_U^2 = sum(scores_without^2) / chi2.ppf(risk, n0)``. [docs/validity.md, section 7]

    Says nothing if the model, the rate or the shift is wrong.
    """
    sides = _sides(without, with_record)
    _border(delta, risk, gate_risk)
    require("rate", 0 < rate <= 1, "in (0, 1]", rate)
    require("shift", shift > 0 and np.isfinite(shift), "> 0 and finite", shift)
    n0, n1 = sides[0].size, sides[1].size
    squares = float(np.sum(sides[0] ** 2))
    scale, upper = np.sqrt(squares / n0), np.sqrt(squares / chi2.ppf(risk, n0))
    low = (1 - rate) * ndtr(sides[1] / scale) + rate * ndtr((sides[1] - shift) / scale)
    high = (1 - rate) * ndtr(-sides[1] / scale) + rate * ndtr((shift - sides[1]) / scale)
    # Normal scores of the model's own distribution function, from whichever tail is the smaller.
    normal = np.where(low < high, ndtri(low), -ndtri(high))
    checks = {
        "centred without": _two_sided(norm.sf(np.mean(sides[0]) * np.sqrt(n0) / scale)),
        "centred with": _two_sided(norm.sf(np.mean(normal) * np.sqrt(n1))),
        "spread with": _two_sided(fisher.sf(np.mean(normal**2), n1, n0)),
        **_normality(sides[0] / scale, "without"),
        **_normality(normal, "with"),
    }
    gate = Gate(checks=checks, risk=gate_risk)
    claim = families.subsampled_gaussian(rate=rate, noise_multiplier=float(upper / shift))
    return ModelEstimate(
        family=f"the subsampled Gaussian family with rate {rate:g}",
        epsilon=float(claim.epsilon(delta)) if gate.passed else None,
        mu=float(shift / upper) if gate.passed else None,
        delta=delta,
        risk=risk,
        scores=n0 + n1,
        gate=gate,
        assumption_free=assumption_free,
    )


def _sides(without: ArrayLike, with_record: ArrayLike) -> tuple[Array, Array]:
    sides = np.ravel(np.asarray(without, float)), np.ravel(np.asarray(with_record, float))
    for name, side in zip(("without", "with_record"), sides, strict=True):
        require(name, side.size >= FEWEST, f"at least {FEWEST} scores", side.size)
        require(name, bool(np.all(np.isfinite(side))) and np.ptp(side) > 0, "finite and not constant", name)
    return sides


def _border(delta: float, risk: float, gate_risk: float) -> None:
    require("delta", 0 < delta < 1, "in (0, 1)", delta)
    require_risk(risk)
    require("gate_risk", 0 < gate_risk < 1, "in (0, 1)", gate_risk)


def _noncentrality(statistic: float, freedom: int, risk: float) -> float:
    """Lower limit on the parameter of a noncentral t law: ``P{T >= statistic} = risk`` there."""
    reach = 10 * np.sqrt(1 + statistic**2 / (2 * freedom)) * max(1.0, float(norm.isf(risk)))

    def excess(parameter: float) -> float:
        return float(nct.sf(statistic, freedom, parameter)) - risk

    return root(excess, statistic - reach, statistic + reach, absolute=1e-9)


def _two_sided(upper_tail: ArrayLike) -> float:
    tail = float(np.asarray(upper_tail))
    return 2 * min(tail, 1 - tail)


def _normality(z: Array, side: str) -> dict[str, float]:
    """P-values of Anderson-Darling, skewness, kurtosis and the largest deviate of standardised scores."""
    from scipy.stats import kurtosistest, skewtest

    largest = float(np.max(np.abs(z)))
    return {
        f"Anderson-Darling {side}": _anderson_darling(z),
        f"skewness {side}": float(skewtest(z).pvalue),
        f"kurtosis {side}": float(kurtosistest(z).pvalue),
        f"largest {side}": float(-np.expm1(z.size * np.log1p(-2 * norm.sf(largest)))),
    }


def _anderson_darling(z: Array) -> float:
    """P-value of the test for normality with mean and variance estimated: table 4.9 of [dagostino1986]."""
    n, ordered = z.size, np.sort((z - z.mean()) / z.std(ddof=1))
    weights = (2 * np.arange(1, n + 1) - 1) / n
    found = -n - float(weights @ (log_ndtr(ordered) + log_ndtr(-ordered[::-1])))
    a = found * (1 + 0.75 / n + 2.25 / n**2)
    if a < 0.2:
        return -math.expm1(-13.436 + 101.14 * a - 223.73 * a**2)
    if a < 0.34:
        return -math.expm1(-8.318 + 42.796 * a - 59.938 * a**2)
    if a < 0.6:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    # the table's parabola turns upwards far beyond its last entry
    return math.exp(1.2937 - 5.709 * a + 0.0186 * a**2) if a <= FARTHEST else 0.0
