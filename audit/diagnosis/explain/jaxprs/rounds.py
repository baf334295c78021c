"""The rounds of a run, what each of them cost, and those whose noise is too small, with the line that is the cause."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np

from audit.diagnosis.explain.findings import LARGEST_ERROR, Round
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.runs import Program, Run

SHARED = "rounds whose noise shares random numbers cost more than independent ones, which no claim of a mu allows for"
ROUNDS_TOGETHER = "explain cannot separate the rounds of the transcript"
SLACK = 0.02
"""By which a multiplier may fall short of the stated one: rounding, and the first digits of a stated number."""
GUESSED_SLACK = 0.06
ERRORS = 4.0
"""Standard errors by which an estimated deviation must fall short."""
FEWEST = 24
"""Numbers of an unknown law that are all zero before its deviation is called zero, too."""
TOO_FEW = "the few numbers of its noise are all zero"


def by_round(program: Program, run: Run, *, apart: bool = False) -> dict[tuple[Any, ...], list[Release]]:
    """The releases of a run, by the round that they belong to; those that share noise stand in the first of theirs.

    Told ``apart``, none share any.
    """
    rounds: dict[tuple[Any, ...], list[Release]] = {}
    meetings = run.lockstep.meetings
    for release in meetings.together.charged(meetings.releases, apart=apart):
        rounds.setdefault(release.round, []).append(release)
    # a step of a loop that alone has releases is one round: the others have no noise
    together = len(rounds) == 1 < program.rounds and all(len(name) == 1 for name in rounds)
    if together and not any(release.shares for own in rounds.values() for release in own):
        rounds = _unrolled(program.rounds, rounds)
    told = (part for one in rounds.items() for part in _one_by_one(*one, meetings.together.apart))
    return {name: _compared(program, own) for name, own in told}


def _one_by_one(name: tuple[Any, ...], releases: list[Release], apart: Set[Release]) -> Iterator[tuple[Any, Any]]:
    """A round, and as others those of its releases that one draw covers and that are told one by one."""
    draws = collections.Counter(draw for one in releases if one in apart for draw in one.covering)
    alone = [one for one in releases if one in apart and any(draws[draw] > 1 for draw in one.covering)]
    yield from ((name, own) for own in [[one for one in releases if one not in alone]] if own)
    yield from (((*name, number), [one]) for number, one in enumerate(alone))


def _compared(program: Program, releases: list[Release]) -> list[Release]:
    """Rounds that share noise: not judged where they cost more than others would, and the claim is about each."""
    due = due_of(program, releases)
    shared = any(one.shares for one in releases)
    if not shared or due is None or program.stated.mu_of_all or cost(releases) * due <= 1 + SLACK:
        return releases
    several = len(_rounds_of(program, releases, moved=True)) > 1
    return [dataclasses.replace(one, unknown=one.unknown or SHARED) for one in releases] if several else releases


def _rounds_of(program: Program, releases: Sequence[Release], *, moved: bool) -> set[Any]:
    """The rounds of releases that share noise, or those that the record moves; of Python's loops at most so many."""
    found: set[Any] = set()
    for one in (own for release in releases for own in release.shares or (release,)):
        if not (moved and not one.cost):
            rows = np.reshape(one.moved, (program.rounds, -1)) if one.moved.shape[:1] == (program.rounds,) else None
            unrolled = program.rounds > 1 and len(one.round) == 1
            steps = [id(one)] if rows is None else [row for row, by in enumerate(rows) if by.any() or not moved]
            found.update((*one.round, step) for step in steps) if unrolled else found.add(one.round)
    return found


def length(program: Program, releases: Sequence[Release]) -> int:
    """How many rounds are told as one, since their noise shares random numbers."""
    # of one output the record's own parts alone are told apart: others may be parts of one batch
    moved = program.rounds == 1
    return max(1, len(_rounds_of(program, releases, moved=moved))) if any(one.shares for one in releases) else 1


def due_of(program: Program, releases: Sequence[Release]) -> float | None:
    """Smallest allowed ratio of noise to movement; of several rounds that share noise what all of them may cost."""
    stated = program.stated
    if stated.due is None or not any(one.shares for one in releases):
        return stated.due
    if stated.mu_of_all is not None:
        return stated.due if len(_rounds_of(program, releases, moved=False)) == 1 else 1 / stated.mu_of_all
    return stated.due / max(1, len(_rounds_of(program, releases, moved=True))) ** 0.5


