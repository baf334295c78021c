"""The verdict from proven points or p-values, and what the same trials could have shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.joint import GAMMA_SHARE, joint_p_value
from audit.bounds.points import refutes
from audit.power import power
from audit.power.joint_power import FEW_TRIALS, jointly_refuting
from audit.power.less_noise import (
    in_its_place,
    in_so_many_runs,
    misses_half,
    most_noise_found,
    sampled,
    trials_that_find,
)
from audit.verdict.verdict import Verdict
from audit.verdict.violated import ViolatedAt, by_counts, by_points
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_most
from guarantees.numerics.search import halved

SMALLEST_RISK = 1e-12
"""P-values below this are reported as this: Clopper-Pearson limits are not computed for smaller risks."""
LARGEST_RISK = 0.5
"""P-values above this are reported as 1: nobody acts on them, and bands are not computed for such risks."""
P_VALUE_STEP = 0.02
"""P-values are rounded up by at most this share."""
BELOW = "a proven point of the trade-off curve lies below the claim."
PLAINEST = ("number", "point", "curve")
"""Kinds of statements, plainest first: the message leads with the plainest that refutes the claim."""
RUNS = in_so_many_runs(power.POWER)
ONE_RELEASE = "in one release"
HERE = f"(on this pair, with these scores and thresholds, {ONE_RELEASE})"
NOISELESS = "releases without any noise, because few of them sample the record"
MISSED = f", and {NOISELESS}"
HALF = "noise of half the stated size"
ONE_PLACE = (
    "all scores, without and with the record, are the same or lie on the same side of every threshold, so this "
    "audit could not have found a leak. If the outputs vary, use another score or other thresholds."
)
JOINTLY = "the two error counts together are too small for the claim."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict with its reason and p-value, and what the same trials could have shown."""

    verdict: Verdict
    p_value: float
    detectable: power.Detectable
    trials_needed: int | None
    reason: str
    violated_at: ViolatedAt | None = None
    """What a violation exceeds, and by how much."""


def p_value(points_at: Callable[[float], tuple[Limits, ...]], claim: Claim) -> float:
    """Smallest risk at which the verdict would be 'violation'; 1 if there is none."""

    def violated(risk: float) -> bool:
        return refutes(points_at(risk), claim)

    if not violated(LARGEST_RISK):
        return 1.0
    if violated(SMALLEST_RISK):
        return SMALLEST_RISK
    ends = math.log(SMALLEST_RISK), math.log(LARGEST_RISK)
    _, above = halved(lambda log_risk: violated(math.exp(log_risk)), *ends, within=P_VALUE_STEP)
    return min(1.0, math.exp(above))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refuted:
    """Why, and where, a claim is refuted."""

    reason: str
    at: ViolatedAt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Against:
    """What one statement of an audit says against the claim: its p-value and its share of the risk."""

    reason: str
    p_value: float
    risk: float
    at: Callable[[], ViolatedAt]
    """Where the claim broke, if this statement refutes it."""
    proves: Literal["number", "point", "curve"]
    """The kind of proof: a number that people report, another point of the claim, or only the curve as a whole."""

    @property
    def refutes(self) -> bool:
        """Whether this statement refutes the claim at its share of the risk."""
        return self.p_value <= self.risk


def refuted_by(statements: Sequence[Against]) -> Refuted | None:
    """The plainest of the statements that refute the claim at their shares: it leads the message."""
    refuting = [against for against in statements if against.refutes]
    if not refuting:
        return None
    lead = min(refuting, key=lambda against: (PLAINEST.index(against.proves), against.p_value / against.risk))
    return Refuted(reason=lead.reason, at=lead.at())


def against_jointly(tests: tuple[ErrorCounts, ...], claim: Claim, *, risk: float, for_excess: float) -> Against:
    """What the joint p-value of tests says that share a risk evenly; ``for_excess`` of it proves an excess."""
    each, kept = risk / len(tests), for_excess / len(tests)
    found = [joint_p_value(counts, claim, gamma=GAMMA_SHARE * each) for counts in tests]
    smallest = min(found)
    strongest = tests[found.index(smallest)]
    return Against(
        reason=JOINTLY,
        p_value=min(1.0, smallest * len(tests)),
        risk=risk,
        at=lambda: by_counts(strongest, claim, risk=kept),
        proves="curve",
    )


