"""Where a claim is violated: numbers proven at the audit's risk, or else the error rates that were observed."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.product_region import corners
from audit.bounds.supporting_lines import SupportingLines, tabulate
from dpsgd_audit.spelling import counted
from guarantees.claim import Claim
from guarantees.numerics.array import Array
from guarantees.numerics.rounding import ROUND_OFF, at_least, at_most
from guarantees.vocabulary import Direction


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViolatedAt:
    """What a violation exceeds: a delta or an epsilon, with the proven value and the one that the claim allows."""

    number: Literal["epsilon", "delta"]
    given: float
    """The delta of an epsilon, the epsilon of a delta. Where ``at_least`` is None: where most seems to be exceeded."""
    claimed: float
    """The largest value that the claim allows there, numerical error included."""
    at_least: float | None
    """The value proven together with all other statements; None if only the whole curve is refuted."""
    false_alarm_rate: float | None = None
    """That of the test that refuted the claim: the upper limit of a proven point, or the observed rate of counts."""
    miss_rate: float | None = None
    says: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allowance:
    """Where error rates most exceed an allowance ``1 - beta <= e^epsilon alpha + delta``, or its mirror image."""

    epsilon: float
    reached: float
    """Delta that the error rates need."""
    claimed: float
    direction: Direction
    """The outputs meant: those likelier with the record, or those likelier without it."""


OUTPUTS: dict[Direction, str] = {"with_given_without": "with", "without_given_with": "without"}
NOTHING = 1e-14
"""A claimed delta below this is the round-off of a pure epsilon."""
LESS = 0.99
"""A direction is named if the claim promises less than this share in it of what it promises in the other."""


def most_exceeded(alpha: ArrayLike, beta: ArrayLike, lines: SupportingLines) -> Allowance:
    """The line of the claim that lies furthest above a point, or above all of several, as an epsilon and its delta.

    A line of slope e^t <= 1 speaks of the other direction: ``1 - alpha <= e^-t beta + delta``. The epsilon has three
    digits where the excess survives that, so that a printed one is the one meant.
    """
    slope = lines.slope
    usable = slope > 0
    slope, height = slope[usable], (lines.y + lines.slope * lines.x)[usable]
    alpha, beta = (np.atleast_1d(np.asarray(rate, float))[:, None] for rate in (alpha, beta))
    if not slope.size:
        reached = max(0.0, float(np.min(1 - alpha - beta)))
        return Allowance(epsilon=0.0, reached=reached, claimed=1.0, direction="with_given_without")
    order = np.argsort(slope)
    slope, height = slope[order], height[order]

    def excesses(slopes: Array) -> tuple[Array, Array]:
        scale = np.minimum(slopes, 1.0)
        # through the corner of two lines passes one of every slope between theirs
        claimed = np.clip(1 - np.interp(slopes, slope, height) / scale, 0.0, 1.0)
        return 1 - np.max(beta + slopes * alpha, axis=0) / scale, claimed

    reached, claimed = excesses(slope)
    loss = float(np.log(slope[int(np.argmax(reached - claimed))]))
    short = math.copysign(float(f"{abs(loss):.3g}"), loss)
    tried = np.clip(np.exp([short, loss]), slope[0], slope[-1])
    reached, claimed = excesses(tried)
    at = 0 if reached[0] > claimed[0] and tried[0] == np.exp(short) else 1
    return Allowance(
        epsilon=abs((short, loss)[at]),
        reached=float(reached[at]),
        claimed=float(claimed[at]),
        direction="with_given_without" if loss >= 0 else "without_given_with",
    )


def which_outputs(most: Allowance, claim: Claim) -> str:
    """The outputs for which the claim promises this, if it promises more for the others; otherwise empty."""
    both = float(np.asarray(claim.delta(most.epsilon)))
    if most.claimed >= LESS * both - ROUND_OFF:
        return ""
    return f" for outputs likelier {OUTPUTS[most.direction]} the record, {at_most(both)} for the others"


def by_number(name: Literal["epsilon", "delta"], given: float, *, at_least: float, claimed: float) -> ViolatedAt:
    """A violation by a number that is proven to exceed what the claim promises for it."""
    proven = at_least if at_least > claimed else None
    lower, allowed = _apart(at_least, claimed) if proven is not None else ("", _digits(claimed, at_least))
    if 0 < claimed < NOTHING <= at_least:
        allowed = "0 (but for round-off)"
    said = f"at least {lower}" if proven is not None else "more"
    head = f"{name} at {'delta' if name == 'epsilon' else 'epsilon'} {given:.12g}"
    says = f"{head}: {said}, claimed at most {allowed}."
    return ViolatedAt(number=name, given=given, claimed=claimed, at_least=proven, says=says)


class Bounds(Protocol):
    """The bounds that an audit proves."""

    def epsilon(self, delta: float) -> float:
        """Lower bound on epsilon at ``delta``."""
        ...

    def delta(self, epsilon: float) -> float:
        """Lower bound on delta at ``epsilon``."""
        ...


def at_best(at: ViolatedAt | None, bounds: Bounds) -> ViolatedAt | None:
    """The violated number as tables print it: with the largest of all bounds that hold together."""
    if at is None or at.at_least is None or at.false_alarm_rate is not None:
        return at
    proven = bounds.epsilon(at.given) if at.number == "epsilon" else bounds.delta(at.given)
    return by_number(at.number, at.given, at_least=max(proven, at.at_least), claimed=at.claimed)


def by_points(points: tuple[Limits, ...], claim: Claim) -> ViolatedAt:
    """A violation by the one of several proven points that most exceeds an allowance of the claim."""
    lines = tabulate(claim)
    found = [(most_exceeded(point.alpha, point.beta, lines), point) for point in points]
    most, point = max(found, key=lambda pair: pair[0].reached - pair[0].claimed)
    where = f"false alarms at most {at_most(point.alpha, '.4g')}, misses at most {at_most(point.beta, '.4g')}"
    return _exceeded(most, claim, point, where)


def _exceeded(most: Allowance, claim: Claim, rates: Limits, where: str) -> ViolatedAt:
    """A violation by a delta that is proven at the epsilon where it exceeds the claim most."""
    number = by_number("delta", most.epsilon, at_least=most.reached, claimed=most.claimed)
    says = f"{number.says[:-1]}{which_outputs(most, claim)} ({where})."
    return dataclasses.replace(number, false_alarm_rate=rates.alpha, miss_rate=rates.beta, says=says)


def by_counts(counts: ErrorCounts, claim: Claim, *, risk: float | None = None) -> ViolatedAt:
    """A violation by a test whose counts refute the claimed curve; with a proven delta, if the risk for it is given.

    The region of ``corners`` bounds delta at every epsilon at once, so the epsilon is where the claim is exceeded most.
    Where even that delta is allowed, or no risk is left, the counts are told and no number is proven.
    """
    rates, lines = Limits(alpha=counts.rates[0], beta=counts.rates[1]), tabulate(claim)
    if risk is not None:
        most = most_exceeded(*corners(counts, risk=risk), lines)
        if most.reached > most.claimed:
            seen = f"false alarms {counts.false_alarms:,} of {counts.trials_without:,}"
            return _exceeded(most, claim, rates, f"{seen}, misses {counts.misses:,} of {counts.trials_with:,}")
    most = most_exceeded(rates.alpha, rates.beta, lines)
    fewest = math.ceil(counts.trials_with * float(lines.below(np.array([rates.alpha]))[0]))
    says = (
        f"{counted(counts.misses, 'miss', 'misses')} in {counts.trials_with:,} trials beside "
        f"{counted(counts.false_alarms, 'false alarm')} in {counts.trials_without:,}, where the claim allows no fewer "
        f"than about {counted(fewest, 'miss', 'misses')}."
    )
    return ViolatedAt(
        number="delta",
        given=most.epsilon,
        claimed=most.claimed,
        at_least=None,
        false_alarm_rate=rates.alpha,
        miss_rate=rates.beta,
        says=says,
    )


def _apart(proven: float, claimed: float) -> tuple[str, str]:
    """Both numbers in three digits, or in as many as it takes to see that the first is larger."""
    for digits in range(3, 17):
        lower, allowed = at_least(proven, f".{digits}g"), at_most(claimed, f".{digits}g")
        if float(lower) > float(allowed):
            return lower, allowed
    return f"{proven:.17g}", f"{claimed:.17g}"


def _digits(value: float, beside: float) -> str:
    """The number in three digits, or as many as it takes to differ from the number beside it."""
    for digits in range(3, 12):
        text = at_most(value, f".{digits}g")
        if text != at_most(beside, f".{digits}g"):
            return text
    return at_most(value, ".6g")
