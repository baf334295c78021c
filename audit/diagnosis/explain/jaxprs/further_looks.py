"""Further looks, where the first shows nothing: for groups that are clipped together, and for records of some lengths.

Where the record begins a group of its own, nothing shows that groups are clipped and not records. With one record less
it joins the group before; what mixes the records of a group shows there, too. A factor may be right for very long
records alone: others are little longer than the clipping norm.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from itertools import chain

import jax
import numpy as np

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding, Kind, resized
from audit.diagnosis.explain.jaxprs.clipping import GROWN, SCALES, clipped_alone
from audit.diagnosis.explain.jaxprs.record_shares import Company, grows, suspects, uncovered
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.jaxprs.too_little import too_little_noise
from audit.diagnosis.explain.places import spelled
from audit.diagnosis.explain.sentences import after_sum, led
from audit.trials.threefry import fold_in
from mechanisms.adapters.joining_rate import LARGEST_UNIFORM

DRAWN = 3
"""Times that each look is taken where batches are drawn."""
LONGER = 1.1
"""Times the length that noise covers from which on a record was not clipped."""
KEY = 1000
"""Folded into the key of the first runs for those of further looks."""


def clipped_together(plain: Run, apart: Run, grown: Sequence[Run], due: float | None) -> list[Finding]:
    """Where what the record adds depends on other records and nothing bounded it before.

    The three are runs of one program on the same draws: as it is, among other records, with the record made larger.
    A network's gradient may not grow with its record: then what it adds is longer than the noise would cover.
    """
    companies = [run.lockstep.company for run in (plain, apart, *grown)]
    if len(grown) < len(SCALES) or any(company is None or company.coarse for company in companies):
        return []
    own, _, small, large = (company.shares for company in companies if company is not None)
    releases = plain.lockstep.meetings.releases
    sizes = [run.lockstep.meetings.releases for run in grown[:2]]
    alone = {number for number, pair in enumerate(zip(*sizes, strict=False)) if clipped_alone(*pair)}
    both = (
        [one for at, one in enumerate(own) if at not in alone] for own in (releases, apart.lockstep.meetings.releases)
    )
    bent = suspects(*both)
    kept = dict.fromkeys(
        one
        for one, bends in bent
        if grows(one, small, large, GROWN) or (due and uncovered(bends, own, releases) * due > LONGER)
    )
    readers = plain.lockstep.meetings.readers
    return [after_sum(at=one.at, origin=one.origin, readers=readers) for one in kept]


def looked_again(program: Program, key: jax.Array, plain: Run, due: float | None) -> list[Finding]:
    """The same with a record that is long enough to be clipped, with one record less, and on other batches.

    Only where the first look shows nothing.
    """
    drawn = any(release.sampled for release in plain.lockstep.meetings.releases)
    fewer = functools.cache(lambda: program.fewer(key) or program)
    looks = [(False, SCALES[0]), (True, 1.0), (True, SCALES[0])] * (DRAWN if drawn else 1)
    for number, (without_one, scale) in enumerate(looks):
        told, own = fewer() if without_one else program, fold_in(key, KEY + number)
        first = run_once(told, own, scale=scale, company=Company(None), first_round=True)
        releases = first.lockstep.meetings.releases
        # an overflow of the larger record makes others no numbers: 0 times infinity
        if not any(release.cost > 0 and np.all(np.isfinite(release.moved)) for release in releases):
            continue
        if mixed := [one for one in first.lockstep.findings if one.kind == Kind.RECORDS_MIXED_BEFORE_SUM]:
            return mixed
        apart = run_once(told, own, scale=scale, others_apart=True, company=_beside(first), first_round=True)
        if suspects(releases, apart.lockstep.meetings.releases):
            grown = [run_once(told, own, scale=larger, company=_beside(first), first_round=True) for larger in SCALES]
            if findings := clipped_together(first, apart, grown, due):
                return findings
    return []


def _beside(run: Run) -> Company | None:
    company = run.lockstep.company
    return None if company is None else Company(company.shares)


LENGTHS = (1.15, 1.8)
"""Of the record, in clipping norms."""
NEAR = 0.1
"""Relative error of a length that is near enough."""
MOST_KEYS = 12
"""Runs until one has the record in its first round."""
EITHER_WAY = ((0.0, LARGEST_UNIFORM), (LARGEST_UNIFORM, 0.0))
"""Numbers that take the record and leave others out, or the other way round: for it, and for them."""
TRIES = 4
"""Sizes of the record that are tried for each length."""


def cut_too_late(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That a record of such a length moves a sum further than its noise covers."""
    weighted = any(release.weights for run in runs for release in run.lockstep.meetings.releases)
    if stated.clip is None or stated.due is None or not weighted:
        return []
    # its first round may not have the record
    fresh = (run_once(program, fold_in(key, number), first_round=True) for number in range(len(runs), MOST_KEYS))
    known = next(((number, run) for number, run in enumerate(chain(runs, fresh)) if _length(run)), None)
    if known is None:
        return []
    for scale, run in _runs(program, fold_in(key, known[0]), known[1], stated.clip):
        for told in too_little_noise(program, [run], stated):
            return [dataclasses.replace(told, says=f"{told.says} The record was {resized(scale)} to see this.")]
    return []


