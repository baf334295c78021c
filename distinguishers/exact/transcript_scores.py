"""Scores of whole transcripts, given at which places the record can be and how far it moves a round."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from distinguishers.contract import OneScore, OwnScore
from distinguishers.exact.round_mixtures import TRANSCRIPTS, AlongOnly, along
from dpsgd_audit.later import jax, jnp
from guarantees.trade_off import TradeOff
from mechanisms.contract import OutputKind
from mechanisms.structure import structured


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A transcript of aligned gradients along their one direction, in units of the noise.

    A round without the differing record in its batch has mean ``base``; with it the mean is ``base`` plus a shift, one
    for each dataset of the pair.
    """

    base: float
    with_shift: float
    without_shift: float
    deviation: float
    rounds: int

    def read(self, output: Any) -> jax.Array:
        """One number a round: standard normal apart from the record."""
        return (along(output) - self.base) / self.deviation


class Shift(NamedTuple):
    """What the record adds to its round, in units of the noise, and half its square."""

    value: float
    half_square: float


def optional_shift(value: float) -> Shift | None:
    """A shift, or None for 0."""
    return None if value == 0 else Shift(value, value**2 / 2)


class Places(NamedTuple):
    """Log probability of every place in an epoch, and of none: None if the record is never dropped."""

    log_weights: np.ndarray
    log_dropped: float | None


def places_of(weights: np.ndarray) -> Places:
    """Places with these weights, which may sum to less than 1."""
    dropped = max(0.0, 1.0 - float(weights.sum()))
    with np.errstate(divide="ignore"):
        return Places(np.log(weights).astype(np.float32), math.log(dropped) if dropped > 1e-12 else None)


@structured(numbers=("base", "deviation", "with_shift", "without_shift", "places"), structure=("epochs", "same_order"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlaceRatio(AlongOnly):
    """``ln`` of a mixture over the record's place with it, over the same without it.

    An epoch of T rounds z and places of probability w:
    ``ln (w_0 + sum_t w_t exp(a z_t - a^2/2)) - ln (w_0 + sum_t w_t exp(b z_t - b^2/2))``, w_0 the chance that the
    record is dropped; epochs add, unless they keep one order, when the exponents of a place do. With a = 2/sigma,
    b = 1/sigma this is the ratio of [chua2024, theorem 4.2]; with b = 0 that of [ertan2026, proposition 4.3].
    """

    parameters: Mapping[str, Any]
    base: float
    deviation: float
    with_shift: Shift | None
    """None if the record adds nothing."""
    without_shift: Shift | None
    places: Places
    epochs: int
    same_order: bool
    curve: TradeOff | None
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        del key
        seen = ((along(output) - self.base) / self.deviation).reshape(self.epochs, -1)
        return self._evidence(seen, self.with_shift) - self._evidence(seen, self.without_shift)

    def _evidence(self, seen: jax.Array, shift: Shift | None) -> jax.Array:
        if shift is None:
            return jnp.float32(0.0)
        exponents = shift.value * seen - shift.half_square
        if self.same_order:
            exponents = jnp.sum(exponents, axis=0, keepdims=True)
        found = jax.nn.logsumexp(jnp.asarray(self.places.log_weights)[None] + exponents, axis=1)
        if self.places.log_dropped is not None:
            found = jnp.logaddexp(found, jnp.float32(self.places.log_dropped))
        return jnp.sum(found)


@structured(numbers=("ratio",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SummedRatio(OneScore):
    """Independent rounds: the sum of the rounds' log-likelihood ratios."""

    ratio: OwnScore
    times: int
    parameters: Mapping[str, Any]
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    @property
    def span(self) -> int | None:
        """What the ratio of a round reads."""
        return self.ratio.span

    @property
    def round_length(self) -> int | None:
        """Length of the vectors of a round."""
        return self.ratio.length

    @functools.cached_property
    def _exact_curve(self) -> TradeOff | None:
        return None if self.ratio.curve is None else self.ratio.curve.compose(self.times)

    @property
    def curve(self) -> TradeOff | None:
        """The curve of one round, composed over all rounds."""
        return self._exact_curve

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        scores = jax.vmap(lambda row: self.ratio(key, row))(output)
        return jnp.sum(scores)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LargestRound(AlongOnly):
    """The log-likelihood ratio of the largest round alone: the max-coordinate test. [ertan2026, equations 13-17]

    With z the maximum of T rounds and a shift s: density ``(T-1) phi(z) Phi(z-s) / Phi(z) + phi(z-s)``, up to
    ``Phi(z)^(T-1)``, which both sides share. Increasing in z, so its tests are 'maximum > cut', the event E_C of
    [chua2024, theorem 4.2] included.
    """

    parameters: Mapping[str, Any]
    line: Line
    curve: TradeOff | None
    name: str = "largest_round"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of the largest round."""
        del key
        # a record that pulls down is looked for from below
        sign = math.copysign(1.0, self.line.with_shift - self.line.without_shift)
        largest = jnp.max(sign * self.line.read(output))
        return self._evidence(largest, sign * self.line.with_shift) - self._evidence(
            largest, sign * self.line.without_shift
        )

    def _evidence(self, largest: jax.Array, shift: float) -> jax.Array:
        own = -((largest - shift) ** 2) / 2
        if self.line.rounds == 1:
            return own
        # takes long to import, and nothing else here needs it
        from jax.scipy.special import log_ndtr

        others = math.log(self.line.rounds - 1) - largest**2 / 2 - log_ndtr(largest) + log_ndtr(largest - shift)
        return jnp.logaddexp(own, others)
