"""Noise that the output shows beside the sum that it covers: whoever takes it away has more of the record left.

All parts of the output that are linear in independent numbers are one release. What the record moves costs the length
of the least change of those numbers that moves it as far; where none does, no noise covers it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.jaxprs.rounds import SLACK, by_round, cost
from audit.diagnosis.explain.jaxprs.runs import Program, Run
from audit.diagnosis.explain.missing_noise import shown_too
from audit.diagnosis.explain.places import spelled
from audit.diagnosis.explain.sentences import not_followed
from mechanisms.adapters.noise_terms import Terms, least_change

UNFOLLOWED = "noise that covers a release reaches the output in another way, too, which is not followed"


def noise_beside(program: Program, run: Run, stated: Stated) -> list[Finding]:
    """That noise which covers a sum is in the output once more, as far as that leaves too little of it."""
    releases = run.lockstep.meetings.releases
    covering = frozenset().union(*(release.covering for release in releases))
    again = [(name, out) for name, out in run.outs if out.drawn & covering and not (out.differs or out.blurred)]
    # what is computed of a release that got its noise in parts shows none of it alone
    again = [(name, out) for name, out in again if out.terms is not None or not out.released]
    rounds = by_round(program, run) if again else {}
    for number in dict.fromkeys(release.round for release in releases if again):
        own = [release for release in releases if release.round == number and release.cost > 0]
        paid = [cost(charged) for key, charged in rounds.items() if key[: len(number)] == number]
        shown = [(name, out) for name, out in again if any(out.drawn & release.covering for release in own)]
        before = float(np.linalg.norm(paid))
        if not shown or not before or not math.isfinite(before):
            continue
        given, bare = _given_all(run, own) if all(out.noise and out.terms for _, out in shown) else (None, True)
        top, (name, out) = max(own, key=lambda release: release.cost), shown[0]
        words: dict[str, Any] = {"shown": out.at or top.at, "at": top.at, "draw": top.draw, "name": name}
        if given is not None and math.isinf(given):
            return [shown_too(**words)]
        normal = all(one.exact for one in own) and not out.guessed and not covering & run.lockstep.laplace
        if given is not None and given <= (1 + SLACK) * before and not bare:
            continue
        # what this record does not move another one may
        if given is None or given <= (1 + SLACK) * before or stated.due is None or not normal:
            return [not_followed(f"{UNFOLLOWED}: {spelled(words['shown'])}", words["shown"])]
        if given * stated.due > (1 + SLACK) * math.sqrt(len(paid)):
            return [shown_too(**words, left=1 / given, due=stated.due)]
    return []


def _given_all(run: Run, releases: Sequence[Release]) -> tuple[float | None, bool]:
    """What releases cost whoever sees all that is linear in the output, or None, and whether noise is alone in it."""
    sources = run.lockstep.meetings.together.sources
    noise = [source.noise for source in sources]
    parts = [(out.open and out.open.coordinates, out.terms if out.noise else None) for _, out in run.outs]
    parts = [pair for pair in parts if any(part is not None for part in pair)]
    known = [one.numbers.ravel() for one in (*noise, *(beside for _, beside in parts)) if one is not None]
    if not sources or any(one is None for one in noise):
        return None, True
    numbers = np.unique(np.concatenate(known))
    moved, later = np.zeros((2, sum(source.own_variance.size for source in sources)))
    for source in sources:
        places = slice(source.first, source.first + source.own_variance.size)
        later[places] = source.release is None
        if source.release is not None and source.release in releases:
            moved[places] = source.release.moved.ravel()
    coordinates, alone = [], []
    for opened, beside in parts:
        size = max(math.prod(part.times.shape[:-1]) for part in (opened, beside) if part is not None)
        rows = _matrix(opened, size, np.arange(moved.size))
        # noise that was added to a release is among its coordinates
        fresh = sparse.diags((abs(rows) @ later == 0).astype(float))
        coordinates.append(rows)
        alone.append(fresh @ _matrix(beside, size, numbers))
    rows = sparse.vstack(coordinates).tocsr()
    if np.any(moved[np.diff(rows.tocsc().indptr) == 0]):
        # a part of them is seen in another way
        return None, True
    own = sparse.vstack([one.over(numbers.size, numbers) for one in noise if one is not None])
    beside = sparse.vstack(alone).tocsr()
    bare = (np.diff(rows.indptr) == 0) & (np.diff(beside.indptr) > 0)
    return least_change(rows @ own + beside, rows @ moved), bool(bare.any())


def _matrix(terms: Terms | None, size: int, numbers: np.ndarray) -> Any:
    return sparse.csr_matrix((size, numbers.size)) if terms is None else terms.over(numbers.size, numbers)
