"""Scores that need no model of the mechanism: projection on the record's gradient, norm, and their ratio."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.contract import OneScore
from distinguishers.model_free.directions import pair_parameters, span_of
from distinguishers.span_coordinates import Frame
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff
from mechanisms.contract import Collapsed, OutputKind
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.structure import structured

SpanKind = Literal["projection", "ratio", "contrast"]
SMALLEST = 1e-30


@structured(numbers=("frame", "direction", "weights"), structure=("name",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpanScore(OneScore):
    """A score of the output's coordinate along the record's gradient, relative to the rest of the output."""

    name: SpanKind
    neighbours: Neighbours
    frame: Frame
    direction: np.ndarray
    """The direction in span coordinates."""
    weights: jax.Array | None
    """Weights of the output's coordinates; None if only the first ``rank``, which are the span, count."""
    accepts: tuple[OutputKind, ...] = ("vector", "collapsed")
    curve: TradeOff | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The pair."""
        return pair_parameters(self.neighbours)

    @property
    def length(self) -> int:
        """Length of the vectors that it reads."""
        return self.frame.dimension

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score of one output."""
        del key
        direction = jnp.asarray(self.direction, jnp.float32)
        if isinstance(output, Collapsed):
            along = jnp.sum(output.along * direction)
        elif self.weights is None:
            along = jnp.sum(output[: self.frame.rank] * direction)
        else:
            along = jnp.sum(output * self.weights)
        if self.name != "ratio":
            return along
        return along / jnp.sqrt(jnp.maximum(self.frame.outside_square(output), SMALLEST))


@structured(numbers=("frame",), structure=("sign",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Norm(OneScore):
    """``sign * ln(mean square)`` of the output, outside the span of the gradients if a pair is given."""

    sign: int
    neighbours: Neighbours | None
    frame: Frame | None
    curve: TradeOff | None = None

    @property
    def name(self) -> str:
        """The name in suites."""
        return "norm"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The sign and the pair."""
        return {"sign": self.sign, **pair_parameters(self.neighbours)}

    @property
    def length(self) -> int | None:
        """Length of the vectors that it reads; without a pair, any."""
        return None if self.frame is None else self.frame.dimension

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """Kinds of output: collapsed statistics have only the size outside the span, which needs a pair."""
        return ("vector",) if self.frame is None else ("vector", "collapsed")

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score of one output."""
        del key
        if self.frame is None or not self.frame.room:
            square = output.rest if isinstance(output, Collapsed) else jnp.mean(output * output)
        else:
            square = self.frame.outside_square(output)
        return self.sign * jnp.log(jnp.maximum(square, SMALLEST))


def _span_score(kind: SpanKind, neighbours: Neighbours) -> SpanScore:
    frame, direction = span_of(neighbours)
    require("neighbours", bool(np.any(direction)), "a pair whose sums of gradients differ", neighbours.name)
    if kind != "projection":
        require(
            "neighbours",
            frame.dimension > frame.rank,
            "a pair whose gradients span fewer directions than they have coordinates",
            neighbours.name,
        )
    weights = None
    if kind == "contrast" or frame.basis is not None:
        # On the host: XLA would fold these sums of constants at compile time, at microseconds an entry.
        weights = np.asarray(frame.embedded(jnp.asarray(direction, jnp.float32)), np.float64)
    if kind == "contrast" and weights is not None:
        outside = 1.0 - weights**2
        weights = weights - weights.sum() * outside / outside.sum()
    return SpanScore(
        name=kind,
        neighbours=neighbours,
        frame=frame,
        direction=direction,
        weights=None if weights is None else jnp.asarray(weights, jnp.float32),
        accepts=("vector",) if kind == "contrast" else ("vector", "collapsed"),
    )


@checked
def projection(neighbours: Neighbours) -> SpanScore:
    """``<y, g> / |g|``, g the differing record's gradient (minus the one in its place): finds a changed mean.

    Blind to the normaliser; optimal for a Gaussian mechanism on a sum.

    Args:
      neighbours: the pair.

    Returns:
      The score.

    Raises:
      ValueError: the two datasets have equal sums: there is no direction to project on.

    Examples:
      >>> import distinguishers, mechanisms
      >>> distinguishers.projection(mechanisms.scalar_pair()).name
      'projection'
    """
    return _span_score("projection", neighbours)


@checked
def ratio(neighbours: Neighbours) -> SpanScore:
    """Projection over the root mean square of the output outside the span: a mean, whatever the divisor.

    Where the divisor varies from release to release (realised batches), the plain projection drowns in its spread.
    Blind to anything that scales the whole output.

    Args:
      neighbours: the pair, whose gradients span fewer directions than they have coordinates.

    Returns:
      The score.

    Raises:
      ValueError: the two datasets have equal sums, or their gradients span all coordinates.

    Examples:
      >>> import distinguishers, jax, jax.numpy as jnp, mechanisms
      >>> score = distinguishers.ratio(mechanisms.worst_case_pair(records=4, dimension=4, clip=1.0))
      >>> outputs = jnp.array([3.0, 1.0, -1.0, 1.0]), jnp.array([6.0, 2.0, -2.0, 2.0])
      >>> [round(float(score(jax.random.key(0), output)), 3) for output in outputs]  # the divisor does not matter
      [3.0, 3.0]
    """
    return _span_score("ratio", neighbours)


@checked
def contrast(neighbours: Neighbours) -> SpanScore:
    """Projection minus the mean of the other coordinates: finds noise that several coordinates share.

    A generator that reuses one draw for many coordinates cancels here and leaves the gradient bare. With independent
    noise it is about as good as ``projection``, and never better. It does not read collapsed statistics.

    Args:
      neighbours: the pair, whose gradients span fewer directions than they have coordinates.

    Returns:
      The score.

    Raises:
      ValueError: the two datasets have equal sums, or their gradients span all coordinates.

    Examples:
      >>> import distinguishers, jax, jax.numpy as jnp, mechanisms
      >>> score = distinguishers.contrast(mechanisms.worst_case_pair(records=4, dimension=4, clip=1.0))
      >>> round(float(score(jax.random.key(0), jnp.array([3.0, 2.0, 2.0, 2.0]))), 3)  # 1, and noise of 2 everywhere
      1.0
    """
    return _span_score("contrast", neighbours)


@checked
def norm(neighbours: Neighbours | None = None, *, sign: Literal[-1, 1] = -1) -> Norm:
    """``sign`` times the log mean square of the output: finds a noise scale that depends on the record.

    Dividing by a count that the record raises makes outputs smaller, hence the default sign -1. No model needed; at 1.5
    million coordinates float32 resolves the score to 1e-7 (its standard deviation there is 1e-3). Nearly blind to a
    changed mean.

    Args:
      neighbours: a pair, whose gradients' span is left out; without one all coordinates count, and collapsed statistics
        cannot be read.
      sign: -1 if the record makes outputs smaller, 1 if it makes them larger.

    Returns:
      The score.

    Raises:
      ValueError: ``sign`` is neither -1 nor 1, or the pair's datasets are neither gradients nor equally long vectors.

    Examples:
      >>> import distinguishers, jax, jax.numpy as jnp
      >>> round(float(distinguishers.norm()(jax.random.key(0), jnp.array([2.0, -2.0]))), 3)  # minus ln 4
      -1.386
    """
    frame = None if neighbours is None else span_of(neighbours)[0]
    return Norm(sign=sign, neighbours=neighbours, frame=frame)
