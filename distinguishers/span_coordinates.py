"""Read an output in one pass: its coordinates in the span of the gradients, and the mean square of the rest."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from dpsgd_audit.later import jax, jnp
from mechanisms.contract import Collapsed
from mechanisms.structure import structured


class Reading(NamedTuple):
    """An output in units of the reference noise."""

    along: jax.Array
    """Coordinates in the span, minus the centre, shape (rank,)."""
    excess: jax.Array
    """Mean square of the other coordinates minus one; zero if there are none."""


class Square(NamedTuple):
    """The square of the unit as a sum of two float32 numbers, and its inverse."""

    high: np.float32
    low: np.float32
    inverse: np.float32


@structured(numbers=("basis", "centre", "middle", "inverse_unit", "square", "free"), structure=("rank", "room"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """The span of the gradients, and the units in which outputs are read.

    Mean squares are stored minus one: at 1.5 million coordinates only their third digit and below matters, and float32
    has seven. The unit is the reciprocal of a float32, so that rounding it costs nothing.
    """

    rank: int
    dimension: int
    """Used on the host only, so that one program serves statistics of any dimension."""
    free: int
    """Number of coordinates outside the span."""
    room: bool
    """Whether there are coordinates outside the span."""
    basis: np.ndarray | None
    centre: np.ndarray
    """Subtracted first, in span coordinates and in units of the output, shape (rank,)."""
    middle: np.ndarray | None
    """The centre as a full vector; None without a basis."""
    inverse_unit: float
    """One over the unit, exactly a float32."""
    square: Square

    @property
    def unit(self) -> float:
        """The reference standard deviation of the noise, in float64."""
        return 1.0 / self.inverse_unit

    def relative(self, means: np.ndarray) -> np.ndarray:
        """Means in span coordinates, in the units of ``along``."""
        return (means - np.asarray(self.centre, np.float64)) / self.unit

    def read(self, output: Any) -> Reading:
        """Sufficient statistics of a vector, or of an output that is already collapsed."""
        if isinstance(output, Collapsed):
            return self._read_collapsed(output)
        # inside a program the dimension is unknown; the lengths were compared before it was compiled
        if self.dimension is not None and output.shape != (self.dimension,):
            raise ValueError(f"an output must have shape ({self.dimension},), got {output.shape}.")
        return self._read_vector(output) if self.basis is None else self._read_rotated(output)

    def standardised(self, output: jax.Array) -> jax.Array:
        """A vector output minus the centre, in units of the reference noise."""
        if self.middle is not None:
            return (output - self.middle) * self.inverse_unit
        return (output - jnp.pad(self.centre, (0, len(output) - self.rank))) * self.inverse_unit

    def embedded(self, along: jax.Array) -> jax.Array:
        """The full vector with these span coordinates."""
        if self.basis is None:
            return jnp.pad(along, (0, self.dimension - self.rank))
        return jnp.dot(along, self.basis, precision=jax.lax.Precision.HIGHEST)

    def outside_square(self, output: Any) -> jax.Array:
        """Mean square outside the span in the output's units, for scores without a reference noise."""
        if isinstance(output, Collapsed):
            return output.rest
        free = jnp.maximum(self.free, 1)
        if self.basis is None:
            outside = jnp.arange(len(output)) >= self.rank
            return jnp.sum(jnp.where(outside, output * output, 0.0)) / free
        along = jnp.dot(self.basis, output, precision=jax.lax.Precision.HIGHEST)
        return jnp.maximum(jnp.sum(output * output) - jnp.sum(along * along), 0.0) / free

    def _read_collapsed(self, output: Collapsed) -> Reading:
        along = (output.along - self.centre) * self.inverse_unit
        if not self.room:
            return Reading(along, jnp.float32(0.0))
        # output.rest is close to the float32 next to unit^2: their difference is exact, the remainder is small
        excess = ((output.rest - self.square.high) - self.square.low) * self.square.inverse
        return Reading(along, excess)

    def _read_vector(self, output: jax.Array) -> Reading:
        along = (output[: self.rank] - self.centre) * self.inverse_unit
        if not self.room:
            return Reading(along, jnp.float32(0.0))
        z = output * self.inverse_unit
        outside = jnp.arange(len(output)) >= self.rank
        return Reading(along, jnp.sum(jnp.where(outside, z * z - 1.0, 0.0)) / self.free)

    def _read_rotated(self, output: jax.Array) -> Reading:
        assert self.basis is not None
        z = self.standardised(output)
        along = jnp.dot(self.basis, z, precision=jax.lax.Precision.HIGHEST)
        if not self.room:
            return Reading(along, jnp.float32(0.0))
        outside = jnp.sum(z * z - 1.0) - jnp.sum(along * along - 1.0)
        return Reading(along, outside / self.free)


def make_frame(
    *, rank: int, dimension: int, basis: np.ndarray | None, unit: float = 1.0, centre: np.ndarray | None = None
) -> Frame:
    """Make a frame in float32 with its unit rounded to the reciprocal of a float32."""
    middle = np.zeros(rank, np.float32) if centre is None else np.asarray(centre, np.float32)
    inverse_unit = float(np.float32(1.0 / unit))
    square = (1.0 / inverse_unit) ** 2
    high = np.float32(square)
    return Frame(
        rank=rank,
        dimension=dimension,
        free=dimension - rank,
        room=dimension > rank,
        basis=None if basis is None else basis.astype(np.float32),
        centre=middle,
        middle=None if basis is None else (middle.astype(np.float64) @ basis).astype(np.float32),
        inverse_unit=inverse_unit,
        square=Square(high, np.float32(square - float(high)), np.float32(1 / square)),
    )
