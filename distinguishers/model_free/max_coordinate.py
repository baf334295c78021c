"""The largest coordinate of an output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from distinguishers.contract import OneScore
from distinguishers.model_free.directions import pair_parameters, span_of
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff
from mechanisms.contract import OutputKind
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.structure import structured

Coordinates = Literal["signed", "absolute", "towards_record"]


@structured(numbers=("signs",), structure=("coordinates",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MaxCoordinate(OneScore):
    """``max_j y_j``, ``max_j |y_j|``, or ``max_j sign(g_j) y_j`` over the coordinates where g is not zero."""

    coordinates: Coordinates
    neighbours: Neighbours | None
    signs: jax.Array | None
    name: str = "max_coordinate"
    accepts: tuple[OutputKind, ...] = ("vector",)
    curve: TradeOff | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Which coordinates, and the pair."""
        return {"coordinates": self.coordinates, **pair_parameters(self.neighbours)}

    def __call__(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """The score of one output."""
        del key
        if self.coordinates == "absolute":
            return jnp.max(jnp.abs(output))
        if self.signs is None:
            return jnp.max(output)
        return jnp.max(jnp.where(self.signs == 0, -jnp.inf, self.signs * output))


@checked
def max_coordinate(neighbours: Neighbours | None = None, *, coordinates: Coordinates = "signed") -> MaxCoordinate:
    """The largest coordinate: finds a record that lifts one coordinate nobody can name beforehand.

    The test behind the lower bounds for shuffled batches, where one of many rounds holds the record.
    [ertan2026, equation 17] Weaker than a projection where the direction is known.

    Args:
      neighbours: the pair; needed for ``"towards_record"``.
      coordinates: ``"signed"``, ``"absolute"`` or ``"towards_record"``, which reads the signs of the record's gradient.

    Returns:
      The score.

    Raises:
      ValueError: ``coordinates`` is not one of these, or needs a pair and there is none.

    Examples:
      >>> import distinguishers
      >>> distinguishers.max_coordinate().name
      'max_coordinate'
    """
    if coordinates != "towards_record":
        return MaxCoordinate(coordinates=coordinates, neighbours=neighbours, signs=None)
    if neighbours is None:
        raise ValueError("coordinates='towards_record' reads the record's gradient: give neighbours=.")
    frame, direction = span_of(neighbours)
    full = frame.embedded(jnp.asarray(direction, jnp.float32))
    require("neighbours", bool(jnp.any(full != 0)), "a pair whose sums of gradients differ", neighbours.name)
    return MaxCoordinate(coordinates=coordinates, neighbours=neighbours, signs=jnp.sign(full))