def alone_in_its_batch(program: Program, key: jax.Array, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    """That noise is too little for a record without others, where batches are divided by the number of records in them.

    Only of Poisson batches, any of which may hold nobody else.
    """
    at = next((run.lockstep.divided for run in runs if run.lockstep.divided is not None), None)
    if at is None or stated.rate is None:
        return []
    for own, others in EITHER_WAY:
        run = run_once(program, key, share=own, rest=others)
        forced = run.lockstep.forced
        for told in too_little_noise(program, [run], stated) if forced is not None and forced.draws else ():
            why = f"{spelled(at)} divides by the number of records in the batch, before the noise is added"
            says = f"{told.says} The record is alone in its batch there: {why}."
            return [led(dataclasses.replace(told, says=says), at)]
    return []


def _runs(program: Program, key: jax.Array, plain: Run, clip: float) -> Iterator[tuple[float, Run]]:
    """Runs on the way to these lengths, with how much larger the record is made in each."""
    known = {1.0: _length(plain)}
    for target in LENGTHS:
        for _ in range(TRIES):
            near = sorted((scale for scale in known if known[scale]), key=lambda one: _apart(known[one], target * clip))
            if not near or _apart(known[near[0]], target * clip) < NEAR:
                break
            power = _power(*((scale, known[scale]) for scale in near[:2])) if len(near) > 1 else 1.0
            scale = _round(near[0] * (target * clip / known[near[0]]) ** (1 / power))
            # to the end: noise that is added in parts is seen together only there
            run = run_once(program, key, scale=scale)
            known[scale] = _length(run)
            yield scale, run


def _power(one: tuple[float, float], other: tuple[float, float]) -> float:
    """With which a gradient grows with its record, as two sizes tell it; 1 where they tell nothing."""
    sizes, lengths = (math.log(left / right) for left, right in zip(one, other, strict=True))
    return lengths / sizes if sizes and 0.2 < lengths / sizes < 5 else 1.0


def _round(scale: float) -> float:
    """A size of few digits, for the sentence."""
    return float(f"{scale:.2g}") if scale >= 1 else 1 / float(f"{1 / scale:.2g}")


def _apart(length: float, target: float) -> float:
    return abs(math.log(length / target))


def _length(run: Run) -> float:
    """Of the record in the first round, before its factor; 0 where that is not known."""
    releases = run.lockstep.meetings.releases
    own = [release for release in releases if release.round == releases[0].round and release.cost]
    if not own or any(release.unknown or not release.weights for release in own):
        return 0.0
    length = float(np.linalg.norm([weight.before for release in own for weight in release.weights]))
    return length if math.isfinite(length) else 0.0