def against_points(points_at: Callable[[float], tuple[Limits, ...]], claim: Claim, *, risk: float) -> Against:
    """What points that hold together say against the claim; ``points_at(r)`` holds with probability 1 - r."""
    found = p_value(points_at, claim)
    return Against(
        reason=BELOW,
        # rounding a p-value up must not hide what the points at their share refute
        p_value=min(found, risk) if refutes(points_at(risk), claim) else found,
        risk=risk,
        at=lambda: by_points(points_at(risk), claim),
        proves="point",
    )


def against_band(
    band: tuple[Limits, ...], wider_at: Callable[[float], tuple[Limits, ...]], claim: Claim, *, risk: float
) -> Against:
    """What the band of a record says against the claim at its share of the risk.

    ``wider_at`` gives bands of the same form whose local levels are smaller: they tell how small the p-value is without
    the long search for exact levels at every risk. [docs/validity.md, section 12]
    """
    return Against(
        reason=BELOW,
        p_value=min(risk if refutes(band, claim) else 1.0, p_value(wider_at, claim)),
        risk=risk,
        at=lambda: by_points(band, claim),
        proves="point",
    )


def judge_statements(
    statements: tuple[Against, ...],
    claim: Claim,
    *,
    risk: float,
    deciding: float,
    delta: float,
    trials_per_side: int,
    jointly: bool = True,
) -> Judgement:
    """The verdict of statements that share the risk: the claim is refuted if one refutes it at its share.

    The p-value is the smallest ``p * risk / share``: at most u with probability at most u if the claim holds, since the
    shares sum to no more than the risk. What could have been found is what the joint test (or the rectangle) at risk
    ``deciding`` would. [docs/validity.md, section 12]
    """
    strongest = min(statements, key=lambda each: each.p_value / each.risk)
    p = min(1.0, risk * strongest.p_value / strongest.risk)
    return conclude(
        claim,
        refuted=refuted_by(statements),
        p=p,
        risk=deciding,
        delta=delta,
        trials_per_side=trials_per_side,
        jointly=jointly,
    )


def conclude(
    claim: Claim,
    *,
    refuted: Refuted | None,
    p: float,
    risk: float,
    delta: float,
    trials_per_side: int,
    jointly: bool = False,
) -> Judgement:
    """The verdict, and what a test at this risk could have shown; ``refuted`` says why the claim is refuted, if it is.

    ``jointly``: the test that decides is the joint one, not the rectangle.
    """
    test: power.TestKind = jointly_refuting if jointly else power.refuting
    at_once = power.TOGETHER if jointly else power.ONE_BY_ONE
    seen = {"trials_per_side": trials_per_side, "risk": risk, "test": test}
    found = power.detectable(claim, delta=delta, at_once=at_once, **seen)
    if refuted is not None:
        return Judgement(
            verdict="violation",
            p_value=p,
            detectable=found,
            trials_needed=None,
            reason=refuted.reason,
            violated_at=refuted.at,
        )
    promised = sampled(claim)
    noise = most_noise_found(claim, **seen)
    less = "" if promised is None or noise is None else in_its_place(noise, promised)
    nothing = promised is not None and noise is None and not promised.hides_nothing(claim.total_variation)
    # The joint test's power with fewer trials than FEW_TRIALS takes long to find.
    known = max(trials_per_side, FEW_TRIALS) if jointly else trials_per_side
    size = {"risk": risk, "test": test, "more_than": known}
    # what no feasible number of trials finds is not asked for
    half = trials_that_find(claim, half=True, **size) if misses_half(claim, noise, delta=delta) else None
    if found.conclusive and not nothing and half is None:
        return Judgement(
            verdict="no_violation_found",
            p_value=p,
            detectable=found,
            trials_needed=None,
            reason=f"{_findable(found, claim, delta=delta, less=less)}.",
        )
    wanted = [] if found.conclusive else [power.trials_needed(claim, delta=delta, **size)]
    wanted += [trials_that_find(claim, half=False, **size)] if nothing else []
    wanted += [] if half is None else [half]
    feasible = [trials for trials in wanted if trials is not None]
    needed = max(feasible) if len(feasible) == len(wanted) else None
    if test(claim, trials_per_side=trials_per_side, risk=risk)(np.zeros(1), np.zeros(1))[0] == 0:
        why = "no counts of this size could refute the claim"
    else:
        missed = _moderate(claim, delta) if not found.conclusive else NOISELESS if nothing else HALF
        beside = (
            f". {RUNS.capitalize()} they find {less}" if less else MISSED if nothing and not found.conclusive else ""
        )
        why = f"these trials are too few: they would often miss {missed}{beside}"
    enough = f"With the best score {needed:,}" if needed else "No feasible number of"
    return Judgement(
        verdict="inconclusive",
        p_value=p,
        detectable=found,
        trials_needed=needed,
        reason=f"{why}. {enough} trials would be enough.",
    )


