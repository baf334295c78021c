"""Bounds for people who already have scores, from anywhere."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from audit.bounds.band import middle_share
from audit.bounds.clopper_pearson import ErrorCounts, Limits, require_risk
from audit.bounds.local_levels import band_from_scores, rate_band
from audit.bounds.points import proven_delta, proven_epsilon, proven_mu, rectangles
from audit.verdict.judgement import Judgement, judge
from audit.verdict.verdict import Verdict
from guarantees.checks import require
from guarantees.claim import Claim

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
    judgement: Judgement | None
    """The verdict with its reason and p-value, where a claim was given."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim, in the words of a record; None where no claim was given."""
        return None if self.judgement is None else self.judgement.verdict

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``; all bounds hold together at the risk."""
        return max(proven_epsilon(self.limits, delta=delta))

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta at ``epsilon``."""
        return max(proven_delta(self.limits, epsilon=epsilon))

    @property
    def mu(self) -> float:
        """Proven lower bound on mu."""
        return proven_mu(self.limits)


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

    With ``thresholds`` (fixed before looking at the scores) they share the risk. Without, a band that holds at every
    threshold at once pays for the choice [docs/validity.md, section 6]. ``conditions`` lists what no computation can
    check and the user must vouch for.
    """
    require_risk(risk)
    zero, one = _scores("without", without), _scores("with_record", with_record)
    conditions = (*CONDITIONS, FIXED_CONDITION) if thresholds else CONDITIONS
    cuts = np.array(thresholds, float) if thresholds else _telling(zero, one, risk=risk)
    counts = tuple(_counts(zero, one, t) for t in cuts)

    def points_at(level: float) -> tuple[Limits, ...]:
        if thresholds:
            return rectangles(counts, np.full(len(counts), level / len(counts)))
        alpha = rate_band(len(zero), risk=level / 2).upper([c.false_alarms for c in counts])
        beta = rate_band(len(one), risk=level / 2).upper([c.misses for c in counts])
        return tuple(Limits(alpha=float(a), beta=float(b)) for a, b in zip(alpha, beta, strict=True))

    judgement = None
    if claim is not None:
        judgement = judge(
            points_at,
            claim,
            risk=risk,
            largest_share=1 / len(counts) if thresholds else middle_share(min(len(zero), len(one)), risk=risk),
            delta=delta,
            trials_per_side=min(len(zero), len(one)),
        )
    return ScoreBounds(
        counts=counts,
        thresholds=tuple(cuts.tolist()),
        limits=points_at(risk),
        risk=risk,
        conditions=conditions,
        judgement=judgement,
    )


def _counts(zero: np.ndarray, one: np.ndarray, threshold: float) -> ErrorCounts:
    """Errors of the test 'above the threshold'; both arrays are sorted."""
    return ErrorCounts(
        false_alarms=len(zero) - int(np.searchsorted(zero, threshold, side="right")),
        trials_without=len(zero),
        misses=int(np.searchsorted(one, threshold, side="right")),
        trials_with=len(one),
    )


def _telling(zero: np.ndarray, one: np.ndarray, *, risk: float) -> np.ndarray:
    """Thresholds at which the band proves most: it holds at all of them, so they may be chosen by looking."""
    band = band_from_scores(zero, one, risk=risk)
    a, b = band.alpha_upper, band.beta_upper
    with np.errstate(divide="ignore"):
        kept = [
            np.argmax(np.maximum(1 - error - delta, 0.0) / other)
            for delta in (0.0, *np.logspace(-10, -1, 10))
            for error, other in ((a, b), (b, a))
        ]
    kept += [np.argmin(a + np.exp(epsilon) * b) for epsilon in np.linspace(-5, 5, 21)]
    kept += np.linspace(0, len(a) - 1, 100).astype(int).tolist()
    return band.threshold[np.unique(kept)]


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
    return np.sort(scores)
