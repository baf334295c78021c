"""What all rounds of a transcript cost together, where the claim says nothing of a single one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.rounds import SLACK, by_round, cost, is_judged, length
from audit.diagnosis.explain.jaxprs.runs import Program, Run
from audit.diagnosis.explain.places import frames_of, spelled


def dear_together(program: Program, runs: Sequence[Run], allowed: float | None) -> list[Finding]:
    """That rounds cost a larger mu together than the claim has for all of them.

    Nothing is said where draws choose batches or serve several rounds, nor of deviations that were estimated.
    [dong2022, Corollary 3.3]
    """
    for run in runs if allowed is not None and program.rounds > 1 else ():
        if run.lockstep.meetings.together.apart:
            continue
        rounds = list(by_round(program, run).values())
        releases = [release for own in rounds for release in own]
        if not all(map(is_judged, rounds)) or any(one.choosing or not one.exact for one in releases):
            continue
        untold = [one for one in releases if not one.shares and (one.terms is None or one.terms.numbers is None)]
        if any(one is not other and one.covering & other.covering for one in untold for other in releases):
            continue
        costs = [cost(own) for own in rounds]
        total = float(np.linalg.norm(costs))
        if allowed is None or not (1 + SLACK) * allowed < total < np.inf:
            continue
        top = max(releases, key=lambda release: release.cost)
        at = top.draw if top.resized is None else top.resized.at
        number = sum(length(program, own) for own in rounds)
        meant = f" If the claim is meant for one round, state gaussian(mu={allowed:.4g}).compose({number})."
        says = (
            f"The {number} rounds cost mu = {total:.4g} together, but the claim allows {allowed:.4g} for all of "
            f"them: their noise, added at {spelled(top.at)} and drawn at {spelled(top.draw)}, would have to be "
            f"{total / allowed:.4g} times as large.{meant if number == len(rounds) else ''}"
        )
        return [Finding(kind=Kind.TOO_LITTLE_NOISE, lines=frames_of([at, top.at, top.draw]), says=says)]
    return []
