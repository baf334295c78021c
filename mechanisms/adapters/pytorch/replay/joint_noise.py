"""Releases whose noise is made of the same random numbers: they cover less together than each of them alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from mechanisms.adapters.noise_terms import Blocks, Terms, apart, bare, lacking
from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.storages import side_by_side


@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """Several releases, one after the other."""

    events: Sequence[Event]
    terms: Terms
    blocks: Blocks
    """Coordinates whose noise depends on one another's."""

    @property
    def moved(self) -> np.ndarray:
        """How far the record moves each coordinate."""
        return np.concatenate([event.difference.double().numpy().ravel() for event in self.events])

    def owners(self, places: np.ndarray) -> list[Event]:
        """The releases that hold some coordinates, each once."""
        ends = np.cumsum([event.difference.numel() for event in self.events])
        return [self.events[number] for number in np.unique(np.searchsorted(ends, places, side="right"))]

    @functools.cached_property
    def bare(self) -> Blocks:
        """Those of the blocks with a direction without noise: of one release, if the record moves along it."""
        alone = [len(self.owners(block.places)) == 1 for block in self.blocks]
        return [
            block
            for block, own in zip(self.blocks, alone, strict=True)
            if (bare(self.moved, [block]) if own else lacking([block]))
        ]


def joint(events: Sequence[Event]) -> Joint | None:
    """What is known of the noise of several releases together; None where that is not known."""
    terms = side_by_side([event.terms for event in events])
    if terms is None:
        return None
    blocks = () if terms.plain else terms.covariance()
    return None if blocks is None else Joint(events, terms, blocks)


def squared_length(events: Sequence[Event]) -> float | None:
    """Of what the record moves, in units of the noise; None where coordinates depend on one another in unknown ways.

    Directions without noise are told elsewhere.
    """
    known = joint(events)
    if known is None:
        if any(event.shared for event in events):
            return None
        return sum(single(event) for event in events)
    blocks = () if known.bare else known.blocks
    return apart(known.moved, known.terms.variance, blocks)


def single(event: Event) -> float:
    """The same of one release as if its coordinates were independent; those without noise do not count."""
    there = event.variance > 0
    return float((event.difference.double()[there] ** 2 / event.variance.double()[there]).sum())


def rounds_depend(events: Sequence[Event]) -> bool:
    """Whether releases of different rounds have random numbers in common."""
    known = joint([event for event in events if event.moved and not event.superseded])
    return known is not None and any(
        len({event.round for event in known.owners(block.places)}) > 1 for block in known.blocks
    )
