"""How an audit's risk is spent: one budget, made before the trials, that never exceeds the risk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np

from guarantees.checks import require

Statement = Literal["verdict", "epsilon", "delta", "mu", "rest"]
"""The verdict, epsilon at the reported delta, delta at epsilon 0, mu, and every other question."""

WEIGHTS: Mapping[Statement, float] = MappingProxyType(
    {"epsilon": 0.6, "verdict": 0.2, "rest": 0.1, "delta": 0.05, "mu": 0.05}
)
"""By what they buy: epsilon depends on few counts and feels the normal quantile of its share; delta and mu depend on
many and hardly do; the joint verdict needs a fifth to stay ahead of a rectangle with a third."""
STOPPING_WEIGHTS: Mapping[Statement, float] = MappingProxyType(
    {"verdict": 0.6, "epsilon": 0.3, "rest": 0.06, "delta": 0.04, "mu": 0.04}
)
"""Where an audit may stop early the verdict comes first: trials to it grow with the logarithm of its share."""
FOR_EXCESS = 0.25
"""The part of its share that a verdict keeps to prove by how much the claim is exceeded; epsilon gets the rest."""
REST_BESIDE_ONE = 0.02
"""What is left for other questions where the risk is spent on one number."""
ROUNDING = 1e-9
"""Shares are computed by division, so their sum may exceed the risk by this part of it."""

LEAST_LEFT = 1e-6
"""Less than this part of the risk is rounding: then the thresholds have spent it all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RiskBudget:
    """The share of the risk behind each statement of an audit; 0 where it is not stated.

    A policy makes it once, before the trials. The test carries it, judging reads it, the record keeps it and `verify`
    compares it with what the policy makes. All statements hold together with probability ``1 - risk``, because their
    shares sum to at most the risk.
    """

    risk: float
    verdict: float = 0.0
    """The joint test of the claim."""
    epsilon: float = 0.0
    """Epsilon at the reported delta, by its own test."""
    delta: float = 0.0
    """Delta at epsilon 0, by its own test."""
    mu: float = 0.0
    """Mu, by its own test."""
    points: float = 0.0
    """The limits on the error rates of all thresholds together."""
    band: float = 0.0
    """The bands over all thresholds; 0 where the band is the points."""

    def __post_init__(self):
        require("risk", 0 < self.risk < 1, "in (0, 1)", self.risk)
        parts = dataclasses.asdict(self)
        spent = sum(share for name, share in parts.items() if name != "risk")
        require("shares", all(share >= 0 for share in parts.values()), ">= 0", parts)
        most = f"at most the risk {self.risk:g} in sum"
        require("shares", spent <= self.risk * (1 + ROUNDING), most, f"{spent:g}")

    @property
    def rest(self) -> float:
        """What answers every question that has no test of its own."""
        return self.points + self.band

    @property
    def shares(self) -> dict[Statement, float]:
        """What is stated, with its share."""
        every: dict[Statement, float] = {
            "verdict": self.verdict,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mu": self.mu,
            "rest": self.rest,
        }
        return {name: share for name, share in every.items() if share > 0}

    @property
    def for_excess(self) -> float:
        """What the verdict's test keeps of its share, to prove by how much the claim is exceeded."""
        return self.verdict * (FOR_EXCESS if self.epsilon else 1.0)

    def passed_on(self, *, refuted: bool) -> dict[Statement, float]:
        """What epsilon gains where the verdict's own test has ``refuted`` the claim: all that the excess leaves.

        [docs/validity.md, section 12]
        """
        return {"epsilon": self.verdict - self.for_excess} if refuted and self.epsilon else {}


def shared(
    risk: float,
    statements: Sequence[Statement],
    *,
    weights: Mapping[Statement, float] = WEIGHTS,
    on_band: float = 0.5,
) -> RiskBudget:
    """The budget of statements that have tests of their own, the rest going to the points and (``on_band``) the band.

    What is not stated leaves its weight to epsilon, or to all in proportion where epsilon is not stated either.
    """
    require("statements", len(statements) > 0 and len(set(statements)) == len(statements), "distinct", statements)
    weight: dict[Statement, float] = {name: weights[name] for name in statements}
    if len(weight) == 2 and "rest" in weight:
        weight = {name: REST_BESIDE_ONE if name == "rest" else 1 - REST_BESIDE_ONE for name in weight}
    elif "epsilon" in weight:
        weight["epsilon"] += 1 - sum(weight.values())
    total = sum(weight.values())
    share: dict[str, float] = {name: risk * value / total for name, value in weight.items()}
    rest = share.pop("rest", 0.0)
    return RiskBudget(risk=risk, points=rest * (1 - on_band), band=rest * on_band, **share)


def on_points(risk: float, risks: Sequence[float]) -> RiskBudget:
    """The budget of limits on error rates alone: each threshold has its own risk, and the band what they leave."""
    spent = float(np.sum(risks))
    left = risk - spent
    return RiskBudget(risk=risk, points=spent, band=left if left > LEAST_LEFT * risk else 0.0)


def look_share(trials: int, looks: Sequence[int]) -> float:
    """The share of a number's risk that a look has, by its trial number: 1/2 the last one planned, 1/6 that before, ...

    The look j before the last has 1/((j+1)(j+2)), so all of them together have less than 1.
    [docs/validity.md, section 15]
    """
    before_last = len(looks) - 1 - list(looks).index(trials)
    return 1 / ((before_last + 1) * (before_last + 2))