def first_round(program: Program, run: Run) -> list[Release]:
    """The releases of the first round."""
    if not run.ended:
        return next(iter(by_round(program, run, apart=True).values()), [])
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
    if all(release.moved.shape[:1] == (number,) for release in releases):
        return {name: [dataclasses.replace(one, shares=(one,)) for one in releases]}
    return {name: [dataclasses.replace(one, unknown=one.unknown or ROUNDS_TOGETHER) for one in releases]}


def _row(release: Release, step: int) -> Release:
    terms = None if release.terms is None else release.terms.row(step)
    return dataclasses.replace(release, moved=release.moved[step], variance=release.variance[step], terms=terms)


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


def _scales(releases: Sequence[Release]) -> tuple[float, float]:
    """The smallest and the largest of Laplace noise, among the coordinates that the record moves if it moves any."""
    both = [np.broadcast_arrays(one.moved, one.variance) for one in releases]
    moved, variance = (np.concatenate([one.ravel() for one in each]) for each in zip(*both, strict=True))
    scales = np.sqrt((variance[moved != 0] if moved.any() else variance) / 2)
    return float(np.min(scales, initial=np.inf)), float(np.max(scales, initial=0.0))


def rounds_told(program: Program, runs: Sequence[Run], *, of_laplace: bool) -> tuple[Round, ...]:
    """Of every round the run in which it cost most, of those in which all of it was followed if there are any."""
    worst: dict[tuple[Any, ...], list[Release]] = {}

    told = [by_round(program, run) for run in runs]
    if program.rounds == 1 and all(len(own) == 1 for own in told):
        # one release, which the record may join in any part of the batch
        told = [{(): releases} for own in told for releases in own.values()]

    def rank(releases: Sequence[Release]) -> tuple[bool, float]:
        return is_judged(releases), cost(releases)

    for own in told:
        for number, releases in own.items():
            if number not in worst or rank(releases) > rank(worst[number]):
                worst[number] = releases
    rounds, number = [], 0
    for releases in worst.values():
        first, number = number + 1, number + length(program, releases)
        top, paid = max(releases, key=lambda release: release.cost), cost(releases)
        far, multiplier = sensitivity(releases), 1 / paid if paid else float("inf")
        rounds.append(
            Round(
                number=first,
                last=number,
                joint=any(one.shares or one.blocks for one in releases),
                sensitivity=far,
                noise_deviation=far * multiplier if far and paid else deviation(releases),
                multiplier=multiplier,
                lines=(*top.at.own[:1], *top.at.library),
                exact=all(one.exact for one in releases),
                error=max(1 / np.sqrt(2 * one.drawn) if one.drawn else 0.0 for one in releases),
                judged=is_judged(releases),
                average=deviation([part for one in releases for part in one.shares or (one,)]),
                epsilon=sum(one.epsilon for one in releases) if of_laplace else None,
                moved=float(sum(np.sum(np.abs(one.moved)) for one in releases)),
                scales=_scales(releases) if of_laplace else (0.0, 0.0),
            )
        )
    return tuple(rounds)


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
    """Whether the deviation of some round is not told yet, or seems too small, but not by enough standard errors."""
    rounds: dict[Any, list[Release]] = {}
    for same in zip(*runs, strict=True) if due and len(set(map(len, runs))) == 1 else ():
        top = max(same, key=lambda release: float(np.linalg.norm(release.moved)))
        rounds.setdefault(top.round, []).append(_pooled(top, same))
    if any(release.unknown == TOO_FEW for own in rounds.values() for release in own):
        return True
    judged = [own for own in rounds.values() if not any(release.unknown for release in own)]
    if any(0 < 2 * LARGEST_ERROR**2 * release.drawn < 1 for own in judged for release in own):
        return True
    return any(falls_short(own, due, errors=1.0) and not falls_short(own, due) for own in judged)


def falls_short(releases: Sequence[Release], due: float | None, errors: float = ERRORS) -> bool:
    """Whether the noise of a round is too little, by so many standard errors where draws tell its deviation."""
    slack = SLACK if all(release.exact for release in releases) else GUESSED_SLACK
    costs = [one.cost / (_most_too_small(one.drawn, errors) if one.drawn else 1.0) for one in releases]
    return bool(due and np.linalg.norm(costs) * due > 1 + slack)


def _most_too_small(drawn: float, errors: float) -> float:
    """How many times too small an estimate from so many numbers may be: a quantile of chi, by Wilson and Hilferty."""
    root = 1 - 2 / (9 * drawn) - errors * np.sqrt(2 / (9 * drawn))
    return root**-1.5 if root > 0 else math.inf
