"""Whether a record is in every batch where the claim says that Poisson batches hold it now and then."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.places import NOWHERE, Place
from audit.diagnosis.explain.sentences import in_every_batch
from audit.trials.threefry import fold_in

KEY = 2000
"""Folded into the key of the first runs for those of this look."""


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


def _moved(run: Run) -> Release | None:
    """The release of the first round that the record moves most; None where it moves none, or one is not followed."""
    releases = run.lockstep.meetings.releases
    own = [release for release in releases if release.round == releases[0].round]
    if not own or any(release.unknown for release in own):
        return None
    top = max(own, key=lambda release: release.cost)
    return top if top.cost > 0 else None
