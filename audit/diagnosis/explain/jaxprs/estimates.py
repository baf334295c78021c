"""Deviations that no equation tells: estimated from the draws of several runs, with their errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.diagnosis.explain.jaxprs.facts import Release

SLACK = 0.02
"""By which a multiplier may fall short of the stated one: rounding, and the first digits of a stated number."""
GUESSED_SLACK = 0.06
ERRORS = 4.0
"""Standard errors by which an estimated deviation must fall short."""


def pool(runs: Sequence[Sequence[Release]]) -> None:
    """Deviations that no equation tells are estimated from the draws of all runs together."""
    if len({len(releases) for releases in runs}) != 1:
        return
    for same in zip(*runs, strict=True):
        if not any(release.exact for release in same):
            variance = np.mean([np.mean(release.variance) for release in same])
            for release in same:
                release.variance, release.drawn = np.full(release.moved.shape, variance), release.drawn * len(same)


def unsure(told: Sequence[Sequence[Release]], due: float | None) -> float:
    """By how many standard errors noise seems too little whose deviation is estimated; 0 where that is no question.

    From four on it is told.
    """
    most = 0.0
    for same in zip(*told, strict=True) if due and len(set(map(len, told))) == 1 else ():
        drawn = sum(release.drawn for release in same)
        moved = max(float(np.linalg.norm(release.moved)) for release in same)
        if drawn and not any(release.exact or release.unknown for release in same):
            deviation = np.sqrt(np.mean([np.mean(release.variance) for release in same]))
            short = moved * (due or 0.0) / deviation - 1 - GUESSED_SLACK
            most = max(most, short * np.sqrt(2 * drawn))
    return most if most < ERRORS else 0.0


def slack(releases: Sequence[Release]) -> float:
    """How far a right multiplier may seem to fall short; four standard errors where draws tell the deviation."""
    if not releases or all(release.exact for release in releases):
        return SLACK
    return GUESSED_SLACK + max(ERRORS / np.sqrt(2 * one.drawn) if one.drawn else 0.0 for one in releases)
