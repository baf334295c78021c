"""Whether trials drawn a second time come out the same: foreign code may draw from no seed at all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from audit.trials.source import Source

REPEATED = 4
"""Trials per side of foreign code that are drawn twice: even answers of one bit rarely agree eight times by chance."""


def repeatable(
    sides: tuple[Source, Source], edges: np.ndarray, *, foreign: bool, deadline: float | None
) -> bool | None:
    """Whether the first trials of both sides give the same scores twice; None where there is no time to try.

    A program that JAX traced is asked for the counts of one chunk, which costs it no further compilation.
    """
    if deadline is not None and time.monotonic() >= deadline:
        return None

    def twice(side: Source) -> bool:
        if foreign:
            first, second = (side.scores(0, REPEATED) for _ in range(2))
        else:
            first, second = (side.cells(0, 1, edges) for _ in range(2))
        return bool(np.array_equal(first, second))

    # a side a thread, as they are counted: both programs compile at the same time
    with ThreadPoolExecutor(2) as pool:
        return all(pool.map(twice, sides))
