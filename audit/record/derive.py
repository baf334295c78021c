"""Derive the record of an audit from what was fixed and counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.supporting_lines import one_pair
from audit.goal import Goal
from audit.policies.candidates import from_curve
from audit.policies.policy import Cut, Policy, Test
from audit.record.record import AuditRecord, Band, ClaimPart, Curve, Part, ProvenPoint, ScoreGrid, plain
from audit.trials.source import Tally
from audit.verdict.judgement import ONE_RELEASE, of_scores_in_one_place
from audit.verdict.verdict import Verdict
from audit.verdict.violated import at_best
from guarantees.claim import Claim
from guarantees.trade_off import TradeOff
from mechanisms.pairs.gradient_lengths import GradientLengths

MOST_POINTS = 200
"""Most points of a band in a record: if there are more, only its lower left hull is kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What was audited, under which name and with what: the fields of a record that are not derived here.

    ``members``, the names of the scores, are stored in its grids.
    """

    name: str
    expect: Verdict
    mechanism: Part
    releases: str
    steps: int | None
    neighbours: Part
    distinguisher: Part
    members: tuple[str, ...]
    key: str
    trials_planned: int
    environment: Mapping[str, str]
    started: str
    seconds: float
    diagnose: bool | None
    repeatable: bool | None
    gradient_lengths: GradientLengths | None


RELEASED = {"transcript": "in all rounds of one transcript", "final": "in the final model of one training"}
"""What one release is, unless it is a single update."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audited:
    """What an audit fixed and counted, from which the rest of its record is derived."""

    subject: Subject
    policy: Policy
    goal: Goal
    test: Test
    tally: Tally
    theory: TradeOff | None
    """Exact curve of the distinguisher, if known."""


def derive(audited: Audited) -> AuditRecord:
    """Derive a record: the only place where counts become numbers, a verdict and sentences.

    ``run_audit`` makes records here, and ``verify`` makes them again.
    """
    subject, policy, goal = audited.subject, audited.policy, audited.goal
    test, tally, theory = audited.test, audited.tally, audited.theory
    finding = policy.judge(tally, test, goal)
    judgement, members = finding.judgement, subject.members
    if _in_one_place(tally):
        judgement = of_scores_in_one_place(judgement)
    entries = zip(test.cuts, finding.counts, finding.points, strict=True)
    record = AuditRecord(
        **{name: value for name, value in vars(subject).items() if name != "members"},
        verdict=judgement.verdict,
        reason=judgement.reason.replace(ONE_RELEASE, RELEASED.get(subject.releases, ONE_RELEASE)),
        p_value=judgement.p_value,
        adjusted_p_value=judgement.p_value,
        risk=goal.risk,
        report_delta=goal.delta,
        trials=2 * tally.trials_per_side,
        fit_trials=test.fit_trials,
        policy=plain(policy),
        stops_early=policy.stops_early,
        points=tuple(_point(*entry, members) for entry in entries),
        claim=claim_part(goal.claim, goal.delta),
        grids=tuple(_grid(m, name, test.edges, tally) for m, name in enumerate(members)),
        numbers=finding.numbers,
        budget=test.budget,
        band=Band(
            risk=finding.band_risk,
            alpha=tuple(point.alpha for point in finding.band),
            beta=tuple(point.beta for point in finding.band),
        ),
        theory=None if theory is None else _curve(theory),
        exact_epsilon=_exact_epsilon(theory, goal.delta),
        detectable_advantage_excess=judgement.detectable.tv_excess,
        detectable_epsilon=judgement.detectable.epsilon,
        trials_needed=judgement.trials_needed,
        violated_at=judgement.violated_at,
        state=tally.state,
    )
    return dataclasses.replace(record, violated_at=at_best(record.violated_at, record))


def _exact_epsilon(theory: TradeOff | None, delta: float) -> float | None:
    """Epsilon of the exact curve; None where it is not known that far out, as with little noise."""
    try:
        return None if theory is None else float(theory.epsilon(delta))
    except ValueError:
        return None


def _in_one_place(tally: Tally) -> bool:
    """Whether each member's scores, of both sides, all lie in one cell of its grid."""
    both_sides = tally.without + tally.with_record
    return tally.trials_per_side > 0 and bool((np.count_nonzero(both_sides, axis=1) == 1).all())


def cuts_of(record: AuditRecord) -> tuple[Cut, ...]:
    """The judged cuts, from a record's points."""
    members = [grid.member for grid in record.grids]
    return tuple(
        Cut(
            target=point.target,
            member=members.index(point.member),
            threshold=point.threshold,
            rejects="above" if point.rejects == "above" else "below",
            risk=point.risk,
            on_alpha=point.on_alpha,
        )
        for point in record.points
    )


def edges_of(record: AuditRecord) -> np.ndarray:
    """The edges of a record's grids, shape (members, edges)."""
    return np.asarray([grid.edges for grid in record.grids], np.float32)


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
        on_alpha=cut.on_alpha,
    )


def _grid(member: int, name: str, edges: np.ndarray, tally: Tally) -> ScoreGrid:
    return ScoreGrid(
        member=name,
        edges=tuple(edges[member].astype(float).tolist()),
        without=tuple(tally.without[member].tolist()),
        with_record=tuple(tally.with_record[member].tolist()),
    )


def claim_part(claim: Claim, delta: float) -> ClaimPart:
    """A claim as records keep it."""
    return ClaimPart(
        name=claim.name,
        parameters=plain(claim.parameters),
        relation=claim.relation,
        unit=claim.unit,
        observation=claim.observation,
        source=claim.source,
        error=claim.error,
        epsilon=claim.epsilon_range(delta).claimed,
        advantage=claim.total_variation,
        curve=_curve(claim.curve),
        times=claim.times,
        steps=claim.steps,
    )


def _curve(curve: TradeOff) -> Curve:
    """At most 200 points of a curve, its ends among them."""
    curve = one_pair(curve)
    tests = from_curve(curve)
    kept = np.unique(np.linspace(0, len(tests.threshold) - 1, 190).astype(int))[::-1]
    alpha, beta = tests.alpha[0, kept], tests.beta[0, kept]
    ends = curve.beta(np.array([0.0, 1.0]))
    return Curve(
        alpha=(0.0, *alpha.tolist(), 1.0),
        beta=(float(ends[0]), *beta.tolist(), float(ends[1])),
    )
