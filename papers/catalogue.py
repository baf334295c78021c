"""The papers by their keys, and everything that each of them prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from papers import batches, limits, normalised, reporting, shuffled
from papers.item import Aside, Item, Remark, Row, answered, remarked


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: its key in the references, what it is about, its numbers, and numbers of our own about it."""

    key: str
    title: str
    items: Callable[[], Iterable[Item]]
    asides: Callable[[], Iterable[Aside]]


PAPERS = (
    Paper(
        key="wang2026",
        title="Dividing the noisy sum: EASGM, ASGM, FEASGM",
        items=normalised.items,
        asides=normalised.asides,
    ),
    Paper(
        key="vandijk2026",
        title="Closed-form bounds for shuffled DP-SGD",
        items=shuffled.items,
        asides=shuffled.asides,
    ),
    Paper(
        key="gomez2025",
        title="Reporting privacy by mu-GDP and regret",
        items=reporting.items,
        asides=reporting.asides,
    ),
    Paper(
        key="chua2024",
        title="Poisson, shuffled and deterministic batches",
        items=batches.items,
        asides=batches.asides,
    ),
    Paper(key="ertan2026", title="Limits on privacy and utility", items=limits.items, asides=limits.asides),
)


def chosen(keys: Iterable[str] = ()) -> tuple[Paper, ...]:
    """The papers with these keys, or all."""
    wanted = set(keys)
    known = {paper.key for paper in PAPERS}
    if unknown := wanted - known:
        raise ValueError(f"no paper {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}.")
    return tuple(paper for paper in PAPERS if not wanted or paper.key in wanted)


def compared(papers: Iterable[Paper], *, quick: bool = False) -> Iterator[Row]:
    """Every number of these papers with ours, as it is computed; ``quick`` leaves out what is slow."""
    for paper in papers:
        yield from (answered(paper.key, item) for item in paper.items() if not (quick and item.slow))


def commented(papers: Iterable[Paper], *, quick: bool = False) -> Iterator[Remark]:
    """The asides of these papers, as they are computed."""
    for paper in papers:
        yield from (remarked(paper.key, aside) for aside in paper.asides() if not (quick and aside.slow))
