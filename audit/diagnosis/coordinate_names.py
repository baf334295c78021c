"""Name coordinates as the release does: tensors by their names, rounds by their numbers."""

from __future__ import annotations

import numpy as np

from mechanisms.release import PLAIN, Layout

MOST_NAMED = 4
"""Most tensors or steps that are listed."""


def places(mask: np.ndarray, layout: Layout | None) -> str:
    """Describe the coordinates where the mask is true: ``'bias' (6 of 6 coordinates)``, with the steps, if several."""
    if layout is None or layout.entries != len(mask):
        return _coordinates(mask)
    rounds = mask.reshape(-1, layout.size)
    if layout.rounds is None or layout.rounds == 1:
        return _tensors(rounds[0], layout)
    touched = [t for t, in_round in enumerate(rounds) if in_round.any()]
    alike = all(np.array_equal(rounds[t], rounds[touched[0]]) for t in touched)
    steps = ", ".join(str(t + 1) for t in touched[:MOST_NAMED]) + (", ..." if len(touched) > MOST_NAMED else "")
    where = _tensors(rounds[touched[0]], layout)
    if len(touched) == layout.rounds and alike:
        return f"{where}, in every step"
    return f"step {steps}" + ("" if rounds[touched[0]].all() else f": {where}")


def one_place(place: int, layout: Layout | None) -> str:
    """Name one number of a flattened release, and of a transcript the step that it is part of."""
    if layout is None or (layout.rounds or 1) == 1:
        return f"coordinate {place}"
    step, coordinate = divmod(place, layout.size)
    return f"step {step + 1}" + (f", coordinate {coordinate}" if layout.size > 1 else "")


def _tensors(mask: np.ndarray, layout: Layout) -> str:
    """Describe the coordinates of one round by tensor."""
    if layout.names == (PLAIN,):
        return _coordinates(mask)
    found = []
    for name, where, size in zip(layout.names, layout.slices, layout.sizes, strict=True):
        count = int(mask[where].sum())
        if count:
            found.append(f"{name!r} ({count:,} of {size:,} coordinates)")
    more = f" and {len(found) - MOST_NAMED} more tensors" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more


def _coordinates(mask: np.ndarray) -> str:
    """Describe coordinates by number."""
    which = np.flatnonzero(mask)
    if len(which) == 1:
        return f"coordinate {which[0]}"
    together = which[-1] - which[0] + 1 == len(which)
    between = f"coordinates {which[0]} to {which[-1]}"
    return between if together else f"{len(which)} of the {between}"
