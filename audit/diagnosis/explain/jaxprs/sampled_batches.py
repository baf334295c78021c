"""Whether batches are the claim's: Poisson batches hold a record now and then, and each round draws its own."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from audit.diagnosis.explain.dispatch import MOST_RUNS, RISK, Stated
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.handed_over import RATES, handed_over
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.key_hands import kept_at
from audit.diagnosis.explain.jaxprs.rounds import by_round, cost, first_round, is_judged
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.jaxprs.value import first, host
from audit.diagnosis.explain.other_batches import drawn_once, of_one_size, too_often
from audit.diagnosis.explain.places import NOWHERE, Place, around
from audit.diagnosis.explain.sentences import in_every_batch
from audit.trials.threefry import fold_in
from mechanisms.adapters.joining_rate import LARGEST_UNIFORM, SLACK, joining_rate, same_size_by_chance

KEY, KEY_OF_ROUNDS = 2000, 3000
"""Folded into the key of the first runs for those of these looks."""


def always_there(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That the record moved the first round of every run, if batches of that rate would hardly ever show so.

    The runs at hand were drawn until they show the record: one without it tells, but only fresh ones count.
    """
    top = _moved(program, runs[-1])
    number, rate = stated.runs_that_tell, stated.rate
    if not number or rate is None or top is None or any(_moved(program, run) is None for run in runs):
        return []
    fresh: list[Run] = []
    while len(fresh) < number:
        fresh.append(run_once(program, fold_in(key, KEY + len(fresh)), first_round=True))
        if _moved(program, fresh[-1]) is None:
            return []
    taken = [at for at in fresh[0].lockstep.choices.taken if all(run.lockstep.choices.taken.get(at) for run in fresh)]
    origin = top.origin if isinstance(top.origin, Place) else top.at
    constant = runs[-1].lockstep.constant_choice
    constant = None if constant is None else kept_at(program.trace_again, constant)
    by = taken[0] if taken else NOWHERE
    kept = None if taken else top.kept
    releases = [] if taken or kept else [one for run in fresh for one in first_round(program, run)]
    padded = first(one.filled or one.doubled for one in releases)
    words = {"constant": constant, "taken": by, "kept": kept, "padded": padded}
    return [in_every_batch(origin=origin, at=top.at, runs=number, rate=rate, **words)]


def taken_too_often(program: Program, key: jax.Array, stated: Stated) -> list[Finding]:
    """That the record joins the first batch with more of the numbers that may be drawn for it than at the claim's rate.

    Only if one number is drawn for each record, or for each of more seats: others may decide on something else.
    """
    if stated.rate is None or stated.rate * (1 + SLACK) >= 1:
        return []
    seats = False
    lowest = run_once(program, key, first_round=True, share=0.0)
    if lowest.lockstep.forced is not None and not lowest.lockstep.forced.draws:
        seats = True
        lowest = run_once(program, key, first_round=True, share=0.0, seats=True)
    forced = lowest.lockstep.forced
    if forced is None or len(forced.draws) != 1:
        return []
    low = moves_the_first_round(program, lowest)

    def joins(share: float, rest: float | None = None) -> bool | None:
        own = share if low else LARGEST_UNIFORM - share
        return moves_the_first_round(
            program, run_once(program, key, first_round=True, share=own, seats=seats, rest=rest)
        )

    found = None if low is None else joining_rate(joins, stated.rate * (1 + SLACK))
    # of several numbers the record may have two
    if found is None or (seats and not all(joins(found / 2, rest) for rest in (0.0, LARGEST_UNIFORM))):
        return []
    at = forced.compared or forced.draws[0]
    return [too_often(draw=at, lead=handed_over(program.trace_again, at, found, RATES), found=found, rate=stated.rate)]


def of_fixed_size(program: Program, key: jax.Array, stated: Stated) -> list[Finding]:
    """That the only choice of records that is drawn for the first batch takes as many of them in every run."""
    sizes: list[int] = []
    records, rate = program.counts[1], stated.rate
    while rate is not None and len(sizes) < MOST_RUNS:
        lockstep = run_once(program, fold_in(key, KEY + len(sizes)), first_round=True).lockstep
        chosen, releases = lockstep.choices.first, lockstep.meetings.releases
        drawn = frozenset().union(*(release.choosing for release in releases))
        if not drawn or any(one.drawn != drawn for one in chosen):
            return []
        # padding makes a choice longer, and a loop over parts of the batch reads it in shorter ones
        whole = [int(np.sum(host(one.b))) for one in chosen if np.size(one.b) >= records]
        if len(set(whole)) != 1:
            return []
        sizes += whole[:1]
        if sizes[-1] != sizes[0] or not 0 < sizes[0] < records:
            return []
        if same_size_by_chance(len(sizes), records, rate) <= RISK:
            at = lockstep.keys.draws[min(drawn)].at
            return [of_one_size(draw=at, size=sizes[0], of=records, runs=len(sizes), rate=rate)]
    return []


def moves_the_first_round(program: Program, run: Run) -> bool | None:
    """Whether the record moves the first round; None where that is not followed."""
    releases = run.lockstep.meetings.releases
    if not releases or run.left or not is_judged(releases):
        return None
    return any(release.cost > 0 for release in first_round(program, run))


def drawn_for_all(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That one draw chooses the batches of several rounds of the claim, which would each draw their own.

    Other draws may be shared, such as those of augmentations: the record must also be in all of these rounds or in
    none, in so many fresh runs that independent batches would hardly ever show so.
    """
    shared, release = _shared(program, runs[-1])
    if stated.rate is None or release is None:
        return []
    chance, number, own = 1.0, 0, []
    while chance > RISK:
        run = run_once(program, fold_in(key, KEY_OF_ROUNDS + number))
        number += 1
        rounds = list(by_round(program, run, apart=True).values())
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


def _shared(program: Program, run: Run) -> tuple[int, Release | None]:
    """A draw that went into two rounds, if it is the only one or has a number for each record, and a release of it."""
    rounds = by_round(program, run, apart=True).values()
    choosing = [frozenset().union(*(one.choosing for one in own)) for own in rounds]
    for number, one in enumerate(choosing):
        both = one & frozenset().union(*choosing[:number], *choosing[number + 1 :])
        each = [draw for draw in both if run.lockstep.keys.draws[draw].chooses] or [*both]
        if len(each) == 1:
            releases = run.lockstep.meetings.releases
            return each[0], next(release for release in releases if each[0] in release.choosing)
    return 0, None


def _moved(program: Program, run: Run) -> Release | None:
    """The release of the first round that the record moves most; None where it moves none, or one is not followed."""
    own = first_round(program, run)
    if not own or not is_judged(own):
        return None
    top = max(own, key=lambda release: release.cost)
    return top if top.cost > 0 else None
