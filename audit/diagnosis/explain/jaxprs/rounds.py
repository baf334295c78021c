"""The rounds of a run, what each of them cost, and deviations that are estimated from the draws of several runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.findings import Round
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.runs import Program, Run

ROUNDS_TOGETHER = "the rounds of the transcript cannot be told apart"
SLACK = 0.02
"""By which a multiplier may fall short of the stated one: rounding, and the first digits of a stated number."""
GUESSED_SLACK = 0.06
ERRORS = 4.0
"""Standard errors by which an estimated deviation must fall short."""
FEWEST = 24
"""Numbers of an unknown law that are all zero before its deviation is called zero, too."""
TOO_FEW = "the few numbers of its noise are all zero"


def by_round(program: Program, run: Run) -> dict[tuple[Any, ...], list[Release]]:
    """The releases of a run, by the round that they belong to."""
    rounds: dict[tuple[Any, ...], list[Release]] = {}
    meetings = run.lockstep.meetings
    for release in meetings.together.charged(meetings.releases):
        rounds.setdefault(release.round, []).append(release)
    # a step of a loop that alone has releases is one round: the others have no noise
    together = len(rounds) == 1 < program.rounds and all(len(name) == 1 for name in rounds)
    return _unrolled(program.rounds, rounds) if together else rounds


def first_round(program: Program, run: Run) -> list[Release]:
    """The releases of the first round."""
    if not run.ended:
        return next(iter(by_round(program, run).values()), [])
    releases = run.lockstep.meetings.releases
    return [release for release in releases if release.round == releases[0].round]


def _unrolled(number: int, rounds: dict[tuple[Any, ...], list[Release]]) -> dict[tuple[Any, ...], list[Release]]:
    """The rounds of a loop in Python whose steps do not read one another; their releases come in the loop's order."""
    (name, releases), size = next(iter(rounds.items())), sum(map(len, rounds.values())) // number
    parts = [releases[start : start + size] for start in range(0, size * number, size)] if size else []
    shapes = {tuple(release.moved.shape for release in part) for part in parts}
    if size * number == len(releases) and len(shapes) == 1:
        return {(*name, step): part for step, part in enumerate(parts)}
    if all(release.moved.shape[:1] == (number,) and not release.blocks for release in releases):
        # noise was added to all rounds at once
        return {(*name, step): [_row(release, step) for release in releases] for step in range(number)}
    return {name: [dataclasses.replace(one, unknown=one.unknown or ROUNDS_TOGETHER) for one in releases]}


def _row(release: Release, step: int) -> Release:
    return dataclasses.replace(release, moved=release.moved[step], variance=release.variance[step], terms=None)


def is_judged(releases: Sequence[Release]) -> bool:
    """Whether what a round costs is known."""
    return not any(release.unknown for release in releases)


def cost(releases: Sequence[Release]) -> float:
    """Of a round: one over its multiplier."""
    return float(np.sqrt(sum(release.cost**2 for release in releases)))


def sensitivity(releases: Sequence[Release]) -> float:
    """How far the record moves all of a round."""
    return float(np.sqrt(sum(np.sum(np.square(one.moved)) for one in releases)))


def deviation(releases: Sequence[Release]) -> float:
    """Of one coordinate of a round's noise; root mean square where coordinates differ."""
    return float(np.sqrt(np.mean(np.concatenate([one.variance.ravel() for one in releases]))))


def rounds_told(program: Program, runs: Sequence[Run]) -> tuple[Round, ...]:
    """Of every round the run in which it cost most, among those in which all of it was followed if there are any."""
    worst: dict[tuple[Any, ...], list[Release]] = {}

    def rank(releases: Sequence[Release]) -> tuple[bool, float]:
        return is_judged(releases), cost(releases)

    for run in runs:
        for number, releases in by_round(program, run).items():
            if number not in worst or rank(releases) > rank(worst[number]):
                worst[number] = releases
    told = []
    for number, releases in enumerate(worst.values(), start=1):
        top, paid = max(releases, key=lambda release: release.cost), cost(releases)
        far, multiplier = sensitivity(releases), 1 / paid if paid else float("inf")
        told.append(
            Round(
                number=number,
                sensitivity=far,
                noise_deviation=far * multiplier if far and paid else deviation(releases),
                multiplier=multiplier,
                lines=(*top.at.own[:1], *top.at.library),
                exact=all(one.exact for one in releases),
                judged=is_judged(releases),
            )
        )
    return tuple(told)


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
