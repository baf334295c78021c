"""Draw outputs by one program and score them by another, so that the score is compiled once, not into four programs.

For learned scores, which take longer to compile than a few thousand trials take to run; the draws are programs that
learning has already compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.trials.kept_programs import KeptProgram
from audit.trials.keys import trial_keys, trial_number, trials_from
from audit.trials.source import DrawListener, OneSide, Source, cells_of, ignore_draws, require_finite
from distinguishers.contract import Distinguisher
from mechanisms.randomness.bits import Words

Draw = Callable[[jax.Array, Words], Any]
"""Outputs of one chunk, as a function of a key and the first trial's number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparateSource(Source):
    """Scores of trials whose outputs another program draws. Both sides share the score."""

    key: jax.Array
    side: str
    size: int
    """Trials drawn at once."""
    draw: Draw
    score: Callable[[jax.Array, Words, Any], jax.Array]

    @property
    def chunk(self) -> int:
        """Trials drawn at once."""
        return self.size

    def scores(self, start: int, stop: int, drew: DrawListener = ignore_draws) -> np.ndarray:
        """Scores of trials start..stop-1, shape (stop - start, members)."""
        parts = []
        for first in range(start, stop, self.chunk):
            parts.append(self._piece(first, stop))
            drew(len(parts[-1]))
        return np.concatenate(parts)

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counts in each cell between the edges, made on the host."""
        return np.sum([cells_of(self._piece(first, stop), edges) for first in range(start, stop, self.chunk)], axis=0)

    def _piece(self, first: int, stop: int) -> np.ndarray:
        """Scores of the chunk from ``first`` on, without trials from ``stop`` on."""
        number = trial_number(first)
        scores = np.asarray(self.score(self.key, number, self.draw(self.key, number)), np.float32)[: stop - first]
        require_finite(scores, first, self.side)
        return scores


def separate(draws: Mapping[str, Draw], distinguisher: Distinguisher, *, chunk: int) -> tuple[OneSide, OneSide]:
    """Both sides of an audit, ``chunk`` trials a draw."""

    def score(key: jax.Array, first: Words, outputs: Any) -> jax.Array:
        def score_output(trial: Words, output: Any) -> jax.Array:
            return jnp.atleast_1d(distinguisher(trial_keys(key, trial).score, output))

        return jax.vmap(score_output)(trials_from(first, chunk), outputs)

    compiled = KeptProgram(score, told=False, once=True)

    def one_side(side: str) -> OneSide:
        return OneSide(lambda key: SeparateSource(key=key, side=side, size=chunk, draw=draws[side], score=compiled))

    return one_side("without"), one_side("with")
