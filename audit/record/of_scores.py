"""Make the record of scores or outputs that somebody gave: the fields of any record, and what is vouched for."""

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
STATED = ("expect", "mechanism", "neighbours", "distinguisher", "key", "environment", "started", "seconds")
"""Fields of a record of scores that nothing else in it implies."""
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
        "diagnoses": (_not_diagnosed(found),) if judgement.verdict == "violation" else (),
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


def _not_diagnosed(found: ScoreBounds | OneRun) -> Diagnosis:
    """Remark on what to run for a diagnosis, since no outputs were kept."""
    numbers = "given scores" if isinstance(found, ScoreBounds) else "the canaries of one training"
    return not_asked(NO_OUTPUTS.format(numbers=numbers), code=NOT_TOLD)


def record_of_scores(found: ScoreBounds) -> AuditRecord:
    """A record of what was judged and proven, with the counts that prove it."""
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
        grids=(ScoreGrid(member=member, **{name: tuple(values.tolist()) for name, values in vars(cells).items()}),),
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
    cells = ScoreCells(**{name: np.asarray(values) for name, values in vars(grid).items() if name != "member"})
    tests = tuple(
        ScoreTest(purpose=point.target, threshold=point.threshold, rejects=point.rejects, counts=point.counts)  # pyright: ignore[reportArgumentType]
        for point in record.points
    )
    for test in tests:
        _require_among(test, cells, all_judged=part.seed is None)
    found = concluded(tests, cells, risk=record.risk, claim=claim, delta=record.report_delta, target=part.target)
    stated = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.name != "target"}
    again = record_of_scores(dataclasses.replace(found, name=record.name, **stated))
    return dataclasses.replace(again, **{name: getattr(record, name) for name in STATED})


def _require_among(test: ScoreTest, cells: ScoreCells, *, all_judged: bool) -> None:
    """Check that the scores of a test are among those of its grid, and all of them if none were set aside to choose."""
    cell = np.searchsorted(cells.edges, test.threshold, side="right")
    sides = [(int(side[cell:].sum()), int(side[:cell].sum())) for side in (cells.without, cells.with_record)]
    counts: ErrorCounts = test.counts
    alarms, hits = counts.false_alarms, counts.trials_with - counts.misses
    judged = [(alarms, counts.trials_without - alarms), (hits, counts.misses)]
    set_aside = np.array(sides) - np.array(judged)[:, :: 1 if test.rejects == "above" else -1]
    if set_aside.min() < 0 or (all_judged and set_aside.any()):
        raise ValueError(f"the test at threshold {test.threshold:g} counts scores that the grid does not have")


def _points(found: ScoreBounds, member: str) -> tuple[ProvenPoint, ...]:
    """The tests, with the band's limits on the error rates of those that reject what lies above."""
    tests_by_purpose, band = Counter(test.purpose for test in found.tests), found.band
    points = []
    for test in found.tests:
        edge = int(np.searchsorted(found.cells.edges, test.threshold))
        limits = Limits(alpha=1.0, beta=1.0)
        if band is not None and test.rejects == "above":
            limits = Limits(alpha=float(band.alpha_upper[edge]), beta=float(band.beta_upper[edge]))
        points.append(
            ProvenPoint(
                target=test.purpose,
                member=member,
                threshold=test.threshold,
                rejects=test.rejects,
                risk=found.shares[test.purpose] / tests_by_purpose[test.purpose],
                counts=test.counts,
                alpha_upper=limits.alpha,
                beta_upper=limits.beta,
            )
        )
    return tuple(points)


def _band(found: ScoreBounds) -> Band:
    """Corners of the band, which its other points do not improve on."""
    band = found.band
    if band is None:
        return Band(risk=0.0, alpha=(), beta=())
    order = np.lexsort((band.beta_upper, band.alpha_upper))
    alpha, beta = band.alpha_upper[order], band.beta_upper[order]
    lower = np.diff(np.minimum.accumulate(beta), prepend=np.inf) < 0
    return Band(risk=band.risk, alpha=tuple(alpha[lower].tolist()), beta=tuple(beta[lower].tolist()))


def _digest(found: ScoreBounds) -> str:
    """Digest of all scores in increasing order, the same for every record of the same scores."""
    digest = hashlib.sha256()
    for side in found.sides:
        digest.update(len(side).to_bytes(8, "little") + np.ascontiguousarray(side, "<f8").tobytes())
    return f"sha256:{digest.hexdigest()[:32]}"
