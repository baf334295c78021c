"""Outputs drawn by one program and scored by another: the score is compiled once, not into four programs.

For learnt scores, which take longer to compile than a few thousand trials take to run; the draws are those that
learning has compiled already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.trials.kept_programs import KeptProgram
from audit.trials.keys import trial_keys, trial_number, trials_from
from audit.trials.source import NOT_FINITE, Drew, NonFiniteScoreError, Source, unheard
from distinguishers.contract import Distinguisher
from mechanisms.randomness.bits import Words

Draw = Callable[[jax.Array, Words], Any]
"""From a key and the first trial's number to the outputs of one chunk."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparateProgram:
    """One side: its draws, and the score that both sides share."""

    side: str
    chunk: int
    draw: Draw
    score: Callable[[jax.Array, Words, Any], jax.Array]

    def source(self, key: jax.Array) -> SeparateSource:
        """The scores that belong to one key."""
        return SeparateSource(program=self, key=key)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparateSource(Source):
    """A Source: trial i is a function of (key, i) alone."""

    program: SeparateProgram
    key: jax.Array

    @property
    def chunk(self) -> int:
        """Trials drawn at once."""
        return self.program.chunk

    def scores(self, start: int, stop: int, drew: Drew = unheard) -> np.ndarray:
        """Scores of trials start..stop-1, shape (stop - start, members)."""
        parts = []
        for first in range(start, stop, self.chunk):
            parts.append(self._piece(first, stop))
            drew(len(parts[-1]))
        return np.concatenate(parts)

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counted on the host; a score on an edge counts below it."""
        rows = np.asarray(edges, np.float32)
        counts = np.zeros((rows.shape[0], rows.shape[1] + 1), np.int64)
        for first in range(start, stop, self.chunk):
            for member, (row, own) in enumerate(zip(rows, self._piece(first, stop).T, strict=True)):
                counts[member] += np.bincount(np.searchsorted(row, own, side="left"), minlength=counts.shape[1])
        return counts

    def _piece(self, first: int, stop: int) -> np.ndarray:
        number = trial_number(first)
        outputs = self.program.draw(self.key, number)
        found = np.asarray(self.program.score(self.key, number, outputs), np.float32)[: stop - first]
        good = np.isfinite(found).all(axis=1)
        if not good.all():
            raise NonFiniteScoreError(
                f"the score of trial {first + int(np.argmin(good))} on the side '{self.program.side}' is not finite: "
                + NOT_FINITE
            )
        return found


def separate(without: Draw, with_record: Draw, distinguisher: Distinguisher, *, chunk: int) -> tuple[Any, Any]:
    """Both sides of an audit, ``chunk`` trials a draw."""

    def score(key: jax.Array, first: Words, outputs: Any) -> jax.Array:
        def one(trial: Words, output: Any) -> jax.Array:
            return jnp.atleast_1d(distinguisher(trial_keys(key, trial).score, output))

        return jax.vmap(one)(trials_from(first, chunk), outputs)

    compiled = KeptProgram(score, told=False)
    return (
        SeparateProgram(side="without", chunk=chunk, draw=without, score=compiled),
        SeparateProgram(side="with", chunk=chunk, draw=with_record, score=compiled),
    )
