"""Both sides of an audit of foreign code: batches drawn through the wider contract, scored by JAX, counted by NumPy."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np

from audit.trials.kept_outputs import KeptOutputs
from audit.trials.keys import trial_numbers
from audit.trials.programs import Scoring, programs_of, scoring_of
from audit.trials.source import (
    DrawListener,
    OneSide,
    Source,
    cells_of,
    common_layout,
    complete,
    ignore_draws,
    joined,
    require_finite,
)
from audit.trials.workers import Batch, Drawer, drawer
from distinguishers.contract import Distinguisher
from mechanisms.contract import BatchMechanism
from mechanisms.pairs.neighbours import Neighbours, materialise
from mechanisms.randomness.bits import Words
from mechanisms.release import Layout

BATCH_TRIALS = 64
"""Most trials asked for at once."""
BATCH_ENTRIES = 2**22
"""Most output coordinates sent through a pipe at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSource(Source):
    """Scores of foreign code: trial i depends on (key, i) alone, if the code draws from its seed alone.

    Both sides share the workers and the compiled score.
    """

    key: jax.Array
    side: str
    size: int
    """Trials drawn at once."""
    drawer: Drawer
    kept: KeptOutputs
    score: Callable[..., jax.Array]
    one_by_one: ClassVar[bool] = True

    @property
    def chunk(self) -> int:
        """Trials drawn at once."""
        return self.size

    def scores(self, start: int, stop: int, drew: DrawListener = ignore_draws) -> np.ndarray:
        """Scores of trials start..stop-1, shape (stop - start, members)."""
        parts: dict[int, np.ndarray] = {}

        def add(batch: Batch, outputs: np.ndarray) -> None:
            parts[batch.start] = self._score(batch.start, outputs)
            drew(len(outputs))

        self._draw(start, stop, add)
        return np.concatenate([parts[first] for first in sorted(parts)])

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counts of these scores in each cell between the edges."""
        parts: list[np.ndarray] = []

        def add(batch: Batch, outputs: np.ndarray) -> None:
            self.kept.keep(batch, outputs)
            parts.append(cells_of(self._score(batch.start, outputs), edges))

        self._draw(start, stop, add)
        return complete(np.sum(parts, axis=0), stop - start)

    def _draw(self, start: int, stop: int, use: Callable[[Batch, np.ndarray], None]) -> None:
        """Draw trials start..stop-1 in batches and hand each to ``use``."""
        firsts = range(start, stop, self.chunk)
        stops = [min(first + self.chunk, stop) for first in firsts]
        batches = [Batch(self.side, _data(self.key), *span) for span in zip(firsts, stops, strict=True)]
        by_start = {batch.start: batch for batch in batches}
        self.drawer.draw(batches, lambda first, outputs: use(by_start[first], outputs))

    def _score(self, first: int, outputs: np.ndarray) -> np.ndarray:
        """Finite scores of one batch."""
        count = len(outputs)
        require_finite(outputs, first, self.side, "output of trial")
        # padded to one shape, so that the score is compiled once
        padded = np.pad(outputs, ((0, self.chunk - count), *[(0, 0)] * (outputs.ndim - 1)), mode="edge")
        trials = trial_numbers(range(first, first + self.chunk))
        scores = np.asarray(self.score(self.key, trials, padded), np.float32)[:count]
        require_finite(scores, first, self.side)
        return scores


class ForeignSides:
    """Source of trials of foreign code; its workers, if it has any, draw all of them."""

    def __init__(self, mechanism: BatchMechanism, neighbours: Neighbours, *, workers: int):
        self._name = mechanism.name
        self._coordinates = mechanism.coordinates
        self._workers = workers
        self._datasets: dict[str, Any] = {}
        for side, dataset in (("without", neighbours.without), ("with", neighbours.with_record)):
            given = materialise(dataset)
            self._datasets[side] = np.asarray(given) if isinstance(given, jax.Array) else given
        self._drawer = drawer(mechanism, self._datasets, workers)
        self._kept = KeptOutputs()

    def scored(
        self, distinguisher: Distinguisher, *, chunk: int | None = None, learnt: bool = False
    ) -> tuple[OneSide, OneSide]:
        """Scores of both sides; every score is compiled once for both."""
        del learnt

        @functools.cache
        def scoring(shape: tuple[int, ...]) -> Scoring:
            return scoring_of(distinguisher, jax.ShapeDtypeStruct(shape, np.float32))

        def score(key: jax.Array, trials: Words, outputs: np.ndarray) -> jax.Array:
            compiled = scoring(outputs.shape[1:])
            return programs_of(compiled).score_outputs(compiled, key, trials, outputs)

        size = chunk or batch_size(self._coordinates or self.layout().entries)

        def one_side(side: str) -> OneSide:
            shared = {"drawer": self._drawer, "kept": self._kept, "score": score}
            return OneSide(lambda key: BatchSource(key=key, side=side, size=size, **shared))

        return one_side("without"), one_side("with")

    def outputs(
        self,
        keys: tuple[jax.Array, jax.Array],
        trials: int,
        *,
        size: int,
        deadline: float | None = None,
        drew: DrawListener = ignore_draws,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Full outputs of both sides, in turns, until all are drawn or the time is used up; none is drawn twice."""
        found: dict[str, dict[int, np.ndarray]] = {"without": {}, "with": {}}
        # at most as many as in a judged batch, for which a worker's time-out is meant
        size = min(size, BATCH_TRIALS)
        words = dict(zip(found, map(_data, keys), strict=True))
        at_once = size * max(1, self._workers)
        for start in range(0, trials, at_once):
            firsts = range(start, min(start + at_once, trials), size)
            for side, pieces in found.items():
                if deadline is None or time.monotonic() < deadline:
                    batches = [Batch(side, words[side], first, min(first + size, trials)) for first in firsts]

                    def keep(first: int, rows: np.ndarray, pieces: dict[int, np.ndarray] = pieces) -> None:
                        pieces[first] = rows
                        drew(len(rows))

                    self._kept.draw(self._drawer, batches, keep)
        without, with_record = (
            joined([pieces[first] for first in sorted(pieces)], trials) for pieces in found.values()
        )
        return without, with_record

    def piece(self, side: str, key: jax.Array, start: int, stop: int, *, size: int) -> np.ndarray:
        """Full outputs of one side, drawn as one batch."""
        del size
        found: dict[int, np.ndarray] = {}
        self._drawer.draw([Batch(side, _data(key), start, stop)], found.__setitem__)
        return found[start]

    def layout(self) -> Layout:
        """Layout of the outputs, from one of each side, drawn once and judged by nobody."""
        return self._layout

    @functools.cached_property
    def _layout(self) -> Layout:
        words = np.zeros(2, np.uint32)
        without, with_record = (self._drawer.layout(Batch(side, words, 0, 1)) for side in ("without", "with"))
        return common_layout(self._name, without, with_record)

    def read_without(
        self, key: jax.Array, *, size: int, pieces: int, read: Callable[[Any], Any], use: Callable[[Any], None]
    ) -> None:
        """Stream outputs without the record as they are drawn; only what ``read`` returns is kept."""
        reader = jax.jit(read)
        batches = [Batch("without", _data(key), i * size, (i + 1) * size) for i in range(pieces)]
        self._drawer.draw(batches, lambda _, outputs: use(reader(outputs)))


def _data(key: jax.Array) -> np.ndarray:
    """Numbers of a key, from which seeds are derived."""
    return np.asarray(jax.random.key_data(key)).ravel()


def batch_size(entries: int) -> int:
    """Number of trials to ask for at once, fewer where outputs are long."""
    return int(np.clip(BATCH_ENTRIES // max(entries, 1), 1, BATCH_TRIALS))
