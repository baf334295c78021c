"""A leaf with less noise than its record may move it by: the record at hand hardly moves it, another one would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.missing_noise import short_of_noise
from audit.diagnosis.explain.places import Place

ALIKE = 1e-5
"""Relative difference of factors that are one number, computed leaf by leaf."""
APART = 1e-3
"""Relative difference of lengths that no chance makes alike."""
SLACK = 0.02


def short_leaves(rounds: Iterable[Sequence[Release]], due: float | None) -> list[Finding]:
    """Leaves whose noise is less than is due to a record whose whole gradient lies in them.

    Leaves that are multiplied by one number, which cuts the record, are clipped together: one of them alone may be as
    long as all of them are now. Leaves with bounds of their own may have noise of their own.
    """
    if due is None:
        return []
    found: dict[Place, Finding] = {}
    for releases in rounds:
        if not _clipped_together(releases):
            continue
        length = float(np.sqrt(sum(np.sum(np.square(release.moved)) for release in releases)))
        deviations = [float(np.sqrt(np.min(release.variance))) for release in releases]
        if max(deviations) * (1 + SLACK) < due * length:
            # all of them are short: nothing is said of one
            continue
        for release, deviation in zip(releases, deviations, strict=True):
            if deviation * (1 + SLACK) < due * length:
                found.setdefault(release.at, _short(release, deviation, max(deviations), length, due))
    return list(found.values())


def _short(release: Release, deviation: float, others: float, length: float, due: float) -> Finding:
    return short_of_noise(
        release.output,
        at=release.at,
        draw=release.draw,
        deviation=deviation,
        others=others,
        length=length,
        due=due,
    )


def _clipped_together(releases: Sequence[Release]) -> bool:
    weights = [release.weighted for release in releases]
    if len(releases) < 2 or not all(release.exact and not release.unknown for release in releases):
        return False
    leaves = {release.output for release in releases}
    if any(weight is None for weight in weights) or "" in leaves or len(leaves) < len(releases):
        # what is released in several steps has the units of its step
        return False
    by = [weight.by for weight in weights if weight is not None]
    before = [weight.before for weight in weights if weight is not None]
    cuts = 0 < max(by) < 1 - APART
    return cuts and bool(np.ptp(by) <= ALIKE * max(by) and np.ptp(before) > APART * max(before))
