"""A claim: a trade-off curve together with what it is a promise about."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from guarantees.checks import Count, checked, require
from guarantees.laws.law import Certificate, LossLaw
from guarantees.summary import ALPHA_RANGE, Breakpoints, Curve, Dominance, EpsilonRange, Summary, summarise
from guarantees.trade_off import TradeOff, Values
from guarantees.vocabulary import Direction, Relation, Unit

BRIEF = 10
"""Characters of a number that is shown with all its digits."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A promised trade-off curve: between which neighbours, for how much output, on whose authority.

    Made by the constructors of ``guarantees``, not by hand. It answers ``epsilon(delta)``, ``delta(epsilon)``,
    ``beta(alpha)``, ``mu_star()``, ``total_variation`` and ``compose(times)``.

    Args:
      curve: the trade-off curve from without to with the record.
      name: the constructor that made it.
      parameters: what that was given.
      relation: which neighbours it covers; ``"any"`` covers all.
      unit: how much output it covers: a step, an epoch or a training.
      observation: what an adversary is assumed to see.
      source: where the curve comes from.

    Raises:
      ValueError: the relation or the unit is unknown.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.gaussian(mu=0.5).compose(4)
      >>> claim.describe()
      'gaussian(mu=0.5).compose(4)'
      >>> round(claim.mu_star(), 3)
      1.0
    """

    curve: TradeOff
    name: str
    parameters: Mapping[str, Any]
    relation: Relation
    unit: Unit = "step"
    observation: str = "the mechanism's output"
    source: str = ""
    times: int = 1
    """How often the mechanism named here was composed."""
    group: Count = 1
    """In how many records the neighbours may differ."""
    steps: int | None = None
    """Steps of a training that it counts, all of them together; None where it does not say."""

    def __repr__(self) -> str:
        """The promise as text, without the curve's numbers."""
        call = textwrap.shorten(self._call(_brief), 200)
        return f"<Claim {call}: relation {self.relation}, unit {self.unit}>"

    @property
    def law(self) -> LossLaw:
        """The law of the promised privacy loss."""
        return self.curve.law

    @property
    def error(self) -> float:
        """Stated numerical error of the curve; a violation must exceed it."""
        return self.curve.error

    def describe(self) -> str:
        """The constructor call that makes this claim, on one line; the relation is left out if it is the usual one."""
        return self._call(repr)

    def _call(self, spelled: Callable[[Any], str]) -> str:
        inside = ", ".join(f"{key}={spelled(value)}" for key, value in self.parameters.items())
        return f"{self.name}({inside})" + (f".compose({self.times})" if self.times > 1 else "")

    def covers(self, relation: str) -> bool:
        """Whether the promise holds for neighbours of this relation."""
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

    @property
    def certificate(self) -> Certificate | None:
        """What is proved and what is estimated about a computed curve; None for closed forms."""
        return self.curve.certificate

    def beta(self, alpha: ArrayLike) -> Values:
        """Smallest miss rate that the claim allows at each false-alarm rate."""
        return self.curve.beta(alpha)

    def delta(self, epsilon: ArrayLike, direction: Direction = "both") -> Values:
        """The privacy profile: delta at each epsilon."""
        return self.curve.delta(epsilon, direction)

    def epsilon(self, delta: ArrayLike, direction: Direction = "both") -> Values:
        """Smallest epsilon at each delta, as computed; ``epsilon_range`` says how far it is known."""
        return self.curve.epsilon(delta, direction)

    def epsilon_range(self, delta: float) -> EpsilonRange:
        """Epsilon at a delta, with the range that the claim's numerical error leaves for it."""
        return self.curve.epsilon_range(delta)

    def errors(self, threshold: ArrayLike) -> tuple[Values, Values]:
        """False-alarm and miss rates of the likelihood-ratio test at a threshold."""
        return self.curve.errors(threshold)

    def llr_threshold(self, alpha: ArrayLike) -> Values:
        """Threshold of the best test at each false-alarm rate."""
        return self.curve.llr_threshold(alpha)

    def mu_star(self, alpha_range: tuple[float, float] = ALPHA_RANGE) -> float:
        """Smallest mu with mu-GDP below the curve at every alpha in the range."""
        return self.curve.mu_star(alpha_range)

    def regret(self, other: Curve | None = None, *, alpha_range: tuple[float, float] = ALPHA_RANGE) -> float:
        """How much reporting ``other`` (default: mu_star-GDP) instead of this claim over-reports attacks."""
        return self.curve.regret(other, alpha_range=alpha_range)

    def breakpoints(self, points: int = 200, *, alpha_range: tuple[float, float] = ALPHA_RANGE) -> Breakpoints:
        """Points of the curve: alpha, beta and the threshold of the test at each."""
        return self.curve.breakpoints(points, alpha_range=alpha_range)

    def dominance(self, other: Curve) -> Dominance:
        """Whether this promise is below (weaker than) the other anywhere, where most, and by how much."""
        return self.curve.dominance(other)

    def summary(
        self,
        *,
        deltas: Sequence[float] = (1e-9, 1e-6, 1e-5),
        alpha_range: tuple[float, float] = ALPHA_RANGE,
    ) -> Summary:
        """All numbers worth reporting, in one record."""
        return summarise(self.curve, deltas=deltas, alpha_range=alpha_range)

    def symmetrise(self) -> Claim:
        """The same promise made to hold in both directions."""
        return dataclasses.replace(self, curve=self.curve.symmetrise())

    @checked
    def compose(self, times: Count, *, unit: Unit | None = None) -> Claim:
        """The promise about ``times`` independent outputs together, between the same neighbours.

        Two outputs of ``laplace`` take 2 CPU seconds at epsilon 1,000 and 17 at 1e5: large losses need long lattices.
        """
        return dataclasses.replace(
            self,
            curve=self.curve.compose(times),
            times=self.times * times,
            unit=unit or self.unit,
            steps=None if self.steps is None else self.steps * times,
        )

    def compose_with(self, *others: Claim, unit: Unit | None = None) -> Claim:
        """The promise about one output of each of several mechanisms, between the same neighbours."""
        for other in others:
            require("others", isinstance(other, Claim), "claims", other)
        parts = (self, *others)
        relations: set[Relation] = {part.relation for part in parts if part.relation != "any"}
        if len(relations) > 1:
            raise ValueError(
                f"claims about different neighbours cannot be composed: {sorted(relations)}; "
                "restate them for one relation."
            )
        return Claim(
            curve=self.curve.compose_with(*(other.curve for other in others)),
            group=min(part.group for part in parts),
            steps=summed([part.steps for part in parts]),
            name="composition",
            parameters={"of": tuple(part.describe() for part in parts)},
            relation=relations.pop() if relations else "any",
            unit=unit or self.unit,
            observation=" and ".join(dict.fromkeys(part.observation for part in parts)),
            source="; ".join(dict.fromkeys(part.source for part in parts)),
        )


def summed(steps: Sequence[int | None]) -> int | None:
    """Total steps of several parts; None if one of them does not state its steps."""
    known = [count for count in steps if count is not None]
    return sum(known) if len(known) == len(steps) else None


def poisson_sums(steps: int) -> str:
    """What an adversary sees of this many Poisson batches, in words."""
    return "the noisy sum of one Poisson batch" if steps == 1 else "the noisy sums of all Poisson batches"


def unusual(relation: Relation, usual: Relation) -> dict[str, Relation]:
    """The relation as a parameter of the call that makes a claim, unless it is the constructor's default."""
    return {} if relation == usual else {"relation": relation}


def grouped(group: int) -> dict[str, int]:
    """The number of differing records as a parameter of the call that makes a claim, unless it is one."""
    return {} if group == 1 else {"group": group}


def _brief(value: Any) -> str:
    """A value as people read it: numbers in six digits (records keep all of them)."""
    return f"{value:.6g}" if isinstance(value, float) and len(repr(value)) > BRIEF else repr(value)
