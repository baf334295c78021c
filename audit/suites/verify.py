"""Records computed again: every bound and verdict from the counts, and counts from trials drawn anew."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any, Literal

import numpy as np

from audit.goal import Goal
from audit.policies.policy import Cut, Finding, Policy, Test
from audit.policies.registry import POLICIES
from audit.record.record import AuditRecord, ProvenPoint
from audit.suites.claim_text import BUILDABLE
from audit.suites.file import Suite
from audit.suites.redraw import differences
from audit.trials.border import sentence
from audit.trials.source import Tally
from guarantees.checks import require
from guarantees.claim import Claim

CLOSE = 1e-6
"""Relative difference that other versions of the numerical libraries may make; a p-value is rounded to 2%."""
P_VALUE_CLOSE = 0.05
State = Literal["right", "wrong", "not checked"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that a record says, and whether it follows from the rest of it."""

    audit: str
    what: str
    state: State
    says: str


def verify(record: AuditRecord, *, rerun: float = 0.0, suite: Suite | None = None) -> tuple[Check, ...]:
    """Every bound and the verdict computed again from the counts alone; ``rerun`` of the trials drawn again.

    Counts of the trials drawn again may exceed the recorded ones in no cell, and equal them where all are drawn. They
    are drawn from what the record names, or from what the ``suite`` does: a user's own code only the suite can name.
    """
    require("rerun", 0 <= rerun <= 1, "in [0, 1]", rerun)
    found = [*_counts(record), *_judged(record)]
    if rerun:
        found.append(_redrawn(record, rerun, suite))
    return tuple(dataclasses.replace(check, audit=record.name) for check in found)


def _check(what: str, wrong: list[str]) -> Check:
    return Check(audit="", what=what, state="wrong" if wrong else "right", says="; ".join(wrong[:3]))


def _skipped(what: str, why: str) -> Check:
    return Check(audit="", what=what, state="not checked", says=why)


def _counts(record: AuditRecord) -> list[Check]:
    """The grids hold every trial, and every judged test has the errors that its grid shows."""
    sums = [
        f"{grid.member}: {sum(side):,} scores {name} where {record.trials_per_side:,} trials were made"
        for grid in record.grids
        for name, side in (("without", grid.without), ("with", grid.with_record))
        if sum(side) != record.trials_per_side
    ]
    tally, members = _tally(record), {grid.member: place for place, grid in enumerate(record.grids)}
    errors = []
    for point in record.points:
        row = np.asarray(record.grids[members[point.member]].edges, np.float32)
        at = int(np.searchsorted(row, np.float32(point.threshold)))
        above = [int(side[members[point.member], at + 1 :].sum()) for side in (tally.without, tally.with_record)]
        n = tally.trials_per_side
        seen = (above[0], n - above[1]) if point.rejects == "above" else (n - above[0], above[1])
        stated = point.counts.false_alarms, point.counts.misses
        if seen != stated:
            errors.append(f"{point.target} at {point.threshold:.6g}: {stated} recorded, {seen} in the grid")
    return [_check("counts sum to the trials", sums), _check("errors of every test are in the grid", errors)]


def _judged(record: AuditRecord) -> list[Check]:
    """The policy's own judgement of the recorded counts against the claim built anew."""
    whats = ("limits", "numbers", "verdict")
    if record.stops_early:
        return [
            _skipped(what, "the audit could stop early: its order of trials is not in the record") for what in whats
        ]
    claim = _claim(record)
    if isinstance(claim, str):
        return [_skipped(what, claim) for what in whats]
    goal = Goal(claim=claim, delta=record.report_delta, trials_per_side=record.trials_per_side, risk=record.risk)
    try:
        finding = _policy(record).judge(_tally(record), _test(record), goal)
    except (ValueError, ArithmeticError, KeyError, TypeError) as error:
        return [_check(what, [f"these tests and counts cannot be judged: {error}"]) for what in whats]
    return [_limits(record, finding), _numbers(record, claim, finding), _verdict(record, finding)]


