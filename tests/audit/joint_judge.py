"""One test judged by its joint p-value alone: what statements of several tests are compared with."""

from __future__ import annotations

from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import GAMMA_SHARE, joint_p_value
from audit.verdict.judgement import JOINTLY, Judgement, Refuted, conclude
from audit.verdict.violated import by_counts
from guarantees.claim import Claim


def judge_jointly(counts: ErrorCounts, claim: Claim, *, risk: float, delta: float) -> Judgement:
    """The verdict by the exact joint p-value of one test; about half the trials of the rectangle suffice.

    [docs/validity.md, section 3]
    """
    p = joint_p_value(counts, claim, gamma=GAMMA_SHARE * risk)
    return conclude(
        claim,
        refuted=Refuted(reason=JOINTLY, at=by_counts(counts, claim, risk=risk)) if p <= risk else None,
        p=p,
        risk=risk,
        delta=delta,
        trials_per_side=counts.trials_without,
        jointly=True,
    )
