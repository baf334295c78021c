"""The likelihood ratio of a training with correlated noise: undo the correlation, then ask where the record was."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp

from distinguishers.contract import OneScore
from distinguishers.exact.round_mixtures import along
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff
from mechanisms.adapters.jax_privacy_banded import BandedTraining, banded_claim
from mechanisms.contract import OutputKind
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.simulators.training import aligned


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BandedRatio(OneScore):
    """A transcript y with noise ``C^-1 Z``: C y has white noise, and a record in round t shows as C's column t.

    With v = C y in units of the noise, a the record's gradient in the same units and columns c_t,
      ``ln (1/G) sum_g prod_(t in group g) (1 - rate + rate exp(a <c_t, v> - a^2 |c_t|^2 / 2))``,
    exact where the columns of one group do not overlap: as many groups as bands, or more. [choquette2023]
    """

    parameters: Mapping[str, Any]
    strategy: tuple[float, ...]
    shift: float
    deviation: float
    rate: float
    groups: int
    curve: TradeOff | None
    name: str = "banded_ratio"
    accepts: tuple[OutputKind, ...] = ("transcript",)

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        del key
        seen = along(output) / self.deviation
        rounds = len(seen)
        matrix = banded_matrix(self.strategy, rounds)
        white = jnp.dot(jnp.asarray(matrix, jnp.float32), seen, precision=jax.lax.Precision.HIGHEST)
        shown = jnp.dot(jnp.asarray(matrix.T, jnp.float32), white, precision=jax.lax.Precision.HIGHEST)
        exponents = self.shift * shown - jnp.asarray(self.shift**2 / 2 * np.sum(matrix**2, axis=0), jnp.float32)
        if self.rate < 1:
            exponents = jnp.logaddexp(np.log1p(-self.rate), np.log(self.rate) + exponents)
        padded = jnp.pad(exponents, (0, -rounds % self.groups)).reshape(-1, self.groups)
        return logsumexp(jnp.sum(padded, axis=0)) - np.log(self.groups)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RoundSpread(OneScore):
    """Largest minus smallest round along the first axis: noise that rounds share cancels in it."""

    name: str = "round_spread"
    accepts: tuple[OutputKind, ...] = ("transcript", "collapsed_transcript")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None."""
        return {}

    @property
    def curve(self) -> None:
        """None: nothing is assumed."""
        return

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The spread of one transcript."""
        del key
        seen = along(output)
        return jnp.max(seen) - jnp.min(seen)


round_spread = RoundSpread
"""The constructor, by the name that records use."""


def banded_matrix(strategy: tuple[float, ...], rounds: int) -> np.ndarray:
    """The lower triangular Toeplitz matrix with these coefficients."""
    matrix = np.zeros((rounds, rounds))
    for band, value in enumerate(strategy):
        matrix += value * np.eye(rounds, k=-band)
    return matrix


@checked
def banded_ratio(mechanism: BandedTraining, neighbours: Neighbours) -> BandedRatio:
    """The likelihood ratio of JAX Privacy's banded matrix factorisation, without faults, between aligned neighbours.

    ``worst_case_pair(..., shared=0.0, relation="zero_out")``: the adversary knows the other records, so they may as
    well be zero.
    """
    shared, own = aligned(neighbours.with_record, mechanism.clip)
    _, replaced = aligned(neighbours.without, mechanism.clip)
    good = shared == 0 and replaced == 0 and own != 0
    require("neighbours", good, "worst_case_pair(..., shared=0.0, relation='zero_out')", neighbours.parameters)
    deviation = mechanism.noise_multiplier * mechanism.clip * float(np.linalg.norm(mechanism.strategy))
    curve = None
    if mechanism.batches == "balls_in_bins" and mechanism.bands == 1 and abs(own) == mechanism.clip:
        curve = banded_claim(mechanism).curve
    return BandedRatio(
        parameters={
            "mechanism": {"kind": mechanism.name, **mechanism.parameters},
            "neighbours": {"kind": neighbours.name, **neighbours.parameters},
        },
        strategy=mechanism.strategy,
        shift=own / deviation,
        deviation=deviation,
        rate=mechanism.rate,
        groups=mechanism.groups,
        curve=curve,
    )
