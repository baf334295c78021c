"""A claim: a trade-off curve together with what it is a promise about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from numpy.typing import ArrayLike

from guarantees.loss_law import Array
from guarantees.trade_off import Direction, TradeOff

Relation = Literal["any", "add_remove", "zero_out", "substitution"]
Unit = Literal["step", "epoch", "training"]
RELATIONS = ("any", "add_remove", "zero_out", "substitution")


def require(argument: str, holds: bool, rule: str, value: Any) -> None:
    """Refuse a bad argument with its name, the rule and the value."""
    if not holds:
        raise ValueError(f"{argument} must be {rule}, got {value!r}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A promised trade-off curve: between which neighbours, for how much output, on whose authority."""

    curve: TradeOff
    name: str
    parameters: Mapping[str, Any]
    relation: Relation
    unit: Unit = "step"
    observation: str = "the mechanism's output"
    source: str = ""

    def __post_init__(self):
        require("relation", self.relation in RELATIONS, f"one of {RELATIONS}", self.relation)

    @property
    def error(self) -> float:
        """Stated numerical error of the curve: a violation must exceed it."""
        return self.curve.error

    def describe(self) -> str:
        """One line: the constructor call that makes this claim."""
        inside = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.name}({inside})"

    def covers(self, relation: str) -> bool:
        """Whether the promise speaks about neighbours of this relation."""
        return self.relation in ("any", relation)

    @property
    def reverse(self) -> TradeOff:
        """The curve in the other direction, T(with, without)."""
        return self.curve.reverse

    @property
    def total_variation(self) -> float:
        """Largest ``1 - alpha - beta``."""
        return self.curve.total_variation

    @property
    def separation(self) -> float:
        """Total variation / sqrt(2): distance from random guessing."""
        return self.curve.separation

    @property
    def advantage(self) -> float:
        """Best true-positive rate minus false-positive rate."""
        return self.curve.advantage

    def beta(self, alpha: ArrayLike) -> Array:
        """Smallest miss rate that the claim allows at each false-alarm rate."""
        return self.curve.beta(alpha)

    def delta(self, epsilon: ArrayLike, direction: Direction = "both") -> Array:
        """The privacy profile."""
        return self.curve.delta(epsilon, direction)

    def epsilon(self, delta: ArrayLike, direction: Direction = "both") -> Array:
        """Smallest epsilon at each delta."""
        return self.curve.epsilon(delta, direction)

    def llr_threshold(self, alpha: ArrayLike) -> Array:
        """Threshold of the best test at each false-alarm rate."""
        return self.curve.llr_threshold(alpha)
