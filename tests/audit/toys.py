"""Small mechanisms and distinguishers whose every number is known, for tests of the auditor itself."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from guarantees.trade_off import TradeOff
from mechanisms.pairs.neighbours import Neighbours

PAIR = Neighbours(without=jnp.zeros(1), with_record=jnp.ones(1), relation="zero_out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shift:
    """N(mu * dataset, 1)."""

    mu: float
    name: str = "shift"
    kind: str = "vector"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"mu": self.mu}

    def __call__(self, key: jax.Array, dataset: jax.Array) -> jax.Array:
        return self.mu * dataset + jax.random.normal(key, dataset.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class First:
    """Scores the first coordinate."""

    curve: TradeOff | None = None
    accepts: tuple[str, ...] = ("vector",)
    name: str = "first"

    @property
    def parameters(self) -> dict[str, Any]:
        return {}

    def __call__(self, key: jax.Array, output: jax.Array) -> jax.Array:
        return output[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BreaksAt:
    """The right score, but NaN on one trial of one side."""

    value: float
    curve: TradeOff | None = None
    accepts: tuple[str, ...] = ("vector",)
    name: str = "breaks"

    @property
    def parameters(self) -> dict[str, Any]:
        return {}

    def __call__(self, key: jax.Array, output: jax.Array) -> jax.Array:
        return jnp.where(output[0] == self.value, jnp.nan, output[0])
