"""The record of scores or outputs that somebody gave: the fields of any record, and what is vouched for."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import platform
from collections import Counter
from typing import Any

import numpy as np

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.one_run.result import OneRun
from audit.record.derive import claim_part
from audit.record.diagnosis_answer import NOT_TOLD, Diagnosis, not_asked
from audit.record.record import AuditRecord, Band, Part, ProvenPoint, ScoreGrid
from audit.record.vouched import ScoresPart
from audit.trials.versions import own_code, version_of
from audit.verdict.score_bounds import ScoreBounds, ScoreCells, ScoreTest, concluded
from guarantees.claim import Claim

GIVEN, CHOSEN = "given", "chosen_on_a_tenth_of_the_scores"
"""How thresholds were fixed."""
TOLD = ("expect", "mechanism", "neighbours", "distinguisher", "key", "environment", "started", "seconds")
"""What a record of scores says and nothing in it implies."""
NO_OUTPUTS = (
    "{numbers} do not show the cause, which needs outputs of many runs of one step. Pass that step to "
    "`audit.run_audit` for what looks wrong in its outputs, and to `audit.explain` for wrong lines of its code."
)


def judged_here(found: ScoreBounds | OneRun) -> dict[str, Any]:
    """The fields that records of numbers share which somebody else drew.

    Raises:
      ValueError: no claim was judged.
    """
    claim, judgement = found.claim, found.judgement
    if claim is None or judgement is None:
        call = "from_scores" if isinstance(found, ScoreBounds) else "one_run"
        raise ValueError(f"{found.name!r} judged no claim, and a record needs one; give claim= to {call}.")
    return {
        **{name: getattr(found, name) for name in ("name", "risk", "report_delta")},
        **{name: getattr(judgement, name) for name in ("verdict", "reason", "p_value")},
        "adjusted_p_value": judgement.p_value,
        "diagnoses": (_undiagnosed(found),) if judgement.verdict == "violation" else (),
        "expect": "no_violation_found",
        "stops_early": False,
        "theory": None,
        "claim": claim_part(claim, found.report_delta),
        "environment": {
            "dpsgd_audit": version_of("dpsgd-audit"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "own_code": own_code(),
        },
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": 0.0,
    }


def _undiagnosed(found: ScoreBounds | OneRun) -> Diagnosis:
    """Nobody asked what looks wrong, as no outputs are kept: what to run instead."""
    numbers = "given scores" if isinstance(found, ScoreBounds) else "the canaries of one training"
    return not_asked(NO_OUTPUTS.format(numbers=numbers), code=NOT_TOLD)


def record_of_scores(found: ScoreBounds) -> AuditRecord:
    """What was judged and proven, with the counts that prove it."""
    shared, cells = judged_here(found), found.cells
    claim, judgement = found.claim, found.judgement
    assert claim is not None
    assert judgement is not None
    part = ScoresPart(**{field.name: getattr(found, field.name) for field in dataclasses.fields(ScoresPart)})
    counts, given = found.tests[0].counts, int(cells.without.sum() + cells.with_record.sum())
    judged = counts.trials_without + counts.trials_with
    member = "given score" if found.learned_from is None else "learned score"
    return AuditRecord(
        **shared,
        trials=judged,
        trials_planned=judged,
        fit_trials=given - judged + sum(found.learned_from or ()),
        policy={"kind": GIVEN if found.seed is None else CHOSEN},
        points=_points(found, member),
        numbers=found.numbers,
        budget=found.budget,
        mechanism=Part(name=f"given {part.what}", parameters={}),
        neighbours=Part(name="given", parameters={}, kind="" if claim.relation == "any" else claim.relation),
        distinguisher=Part(
            name=member, parameters=dict(zip(("fit_without", "fit_with"), found.learned_from or (), strict=False))
        ),
        grids=(ScoreGrid(member=member, **{name: tuple(own.tolist()) for name, own in vars(cells).items()}),),
        band=_band(found),
        detectable_advantage_excess=judgement.detectable.tv_excess,
        detectable_epsilon=judgement.detectable.epsilon,
        trials_needed=judgement.trials_needed,
        key=_digest(found),
        violated_at=judgement.violated_at,
        scores=part,
    )


def scores_judged_again(record: AuditRecord, claim: Claim) -> AuditRecord:
    """A record of scores made again from its counts and the claim.

    Raises:
      ValueError: the counts of a test are not among those of its grid.
    """
    part, (grid,) = record.scores, record.grids
    assert part is not None
    cells = ScoreCells(**{name: np.asarray(own) for name, own in vars(grid).items() if name != "member"})
    tests = tuple(
        ScoreTest(purpose=point.target, threshold=point.threshold, rejects=point.rejects, counts=point.counts)  # pyright: ignore[reportArgumentType]
        for point in record.points
    )
    for test in tests:
        _require_among(test, cells, all_judged=part.seed is None)
    found = concluded(tests, cells, risk=record.risk, claim=claim, delta=record.report_delta, target=part.target)
    told = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.name != "target"}
    made = record_of_scores(dataclasses.replace(found, name=record.name, **told))
    return dataclasses.replace(made, **{name: getattr(record, name) for name in TOLD})


def _require_among(test: ScoreTest, cells: ScoreCells, *, all_judged: bool) -> None:
    """Scores that were set aside are counted in the grid and not in the test; where none were, both are the same."""
    at = np.searchsorted(cells.edges, test.threshold, side="right")
    sides = [(int(side[at:].sum()), int(side[:at].sum())) for side in (cells.without, cells.with_record)]
    own: ErrorCounts = test.counts
    alarms, hits = own.false_alarms, own.trials_with - own.misses
    judged = [(alarms, own.trials_without - alarms), (hits, own.misses)]
    left = np.array(sides) - np.array(judged)[:, :: 1 if test.rejects == "above" else -1]
    if left.min() < 0 or (all_judged and left.any()):
        raise ValueError(f"the test at threshold {test.threshold:g} counts scores that the grid does not have")


def _points(found: ScoreBounds, member: str) -> tuple[ProvenPoint, ...]:
    """The tests, with the band's limits on their error rates: it speaks of tests that reject what lies above."""
    tests, band = Counter(test.purpose for test in found.tests), found.band
    points = []
    for test in found.tests:
        at = int(np.searchsorted(found.cells.edges, test.threshold))
        limits = Limits(alpha=1.0, beta=1.0)
        if band is not None and test.rejects == "above":
            limits = Limits(alpha=float(band.alpha_upper[at]), beta=float(band.beta_upper[at]))
        points.append(
            ProvenPoint(
                target=test.purpose,
                member=member,
                threshold=test.threshold,
                rejects=test.rejects,
                risk=found.shares[test.purpose] / tests[test.purpose],
                counts=test.counts,
                alpha_upper=limits.alpha,
                beta_upper=limits.beta,
            )
        )
    return tuple(points)


def _band(found: ScoreBounds) -> Band:
    """Its corners: no other point of it says more."""
    band = found.band
    if band is None:
        return Band(risk=0.0, alpha=(), beta=())
    order = np.lexsort((band.beta_upper, band.alpha_upper))
    alpha, beta = band.alpha_upper[order], band.beta_upper[order]
    lower = np.diff(np.minimum.accumulate(beta), prepend=np.inf) < 0
    return Band(risk=band.risk, alpha=tuple(alpha[lower].tolist()), beta=tuple(beta[lower].tolist()))


def _digest(found: ScoreBounds) -> str:
    """Of all scores in increasing order: two records of the same scores have the same one."""
    digest = hashlib.sha256()
    for side in found.sides:
        digest.update(len(side).to_bytes(8, "little") + np.ascontiguousarray(side, "<f8").tobytes())
    return f"sha256:{digest.hexdigest()[:32]}"
