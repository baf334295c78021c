"""The papers by their keys, and everything that each of them prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from audit.reproduce import batches, limits, normalised, reporting, shuffled
from audit.reproduce.item import Item, Row, answered


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: its key in the references, what it is about, its items."""

    key: str
    title: str
    items: Callable[[], Iterable[Item]]


PAPERS = (
    Paper(key="wang2026", title="Dividing the noisy sum: EASGM, ASGM, FEASGM", items=normalised.items),
    Paper(key="vandijk2026", title="Closed-form bounds for shuffled DP-SGD", items=shuffled.items),
    Paper(key="gomez2025", title="Reporting privacy by mu-GDP and regret", items=reporting.items),
    Paper(key="chua2024", title="Poisson, shuffled and deterministic batches", items=batches.items),
    Paper(key="ertan2026", title="Limits on privacy and utility", items=limits.items),
)


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
