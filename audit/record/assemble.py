"""From counts to the record: judge them and write everything down."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from audit.bounds.anytime_limits import anytime_limits
from audit.bounds.band import middle_share, simultaneous_band
from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.policies.anytime import judge_anytime
from audit.policies.policy import Anytime, Cut, FromTheory, Goal, Policy, Simultaneous, Split, spread
from audit.record.environment import describe_environment, describe_key
from audit.record.record import AuditRecord, Band, ClaimPart, Curve, Part, ProvenPoint, ScoreGrid, plain
from audit.trials.source import Tally
from audit.verdict import evidence
from audit.verdict.verdict import Outcome, judge, judge_jointly
from guarantees.claim import Claim
from guarantees.trade_off import TradeOff

MOST_POINTS = 200
"""Points of a record; of a band's many only those on its lower left hull are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What was audited and under which name; everything that a record says about it."""

    name: str
    expect: Outcome
    mechanism: Part
    neighbours: Part
    distinguisher: Part
    members: tuple[str, ...]
    theory: TradeOff | None
    key: jax.Array
    trials_planned: int
    started: str


def write_record(
    subject: Subject,
    tally: Tally,
    *,
    edges: np.ndarray,
    cuts: tuple[Cut, ...],
    fit_trials: int,
    policy: Policy,
    goal: Goal,
    seconds: float,
) -> AuditRecord:
    """Judge the counts against the claim and write everything down."""
    counts = tuple(evidence.error_counts(tally, edges, cut) for cut in cuts)
    risks = np.array([cut.risk for cut in cuts])

    def evidence_at(risk: float) -> tuple[Limits, ...]:
        if isinstance(policy, Simultaneous):
            return _bands(edges, tally, risk=risk)
        if isinstance(policy, Anytime):
            return anytime_limits(counts, risks * (risk / goal.risk))
        return evidence.proven(counts, risks * (risk / goal.risk))

    if isinstance(policy, Anytime):
        answer = judge_anytime(tally, goal, tests=len(cuts))
    elif isinstance(policy, FromTheory | Split) and policy.method == "joint":
        judged = next(c for cut, c in zip(cuts, counts, strict=True) if cut.target == "verdict")
        answer = judge_jointly(judged, goal.claim, risk=goal.risk, delta=goal.delta)
    else:
        answer = judge(
            evidence_at,
            goal.claim,
            risk=goal.risk,
            largest_share=_share(policy, risks, tally, goal),
            delta=goal.delta,
            trials_per_side=tally.trials_per_side,
        )
    points = [_point(*entry, subject.members) for entry in zip(cuts, counts, evidence_at(goal.risk), strict=True)]
    return AuditRecord(
        name=subject.name,
        verdict=answer.outcome,
        reason=answer.reason,
        p_value=answer.p_value,
        adjusted_p_value=answer.p_value,
        expect=subject.expect,
        risk=goal.risk,
        report_delta=goal.delta,
        trials=2 * tally.trials_per_side,
        trials_planned=subject.trials_planned,
        fit_trials=fit_trials,
        policy=plain(policy),
        points=tuple(_hull(points)),
        claim=_claim_part(goal.claim, goal.delta),
        mechanism=subject.mechanism,
        neighbours=subject.neighbours,
        distinguisher=subject.distinguisher,
        grids=tuple(_grid(m, name, edges, tally) for m, name in enumerate(subject.members)),
        band=_anytime_band(points, goal.risk) if isinstance(policy, Anytime) else _band(edges, tally, goal.risk),
        theory=None if subject.theory is None else _curve(subject.theory),
        detectable_advantage_excess=answer.detectable.tv_excess,
        detectable_epsilon=answer.detectable.epsilon,
        trials_needed=answer.trials_needed,
        key=describe_key(subject.key),
        environment=describe_environment(),
        started=subject.started,
        seconds=seconds,
    )


def _share(policy: Policy, risks: np.ndarray, tally: Tally, goal: Goal) -> float:
    """Part of the risk behind the best-funded test; a band spreads its own over all thresholds."""
    share = float(risks.max()) / goal.risk
    if isinstance(policy, Simultaneous):
        share *= middle_share(tally.trials_per_side, risk=goal.risk * share)
    return share


def _bands(edges: np.ndarray, tally: Tally, *, risk: float) -> tuple[Limits, ...]:
    """Limits at every edge of every member's grid; the members share the risk."""
    share = risk / len(edges)
    rows = zip(edges, tally.without, tally.with_record, strict=True)
    return tuple(point for row in rows for point in simultaneous_band(*row, risk=share).points)


def _band(edges: np.ndarray, tally: Tally, risk: float) -> Band:
    band = simultaneous_band(edges[0], tally.without[0], tally.with_record[0], risk=risk)
    return Band(risk=risk, alpha=tuple(band.alpha_upper.tolist()), beta=tuple(band.beta_upper.tolist()))


def _anytime_band(points: list[ProvenPoint], risk: float) -> Band:
    """The points themselves: a band over all thresholds would hold for a fixed number of trials only."""
    return Band(risk=risk, alpha=tuple(p.alpha_upper for p in points), beta=tuple(p.beta_upper for p in points))


def _hull(points: list[ProvenPoint]) -> list[ProvenPoint]:
    """All points, or of very many those that no other one beats in both rates."""
    if len(points) <= MOST_POINTS:
        return points
    kept, lowest = [], np.inf
    for point in sorted(points, key=lambda p: (p.alpha_upper, p.beta_upper)):
        if point.beta_upper < lowest:
            kept.append(point)
            lowest = point.beta_upper
    return kept


def _point(cut: Cut, counts: ErrorCounts, limits: Limits, members: tuple[str, ...]) -> ProvenPoint:
    return ProvenPoint(
        target=cut.target,
        member=members[cut.member],
        threshold=cut.threshold,
        rejects=cut.rejects,
        risk=cut.risk,
        counts=counts,
        alpha_upper=limits.alpha,
        beta_upper=limits.beta,
    )


def _grid(member: int, name: str, edges: np.ndarray, tally: Tally) -> ScoreGrid:
    return ScoreGrid(
        member=name,
        edges=tuple(edges[member].astype(float).tolist()),
        without=tuple(tally.without[member].tolist()),
        with_record=tuple(tally.with_record[member].tolist()),
    )


def _claim_part(claim: Claim, delta: float) -> ClaimPart:
    return ClaimPart(
        name=claim.name,
        parameters=plain(claim.parameters),
        relation=claim.relation,
        unit=claim.unit,
        observation=claim.observation,
        source=claim.source,
        error=claim.error,
        epsilon=float(claim.epsilon(delta)),
        delta=claim.total_variation,
        curve=_curve(claim.curve),
        times=claim.times,
    )


def _curve(curve: TradeOff) -> Curve:
    """At most 200 points of a curve, its ends among them."""
    thresholds = spread(curve)
    kept = thresholds[np.unique(np.linspace(0, len(thresholds) - 1, 190).astype(int))]
    alpha, beta = curve.errors(kept[::-1])
    ends = curve.beta(np.array([0.0, 1.0]))
    return Curve(
        alpha=(0.0, *alpha.tolist(), 1.0),
        beta=(float(ends[0]), *beta.tolist(), float(ends[1])),
    )
