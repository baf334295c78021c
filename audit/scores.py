"""Bounds for people who already have scores, from anywhere."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from audit import evidence
from audit.bounds import ErrorCounts, Limits, require_risk
from audit.verdict import Verdict, judge
from guarantees.claim import Claim, require

CONDITIONS = (
    "the trials are independent: each score comes from its own run of the mechanism with fresh randomness",
    "the distinguisher that made the scores was fixed, and trained on other trials, before these were drawn",
)
FIXED_CONDITION = "the threshold was chosen before looking at these scores"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreBounds:
    """Proven lower bounds from given scores, and what the user must vouch for."""

    counts: tuple[ErrorCounts, ...]
    thresholds: tuple[float, ...]
    limits: tuple[Limits, ...]
    risk: float
    conditions: tuple[str, ...]
    verdict: Verdict | None

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``; all bounds hold together at the risk."""
        return max(evidence.epsilon(self.limits, delta=delta))

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta at ``epsilon``."""
        return max(evidence.delta(self.limits, epsilon=epsilon))

    @property
    def mu(self) -> float:
        """Proven lower bound on mu."""
        return evidence.mu(self.limits)


def from_scores(
    without: ArrayLike,
    with_record: ArrayLike,
    *,
    risk: float,
    thresholds: tuple[float, ...] = (),
    claim: Claim | None = None,
    delta: float = 1e-5,
) -> ScoreBounds:
    """Valid bounds from scores on the two datasets.

    With ``thresholds`` (fixed before looking at the scores) they share the risk. Without, the scores are split:
    every second one chooses three thresholds, the others judge them. ``conditions`` lists what no computation can
    check and the user must vouch for.
    """
    require_risk(risk)
    zero, one = _scores("without", without), _scores("with_record", with_record)
    conditions = CONDITIONS
    if thresholds:
        conditions = (*CONDITIONS, FIXED_CONDITION)
        cuts = tuple(float(t) for t in thresholds)
    else:
        cuts = _chosen(zero[::2], one[::2], risk=risk, delta=delta, claim=claim)
        zero, one = zero[1::2], one[1::2]
    counts = tuple(
        ErrorCounts(
            false_alarms=int((zero > t).sum()),
            trials_without=len(zero),
            misses=int((one <= t).sum()),
            trials_with=len(one),
        )
        for t in cuts
    )
    share = 1 / len(cuts)

    def evidence_at(level: float) -> tuple[Limits, ...]:
        return evidence.proven(counts, np.full(len(counts), level * share))

    verdict = None
    if claim is not None:
        verdict = judge(
            evidence_at,
            claim,
            risk=risk,
            largest_share=share,
            delta=delta,
            trials_per_side=min(len(zero), len(one)),
        )
    return ScoreBounds(
        counts=counts,
        thresholds=cuts,
        limits=evidence_at(risk),
        risk=risk,
        conditions=conditions,
        verdict=verdict,
    )


def _chosen(zero: np.ndarray, one: np.ndarray, *, risk: float, delta: float, claim: Claim | None) -> tuple[float, ...]:
    """Thresholds for the verdict (if there is a claim), epsilon and delta, from the fit half."""
    from audit import thresholds as policies
    from guarantees.families import gaussian

    targets = policies.TARGETS if claim is not None else policies.TARGETS[1:]
    candidates = policies.from_fit(zero[:, None], one[:, None], both_sides=False)
    goal = policies.Goal(
        # without a claim no objective looks at it
        claim=claim or gaussian(mu=1.0),
        delta=delta,
        trials_per_side=min(len(zero), len(one)),
        risk=risk / len(targets),
    )
    return tuple(policies.choose(candidates, target, goal).threshold for target in targets)


def _scores(name: str, values: ArrayLike) -> np.ndarray:
    """A one-dimensional array of finite numbers, or an error that says what is wrong and where."""
    scores = np.asarray(values)
    require(name, scores.ndim == 1, "a one-dimensional array of scores", f"shape {scores.shape}")
    require(name, len(scores) >= 4, "at least four scores", f"{len(scores)} scores")
    require(name, np.issubdtype(scores.dtype, np.number), "an array of numbers", scores.dtype)
    scores = scores.astype(float)
    if not np.isfinite(scores).all():
        where = int(np.argmin(np.isfinite(scores)))
        raise ValueError(
            f"{name}[{where}] is {scores[where]}; a score must be finite. Repair the trial, do not drop it."
        )
    return scores
