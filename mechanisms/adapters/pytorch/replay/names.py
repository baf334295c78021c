"""By which names a sentence tells of the tensors that are released."""

from __future__ import annotations

from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.comparing import size_of
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.same_draws import OF_STEP

MOST_NAMED = 4
"""Tensors that one sentence names beside the first."""
MUCH = 5.0
"""Growth between two sizes of a record that only an unbounded one shows."""


def together(names: list[str]) -> str:
    """The first by its full name, and which others there are, whatever their steps."""
    _, *others = dict.fromkeys(name.partition(OF_STEP)[0] for name in names)
    more = [*others[:MOST_NAMED], f"{len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else others
    return f"{names[0]} (also {', '.join(more)})" if more else names[0]


def unbounded(other: Run, runs: list[Run], moved: list[int]) -> str:
    """Which outputs hold what grows with the record, where others do not."""
    large, small = (run.releases.events for run in runs)
    grown = [number for number in moved if size_of(large[number]) > MUCH * size_of(small[number]) > 0]
    names = holding(other, [other.releases.events[number] for number in grown])
    return f" for {together(names)}" if names and len(grown) < len(moved) else ""


def holding(run: Run, events: list[Event]) -> list[str]:
    """The outputs that these releases are in."""
    return [
        name
        for name, out in run.outputs.items()
        if out.cell is not None and any(event is one for event in out.cell.events for one in events)
    ]
