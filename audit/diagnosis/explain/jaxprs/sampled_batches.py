"""Whether batches are the claim's: Poisson batches hold a record now and then, and each round draws its own."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from audit.diagnosis.explain.dispatch import MOST_RUNS, RISK, Stated
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.interpreter import Lockstep
from audit.diagnosis.explain.jaxprs.rounds import by_round, cost, is_judged
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.other_batches import drawn_once
from audit.diagnosis.explain.places import NOWHERE, Place, around
from audit.diagnosis.explain.sentences import in_every_batch
from audit.trials.threefry import fold_in

KEY, KEY_OF_ROUNDS = 2000, 3000
"""Folded into the key of the first runs for those of these looks."""


def always_there(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That the record moved the first round of every run, if batches of that rate would hardly ever show so.

    The runs at hand were drawn until they show the record: one without it tells, but only fresh ones count.
    """
    top = _moved(runs[-1])
    number, rate = stated.runs_that_tell, stated.rate
    if not number or rate is None or top is None or any(_moved(run) is None for run in runs):
        return []
    fresh: list[Run] = []
    while len(fresh) < number:
        fresh.append(run_once(program, fold_in(key, KEY + len(fresh)), first_round=True))
        if _moved(fresh[-1]) is None:
            return []
    taken = [at for at in fresh[0].lockstep.taken if all(run.lockstep.taken.get(at) for run in fresh)]
    origin = top.origin if isinstance(top.origin, Place) else top.at
    constant = runs[-1].lockstep.constant_choice
    by = taken[0] if taken else NOWHERE
    kept = None if taken else top.kept
    return [in_every_batch(origin=origin, at=top.at, runs=number, rate=rate, constant=constant, taken=by, kept=kept)]


def drawn_for_all(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That one draw chooses the batches of several rounds of the claim, which would each draw their own.

    Other draws may be shared, such as those of augmentations: the record must also be in all of these rounds or in
    none, in so many fresh runs that independent batches would hardly ever show so.
    """
    shared, release = _shared(runs[-1].lockstep)
    if stated.rate is None or release is None:
        return []
    chance, number, own = 1.0, 0, []
    while chance > RISK:
        run = run_once(program, fold_in(key, KEY_OF_ROUNDS + number))
        number += 1
        rounds = list(by_round(program, run).values())
        own = [releases for releases in rounds if any(shared in one.choosing for one in releases)]
        joined = [cost(releases) > 0 for releases in own]
        if number > MOST_RUNS or not 1 < len(rounds) <= stated.steps or not all(map(is_judged, own)):
            return []
        if len(own) < 2 or any(joined) != all(joined):
            return []
        # given that it is in one of them
        chance *= stated.rate ** len(own) / (1 - (1 - stated.rate) ** len(own)) if all(joined) else 1.0
    draw = runs[-1].lockstep.keys.draws[shared].at
    return [drawn_once(draw=draw, lead=around(release.at, draw), rounds=len(own), runs=number, rate=stated.rate)]


def _shared(lockstep: Lockstep) -> tuple[int, Release | None]:
    """A draw that went into two rounds, if it is the only one or has a number for each record, and a release of it."""
    releases = lockstep.meetings.releases
    for one in releases:
        others = frozenset().union(*(other.choosing for other in releases if other.round != one.round))
        both = one.choosing & others
        each = [number for number in both if lockstep.keys.draws[number].chooses] or [*both]
        if len(each) == 1:
            return each[0], one
    return 0, None


def _moved(run: Run) -> Release | None:
    """The release of the first round that the record moves most; None where it moves none, or one is not followed."""
    releases = run.lockstep.meetings.releases
    own = [release for release in releases if release.round == releases[0].round]
    if not own or any(release.unknown for release in own):
        return None
    top = max(own, key=lambda release: release.cost)
    return top if top.cost > 0 else None