def _limits(record: AuditRecord, finding: Finding) -> Check:
    if len(finding.points) != len(record.points):
        return _skipped("limits", "the record keeps only the best of many points")
    wrong = [
        f"{said.target}: ({said.alpha_upper:.6g}, {said.beta_upper:.6g}) recorded, ({own.alpha:.6g}, {own.beta:.6g})"
        for said, own in zip(record.points, finding.points, strict=True)
        if not (_close(said.alpha_upper, own.alpha) and _close(said.beta_upper, own.beta))
    ]
    return _check("limits", wrong)


def _numbers(record: AuditRecord, claim: Claim, finding: Finding) -> Check:
    pairs: list[tuple[str, float, float]] = [
        ("claimed epsilon", record.claim.epsilon, claim.epsilon_range(record.report_delta).promised),
        ("claimed delta at 0", record.claim.advantage, float(claim.total_variation)),
    ]
    computed = {number.name: number.at_least for number in finding.numbers}
    pairs += [(number.name, number.at_least, computed.get(number.name, math.nan)) for number in record.numbers]
    wrong = [f"{name}: {said:.6g} recorded, {own:.6g} computed" for name, said, own in pairs if not _close(said, own)]
    return _check("numbers", wrong)


def _verdict(record: AuditRecord, finding: Finding) -> Check:
    own, wrong = finding.judgement, []
    if not _close(record.p_value, own.p_value, P_VALUE_CLOSE):
        wrong.append(f"p-value {record.p_value:.3g} recorded, {own.p_value:.3g} computed")
    if record.verdict != own.verdict:
        wrong.append(f"{record.verdict} recorded, {own.verdict} computed")
    return _check("verdict", wrong)


def _redrawn(record: AuditRecord, share: float, suite: Suite | None) -> Check:
    """Some trials again, from the same key on: their counts must be contained in the recorded ones."""
    what = "trials drawn again"
    try:
        return _check(what, differences(record, share, suite))
    except (TypeError, ValueError, ImportError, RuntimeError) as error:
        return _skipped(what, f"they cannot be drawn: {sentence(error)}")


def _tally(record: AuditRecord) -> Tally:
    return Tally(
        without=np.asarray([grid.without for grid in record.grids], np.int64),
        with_record=np.asarray([grid.with_record for grid in record.grids], np.int64),
        trials_per_side=record.trials_per_side,
    )


def _test(record: AuditRecord) -> Test:
    members = [grid.member for grid in record.grids]
    edges = np.asarray([grid.edges for grid in record.grids], np.float32)

    def cut(point: ProvenPoint) -> Cut:
        return Cut(
            target=point.target,
            member=members.index(point.member),
            threshold=point.threshold,
            rejects=point.rejects,  # type: ignore[arg-type]
            risk=point.risk,
            on_alpha=point.on_alpha,
        )

    return Test(cuts=tuple(map(cut, record.points)), edges=edges, fit_trials=record.fit_trials)


def _policy(record: AuditRecord) -> Policy:
    kind = POLICIES[record.policy["kind"]]
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {key: _tuple(value) for key, value in record.policy.items() if key in fields}
    return kind(**given)


def _claim(record: AuditRecord) -> Claim | str:
    """The claim built anew, or why it cannot be."""
    import guarantees

    part = record.claim
    if part.name not in BUILDABLE:
        return f"the claim {part.name!r} is not one that can be built from its name"
    constructor = getattr(guarantees, part.name)
    given = {key: _tuple(value) for key, value in part.parameters.items()}
    if "relation" in inspect.signature(constructor).parameters:
        given.setdefault("relation", part.relation)
    try:
        claim = constructor(**given)
    except (TypeError, ValueError) as error:
        return f"{part.describe()} cannot be built: {error}"
    return claim.compose(part.times) if part.times > 1 else claim


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _close(stated: float, computed: float, relative: float = CLOSE) -> bool:
    return stated == computed or abs(stated - computed) <= relative * max(abs(stated), abs(computed)) + 1e-12
