"""What is wrong of sums of clipped records, and may be right of another statistic that gets noise once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.rounds import SLACK
from audit.diagnosis.explain.jaxprs.runs import Run
from audit.diagnosis.explain.missing_noise import EARLIER
from audit.diagnosis.explain.places import Place, spelled
from audit.diagnosis.explain.sentences import not_followed

ONCE = (
    "{at} computes from all records what it then combines with each, as a variance or an optimiser does, and noise is "
    "added once: whether it covers that, trials tell"
)
SMOOTH = (
    "{at} lets the records decide the noise's deviation, as smooth sensitivity does: whether it covers them, trials "
    "tell"
)


def left_to_trials(findings: Sequence[Finding], runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """The findings, of which some are not judged where nobody states that records are clipped.

    Only of code whose one release costs no more on this pair than the claim allows.
    """
    releases = [one for run in runs for one in run.lockstep.meetings.releases]
    clips = stated.clip is not None or stated.rate is not None or not (stated.of_the_pair or stated.due is None)
    dear = any(one.cost * (stated.due or 0.0) > 1 + SLACK for one in releases)
    if clips or dear or len(releases) > len(runs):
        return list(findings)
    weighted = any(one.weights for one in releases)
    smooth = stated.of_answers is not None and any(one.kind == Kind.NOISE_SCALE_FROM_DATA for one in findings)
    told = []
    for one in findings:
        mixed = one.kind == Kind.RECORDS_MIXED_BEFORE_SUM and not weighted
        earlier = one.kind == Kind.RELEASED_WITHOUT_NOISE and one.says.startswith(EARLIER)
        scaled = smooth and not weighted and one.kind in (Kind.NOISE_SCALE_FROM_DATA, Kind.CLIPPED_AFTER_SUM)
        if mixed or earlier or scaled:
            why = (SMOOTH if scaled else ONCE).format(at=spelled(Place(own=one.lines[:1])))
            one = dataclasses.replace(not_followed(why), lines=one.lines)
        told.append(one)
    return told
