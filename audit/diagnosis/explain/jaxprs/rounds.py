"""The rounds of a run, and what each of them cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.findings import Round
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.runs import Program, Run

ROUNDS_TOGETHER = "the rounds of the transcript cannot be told apart"


def by_round(program: Program, run: Run) -> dict[tuple[Any, ...], list[Release]]:
    """The releases of a run, by the round that they belong to."""
    rounds: dict[tuple[Any, ...], list[Release]] = {}
    meetings = run.lockstep.meetings
    for release in meetings.together.charged(meetings.releases):
        rounds.setdefault(release.round, []).append(release)
    # a step of a loop that alone has releases is one round: the others have no noise
    together = len(rounds) == 1 < program.rounds and all(len(name) == 1 for name in rounds)
    return _unrolled(program.rounds, rounds) if together else rounds


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
        told.append(
            Round(
                number=number,
                sensitivity=sensitivity(releases),
                noise_deviation=deviation(releases),
                multiplier=1 / paid if paid else float("inf"),
                lines=(*top.at.own[:1], *top.at.library),
                exact=all(one.exact for one in releases),
                judged=is_judged(releases),
            )
        )
    return tuple(told)