def of_scores_in_one_place(judgement: Judgement) -> Judgement:
    """The judgement without its power, for scores that no threshold splits: power is that of scores that see a leak."""
    if judgement.verdict == "violation":
        return judgement
    nothing = power.Detectable(tv_excess=None, epsilon=None, conclusive=False)
    return dataclasses.replace(
        judgement, verdict="inconclusive", detectable=nothing, trials_needed=None, reason=ONE_PLACE
    )


def _mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that has this epsilon at a delta."""
    (noise,) = power.noise_at(np.array([epsilon]), delta)
    return float(1 / noise)


def _claimed_mu(claim: Claim) -> float | None:
    """The mu of a claim that is stated in mu."""
    mu = claim.parameters.get("mu") if claim.name == "gaussian" else None
    return None if mu is None else float(mu) * math.sqrt(claim.times)


def _moderate(claim: Claim, delta: float) -> str:
    """The leak that an audit of this claim should find."""
    wanted, claimed = power.moderate(claim, delta=delta), claim.epsilon_range(delta).promised
    if wanted.tv_excess is not None:
        return f"an advantage {wanted.tv_excess:.2g} above the claim"
    mu = _claimed_mu(claim)
    if mu is not None and wanted.epsilon is not None:
        return f"a Gaussian leak with mu {_mu(wanted.epsilon, delta):.3g}, where {mu:.3g} is claimed"
    told = f"a Gaussian leak with epsilon {wanted.epsilon:.3g} at delta {delta:.3g}"
    return f"{told}, where {at_most(claimed)} is claimed"


def _findable(found: power.Detectable, claim: Claim, *, delta: float, less: str) -> str:
    """What a verdict without a violation would have found. Other thresholds, pairs, scores or releases may leak more.

    An advantage is looked for at the error rates where it is hardest to see; less noise, or a Gaussian leak
    where the claim names none, where it shows most.
    """
    leaks = []
    if found.tv_excess is not None:
        leaks.append(f"an advantage of {at_most(found.tv_excess, '.2g')} or more above the claim")
    claimed, mu = claim.epsilon_range(delta).promised, _claimed_mu(claim)
    # at this many digits an epsilon no larger than the claim's says nothing about a leak
    elsewhere = found.epsilon is not None and (not leaks or f"{found.epsilon:.3g}" != f"{claimed:.3g}")
    if not less and elsewhere and found.epsilon is not None:
        size = f"epsilon {at_most(found.epsilon)} or more"
        if mu is not None:
            size = f"mu {at_most(_mu(found.epsilon, delta))} or more in place of {mu:.3g}"
        leaks.append(f"a Gaussian leak with {size}, if the thresholds suit it")
    if not leaks:
        return f"{RUNS} this many trials can find {less}"
    here = f"{RUNS} this audit would have found {' or '.join(leaks)} {HERE}"
    return f"{here}; this many trials can find {less}" if less else here
