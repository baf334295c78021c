"""Further looks for groups that are clipped together: other batches, and one record less.

Where the record begins a group of its own, nothing shows that groups are clipped and not records. With one record less
it joins the group before; what mixes the records of a group shows there, too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.record_shares import Company, grows, suspects, uncovered
from audit.diagnosis.explain.jaxprs.runs import Program, Run, run_once
from audit.diagnosis.explain.sentences import after_sum
from audit.trials.threefry import fold_in

DRAWN = 3
"""Times that each look is taken where batches are drawn."""
SCALES = (50.0, 2500.0)
"""How much larger the record is made: what is clipped moves as far at both."""
GROWN = 3.0
"""Growth between the two scales that only an unbounded record shows."""
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


def clipped_alone(small: Release, large: Release) -> bool:
    """Whether the record, multiplied by a number of its own, is no longer when it is larger: what grows is not it."""
    one, other = small.weighted, large.weighted
    return one is not None and other is not None and other.after <= GROWN * one.after


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
