"""Check that trials drawn a second time come out the same: foreign code may draw from no seed at all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from audit.trials.source import Source

REPEATED = 4
"""Trials per side of foreign code that are drawn twice: even answers of one bit rarely agree eight times by chance."""


class Repeats:
    """Draws the first trials before all others and again after them: seeds from the clock repeat within a second.

    Of a program that JAX traced it compares the counts of one chunk, for which nothing more is compiled.
    """

    def __init__(self, sides: tuple[Source, Source], edges: np.ndarray, *, foreign: bool):
        self._sides, self._edges, self._foreign = sides, edges, foreign
        self._first: list[np.ndarray] = []

    def again(self, deadline: float | None) -> bool | None:
        """Whether the first trials of both sides come out as before; None if there is no time to try."""
        if deadline is not None and time.monotonic() >= deadline:
            return None
        self._first = self._first or self._drawn()
        return all(map(np.array_equal, self._first, self._drawn()))

    def _drawn(self) -> list[np.ndarray]:
        """Scores or counts of the first trials of both sides."""

        def first_trials(side: Source) -> np.ndarray:
            return side.scores(0, REPEATED) if self._foreign else side.cells(0, 1, self._edges)

        # one thread per side, so that both programs compile at the same time
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(first_trials, self._sides))
