"""Likelihood ratios of the mechanisms whose truth is known in closed form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import guarantees
from distinguishers.contract import OneScore
from dpsgd_audit.later import jax, jnp
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism, OutputKind, name_of
from mechanisms.pairs.neighbours import Neighbours, materialise
from mechanisms.simulators.textbook import GaussianMechanism, LaplaceMechanism, RandomisedResponseMechanism
from mechanisms.structure import structured

TIE_WIDTH = 2.0**-13
"""Scores that tie are spread over this relative width, away from zero, so that no order between values changes."""


@structured(numbers=("direction", "middle"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ShiftRatio(OneScore):
    """N(a, sd^2 I) against N(b, sd^2 I): ``<b - a, y - (a + b)/2> / sd^2``."""

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


@structured(numbers=("slope", "middle", "bound"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ClippedRatio(OneScore):
    """``sum_j clip(slope_j (y_j - middle_j), -bound_j, bound_j)``, with atoms at the ends.

    Laplace noise: slope 2 sign/scale, bound |difference| / scale. Told bits: any slope beyond the bound.
    """

    parameters: Mapping[str, Any]
    slope: np.ndarray
    middle: np.ndarray
    bound: np.ndarray
    curve: TradeOff | None
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = ("vector",)

    def __call__(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """The log-likelihood ratio of one output; atoms are spread with the key."""
        bound = jnp.asarray(self.bound, jnp.float32)
        linear = jnp.asarray(self.slope, jnp.float32) * (output - jnp.asarray(self.middle, jnp.float32))
        score = jnp.sum(jnp.clip(linear, -bound, bound))
        return score * (1 + TIE_WIDTH * jax.random.uniform(key, minval=2.0**-9))


def textbook_ratio(mechanism: Mechanism, neighbours: Neighbours) -> ShiftRatio | ClippedRatio:
    """The likelihood ratio of a Gaussian, Laplace or randomised-response mechanism."""
    known = isinstance(mechanism, GaussianMechanism | LaplaceMechanism | RandomisedResponseMechanism)
    if not known:
        raise ValueError(
            f"the likelihood of {name_of(mechanism)!r} is not known; give a model (mechanisms.one_round(...), a "
            "textbook mechanism) or use distinguishers.battery(neighbours)."
        )
    parameters = {
        "mechanism": {"kind": mechanism.name, **mechanism.parameters},
        "neighbours": {"kind": neighbours.name, **neighbours.parameters},
    }
    first, second = (_array(dataset) for dataset in (neighbours.without, neighbours.with_record))
    if isinstance(mechanism, RandomisedResponseMechanism):
        return _bits_ratio(mechanism, first.ravel(), second.ravel(), parameters)
    sums = first.sum(axis=0), second.sum(axis=0)
    if isinstance(mechanism, GaussianMechanism):
        return _gaussian_ratio(mechanism, *sums, parameters)
    return _laplace_ratio(mechanism, *sums, parameters)


def _array(dataset: Any) -> np.ndarray:
    values = np.asarray(materialise(dataset), np.float64)
    if values.ndim < 1 or not np.isfinite(values).all():
        raise ValueError(f"a dataset must be an array of finite numbers, got shape {values.shape}.")
    return values


def _gaussian_ratio(
    mechanism: GaussianMechanism, without: np.ndarray, with_record: np.ndarray, parameters: Mapping[str, Any]
) -> ShiftRatio:
    deviation = mechanism.noise_multiplier * mechanism.sensitivity
    difference = with_record - without
    mu = float(np.linalg.norm(difference)) / deviation
    return ShiftRatio(
        parameters=parameters,
        direction=difference / deviation**2,
        middle=(without + with_record) / 2,
        curve=guarantees.gaussian(mu=mu).curve if mu > 0 else None,
    )


def _laplace_ratio(
    mechanism: LaplaceMechanism, without: np.ndarray, with_record: np.ndarray, parameters: Mapping[str, Any]
) -> ClippedRatio:
    difference = (with_record - without) * mechanism.epsilon / mechanism.sensitivity
    one = np.count_nonzero(difference) == 1
    return ClippedRatio(
        parameters=parameters,
        slope=2 * np.sign(difference) * mechanism.epsilon / mechanism.sensitivity,
        middle=(without + with_record) / 2,
        bound=np.abs(difference),
        curve=guarantees.laplace(epsilon=float(np.abs(difference).sum())).curve if one else None,
    )


def _bits_ratio(
    mechanism: RandomisedResponseMechanism, without: np.ndarray, with_record: np.ndarray, parameters: Mapping[str, Any]
) -> ClippedRatio:
    if without.shape != with_record.shape:
        raise ValueError(
            f"randomised response needs equally many bits on both sides, got {without.size} and {with_record.size}."
        )
    difference = np.sign(with_record - without)
    one = np.count_nonzero(difference) == 1 and mechanism.epsilon > 0
    return ClippedRatio(
        parameters=parameters,
        slope=difference * 4 * mechanism.epsilon,
        middle=np.full(without.shape, 0.5),
        bound=np.abs(difference) * mechanism.epsilon,
        curve=guarantees.randomised_response(epsilon=mechanism.epsilon).curve if one else None,
    )
