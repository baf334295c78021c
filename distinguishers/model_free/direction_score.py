"""Scores along one direction: a transcript or an update of a real model, read where a canary would show."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.contract import Distinguisher, OneScore
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff
from mechanisms.contract import Collapsed, OutputKind


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Along(OneScore):
    """A score for statistics, applied to what an output shows along one direction."""

    score: Distinguisher
    direction: np.ndarray
    accepts: tuple[OutputKind, ...]
    name: str = "along"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The score by name and parameters, and of the direction how many coordinates it has and how many it moves."""
        moved = int(np.count_nonzero(self.direction))
        told = {"coordinates": len(self.direction), "moved": moved}
        return {"score": {"kind": self.score.name, **self.score.parameters}, "direction": told}

    @property
    def curve(self) -> TradeOff | None:
        """The curve of the score, valid if the model moves nothing else along the direction."""
        return self.score.curve

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score of the projection."""
        seen = jnp.dot(output, jnp.asarray(self.direction, jnp.float32), precision=jax.lax.Precision.HIGHEST)
        if seen.ndim == 0:
            return self.score(key, Collapsed(seen[None], jnp.float32(0.0)))
        return self.score(key, Collapsed(seen[:, None], jnp.zeros(seen.shape, jnp.float32)))


@checked
def along(score: Distinguisher, direction: np.ndarray) -> Along:
    """Read transcripts (rounds, coordinates), or updates, along a unit vector, and score what is seen.

    The model in ``score`` may be wrong, which costs power and never validity.

    Args:
      score: reads collapsed statistics of one dimension: the likelihood ratio of the training that the canary would
        meet, ``likelihood_ratio(many_rounds(...).collapsed(), worst_case_pair(dimension=1, ...))``.
      direction: a vector of length 1 (to 1e-4), of as many coordinates as an update has.

    Returns:
      The score. It accepts vectors, transcripts or both, as ``score`` does.

    Raises:
      ValueError: ``direction`` is not a unit vector, or ``score`` cannot read collapsed statistics.

    Examples:
      >>> import distinguishers, mechanisms
      >>> batches = mechanisms.sampling.shuffle(batch_size=1)
      >>> training = mechanisms.many_rounds(sampler=batches, clip=1.0, noise_multiplier=1.0, sees="isolated")
      >>> pair = mechanisms.worst_case_pair(records=4, dimension=1, clip=1.0, relation="zero_out")
      >>> model = distinguishers.likelihood_ratio(training.collapsed(), pair)
      >>> distinguishers.along(model, [0.6, 0.8, 0.0]).accepts
      ('transcript',)
    """
    vector = np.asarray(direction, np.float32)
    good = vector.ndim == 1 and abs(float(np.linalg.norm(vector.astype(np.float64))) - 1) < 1e-4
    require("direction", good, "a unit vector", f"shape {vector.shape}, length {np.linalg.norm(vector):.6g}")
    seen: dict[str, OutputKind] = {"collapsed": "vector", "collapsed_transcript": "transcript"}
    accepts: tuple[OutputKind, ...] = tuple(kind for statistic, kind in seen.items() if statistic in score.accepts)
    require("score", bool(accepts), "a distinguisher of collapsed statistics", score.name)
    return Along(score=score, direction=vector, accepts=accepts)
