"""Deviations that no equation tells: estimated from the draws of several runs, with their errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs.facts import Release

SLACK = 0.02
"""By which a multiplier may fall short of the stated one: rounding, and the first digits of a stated number."""
GUESSED_SLACK = 0.06
ERRORS = 4.0
"""Standard errors by which an estimated deviation must fall short."""

FEWEST = 24
"""Numbers of an unknown law that are all zero before its deviation is called zero, too."""
TOO_FEW = "the few numbers of its noise are all zero"


def effective(drawn: np.ndarray) -> float:
    """How many normal numbers would tell a deviation as well as these do: numbers that are mostly zero tell less."""
    squares = np.square(drawn - np.mean(drawn))
    spread = np.var(squares) / np.mean(squares) ** 2 if np.any(squares) else 2.0
    return float(drawn.size * 2 / max(2.0, spread))


def pool(runs: Sequence[Sequence[Release]]) -> None:
    """Deviations that no equation tells are estimated from the draws of all runs together."""
    if len({len(releases) for releases in runs}) != 1:
        return
    for same in zip(*runs, strict=True):
        for release, told in zip(same, [_pooled(release, same) for release in same], strict=True):
            release.variance, release.drawn, release.unknown = told.variance, told.drawn, told.unknown


def _pooled(release: Release, same: Sequence[Release]) -> Release:
    """One release with the deviation that all runs tell together, if no equation does."""
    if any(one.exact for one in same):
        return release
    variance, drawn = np.mean([np.mean(one.variance) for one in same]), sum(one.drawn for one in same)
    unknown = release.unknown or (TOO_FEW if variance == 0 and drawn < FEWEST else None)
    return dataclasses.replace(release, variance=np.full(release.moved.shape, variance), drawn=drawn, unknown=unknown)


def unsure(runs: Sequence[Sequence[Release]], due: float | None) -> bool:
    """Whether the deviation of some round seems too small, but not by enough standard errors: more runs would tell."""
    rounds: dict[Any, list[Release]] = {}
    for same in zip(*runs, strict=True) if due and len(set(map(len, runs))) == 1 else ():
        top = max(same, key=lambda release: float(np.linalg.norm(release.moved)))
        rounds.setdefault(top.round, []).append(_pooled(top, same))
    if any(release.unknown == TOO_FEW for own in rounds.values() for release in own):
        return True
    judged = [own for own in rounds.values() if not any(release.unknown for release in own)]
    return any(falls_short(own, due, errors=1.0) and not falls_short(own, due) for own in judged)


def falls_short(releases: Sequence[Release], due: float | None, errors: float = ERRORS) -> bool:
    """Whether the noise of a round is too little, by so many standard errors where draws tell its deviation."""
    slack = SLACK if all(release.exact for release in releases) else GUESSED_SLACK
    costs = [one.cost / (1 + errors / np.sqrt(2 * one.drawn) if one.drawn else 1.0) for one in releases]
    return bool(due and np.linalg.norm(costs) * due > 1 + slack)
