"""The largest coordinate of an output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from distinguishers.contract import OneScore
from distinguishers.model_free.directions import pair_parameters
from guarantees.checks import checked
from guarantees.trade_off import TradeOff
from mechanisms.contract import OutputKind
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.structure import structured


@structured()
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MaxCoordinate(OneScore):
    """The largest coordinate of an output, ``max_j y_j``."""

    neighbours: Neighbours | None
    name: str = "max_coordinate"
    accepts: tuple[OutputKind, ...] = ("vector",)
    curve: TradeOff | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The pair."""
        return pair_parameters(self.neighbours)

    def __call__(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """The score of one output."""
        del key
        return jnp.max(output)


@checked
def max_coordinate(neighbours: Neighbours | None = None) -> MaxCoordinate:
    """The largest coordinate: finds a record that lifts one coordinate nobody can name beforehand.

    The test behind the lower bounds for shuffled batches, where one of many rounds holds the record.
    [ertan2026, equation 17] Weaker than a projection where the direction is known.

    Args:
      neighbours: the pair, for the record; the score does not read it.

    Returns:
      The score.

    Raises:
      ValueError: ``neighbours`` is no pair.

    Examples:
      >>> import distinguishers
      >>> distinguishers.max_coordinate().name
      'max_coordinate'
    """
    return MaxCoordinate(neighbours=neighbours)
