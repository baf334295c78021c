"""Foresee before the first trial that so few can decide nothing unless a violation is found."""

from __future__ import annotations

from audit.goal import Goal
from audit.policies.policy import Policy
from audit.power.joint_power import FEW_TRIALS
from audit.verdict.judgement import conclude


def too_few(rule: Policy, goal: Goal) -> str | None:
    """Say how many trials are needed if these can only end inconclusive without a violation; None if they are enough.

    It follows from claim, trials and risk if the joint test decides, and judging uses what is computed here. The power
    of fewer than ``FEW_TRIALS`` takes seconds to compute: they are too few if these, and a quarter more, are. None also
    for policies without a verdict by the joint test.
    """
    share = 0.0 if rule.stops_early else rule.budget((), goal).verdict
    if share == 0:
        return None
    trials = goal.trials_per_side
    found = conclude(
        goal.claim,
        refuted=None,
        p=1.0,
        risk=share,
        delta=goal.delta,
        trials_per_side=trials if trials >= FEW_TRIALS else max(FEW_TRIALS, trials * 5 // 4),
        jointly=True,
    )
    if found.verdict != "inconclusive":
        return None
    enough = f"With the best score {found.trials_needed:,}" if found.trials_needed else "No feasible number of"
    return (
        f"{2 * trials:,} trials can find a violation, but without one the verdict will be 'inconclusive'. "
        f"{enough} trials would be enough."
    )
