"""The papers by their keys, and everything that each of them prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from audit.reproduce import reporting
from audit.reproduce.item import Item, Row, answered

Drawing = Callable[[str], list[str]]
"""A folder to the names of the figures drawn into it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: its key in the references, what it is about, its items."""

    key: str
    title: str
    items: Callable[[], Iterable[Item]]


PAPERS = (Paper(key="gomez2025", title="Reporting privacy by mu-GDP and regret", items=reporting.items),)


def reproduced(keys: Iterable[str] = (), *, quick: bool = False) -> Iterator[Row]:
    """Rows of all papers, or of those named, as they are computed; ``quick`` skips what is slow and says so."""
    wanted = set(keys)
    known = {paper.key for paper in PAPERS}
    if unknown := wanted - known:
        raise ValueError(f"no paper {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}.")
    for paper in PAPERS:
        if wanted and paper.key not in wanted:
            continue
        for item in paper.items():
            if quick and item.slow:
                item = dataclasses.replace(item, ours=None, why="skipped by --quick")
            yield answered(paper.key, item)
