"""Outputs drawn by one program and scored by another: the score is compiled once, not into four programs.

For learnt scores, which take longer to compile than a few thousand trials take to run; the draws are those that
learning has compiled already.
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
from audit.trials.source import Drew, OneSide, Source, cells_of, require_finite, unheard
from distinguishers.contract import Distinguisher
from mechanisms.randomness.bits import Words

Draw = Callable[[jax.Array, Words], Any]
"""From a key and the first trial's number to the outputs of one chunk."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeparateSource(Source):
    """A Source: trial i is a function of (key, i) alone. Both sides share the score."""

    key: jax.Array
    side: str
    size: int
    """Trials drawn at once."""
    draw: Draw
    score: Callable[[jax.Array, Words, Any], jax.Array]

    @property
    def chunk(self) -> int:
        """Whole draws."""
        return self.size

    def scores(self, start: int, stop: int, drew: Drew = unheard) -> np.ndarray:
        """Scores of trials start..stop-1, shape (stop - start, members)."""
        parts = []
        for first in range(start, stop, self.chunk):
            parts.append(self._piece(first, stop))
            drew(len(parts[-1]))
        return np.concatenate(parts)

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counted on the host."""
        return np.sum([cells_of(self._piece(first, stop), edges) for first in range(start, stop, self.chunk)], axis=0)

    def _piece(self, first: int, stop: int) -> np.ndarray:
        number = trial_number(first)
        found = np.asarray(self.score(self.key, number, self.draw(self.key, number)), np.float32)[: stop - first]
        require_finite(found, first, self.side)
        return found


def separate(draws: Mapping[str, Draw], distinguisher: Distinguisher, *, chunk: int) -> tuple[OneSide, OneSide]:
    """Both sides of an audit, ``chunk`` trials a draw."""

    def score(key: jax.Array, first: Words, outputs: Any) -> jax.Array:
        def one(trial: Words, output: Any) -> jax.Array:
            return jnp.atleast_1d(distinguisher(trial_keys(key, trial).score, output))

        return jax.vmap(one)(trials_from(first, chunk), outputs)

    compiled = KeptProgram(score, told=False, once=True)

    def one_side(side: str) -> OneSide:
        return OneSide(lambda key: SeparateSource(key=key, side=side, size=chunk, draw=draws[side], score=compiled))

    return one_side("without"), one_side("with")
