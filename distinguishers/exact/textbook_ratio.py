"""The likelihood ratio of the Gaussian mechanism."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import guarantees
from distinguishers.contract import OneScore
from dpsgd_audit.later import jax, jnp
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism, OutputKind
from mechanisms.names import name_of
from mechanisms.pairs.neighbours import Neighbours, materialise
from mechanisms.simulators.textbook import GaussianMechanism
from mechanisms.structure import structured


@structured(numbers=("direction", "middle"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShiftRatio(OneScore):
    """Log-likelihood ratio of N(a, sd^2 I) against N(b, sd^2 I): ``<b - a, y - (a + b)/2> / sd^2``."""

    parameters: Mapping[str, Any]
    direction: np.ndarray
    middle: np.ndarray
    curve: TradeOff | None
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = ("vector",)

    def __call__(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """The log-likelihood ratio of one output."""
        del key
        centred = output - jnp.asarray(self.middle, jnp.float32)
        return jnp.sum(jnp.asarray(self.direction, jnp.float32) * centred)


def textbook_ratio(mechanism: Mechanism, neighbours: Neighbours) -> ShiftRatio:
    """The likelihood ratio of a Gaussian mechanism."""
    if not isinstance(mechanism, GaussianMechanism):
        raise ValueError(
            f"the likelihood of {name_of(mechanism)!r} is not known; give a model (mechanisms.one_round(...), "
            "mechanisms.gaussian_mechanism(...)) or use distinguishers.battery(neighbours)."
        )
    without, with_record = (_array(dataset).sum(axis=0) for dataset in (neighbours.without, neighbours.with_record))
    deviation = mechanism.noise_multiplier * mechanism.sensitivity
    difference = with_record - without
    mu = float(np.linalg.norm(difference)) / deviation
    return ShiftRatio(
        parameters={
            "mechanism": {"kind": mechanism.name, **mechanism.parameters},
            "neighbours": {"kind": neighbours.name, **neighbours.parameters},
        },
        direction=difference / deviation**2,
        middle=(without + with_record) / 2,
        curve=guarantees.gaussian(mu=mu).curve if mu > 0 else None,
    )


def _array(dataset: Any) -> np.ndarray:
    """A dataset as an array."""
    values = np.asarray(materialise(dataset), np.float64)
    if values.ndim < 1 or not np.isfinite(values).all():
        raise ValueError(f"a dataset must be an array of finite numbers, got shape {values.shape}.")
    return values
