"""Likelihood ratios of transcripts along one direction whose batches vary in size: mixtures over who attends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from distinguishers.contract import OneScore
from distinguishers.exact.attendance import AttendanceLaw
from dpsgd_audit.later import jax, jnp
from guarantees.numerics.distributions import binom, poisson
from guarantees.trade_off import TradeOff
from mechanisms.contract import Collapsed, OutputKind

TRANSCRIPTS: tuple[OutputKind, ...] = ("transcript", "collapsed_transcript")


def along(output: Any) -> jax.Array:
    """The one coordinate that gradients move: one number a round of a transcript, one of a sum."""
    return (output.along if isinstance(output, Collapsed) else output)[..., 0]


class AlongOnly(OneScore):
    """Reads that coordinate alone."""

    @property
    def span(self) -> int:
        """How many first coordinates of every round it reads."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Means:
    """The means that one round may have, in units of the noise around a centre, and ln of their probabilities."""

    values: np.ndarray
    log_weights: np.ndarray

    def evidence(self, seen: jax.Array) -> jax.Array:
        """ln of the mixture's density over the standard normal one, for every round."""
        values = jnp.asarray(self.values, jnp.float32)
        terms = seen[:, None] * values + jnp.asarray(self.log_weights - self.values**2 / 2, jnp.float32)
        return jax.nn.logsumexp(terms, axis=1)


def means_of(law: AttendanceLaw, *, shared: float, own: float, centre: float) -> Means:
    """Equal sums of gradients are one mean; ``shared``, ``own`` and ``centre`` are in units of the noise."""
    sums = shared * law.others + own * law.record - centre
    values, place = np.unique(np.round(sums, 12), return_inverse=True)
    weights = np.zeros(len(values))
    np.add.at(weights, place, law.probability)
    return Means(values=values, log_weights=np.log(weights))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AttendanceRatio(AlongOnly):
    """Independent rounds, each a mixture over who attends: the sum of their log-likelihood ratios.

    ``sum_t ln sum_i w_i phi(z_t - m_i) - ln sum_i w_i phi(z_t - m'_i)``: batches i of probability w_i, whose sums are
    m_i with the record and m'_i without it.
    """

    parameters: Mapping[str, Any]
    deviation: float
    centre: float
    with_record: Means
    without: Means
    curve: TradeOff | None
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        del key
        seen = jnp.atleast_1d(along(output)) / self.deviation - self.centre
        return jnp.sum(self.with_record.evidence(seen) - self.without.evidence(seen))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BinsRatio(AlongOnly):
    """Balls and bins, the other records seen too: every record draws one of T bins.

    With N others at s and the record at a, in units of the noise, the density of a transcript z is the coefficient
      ``(1/T) [x^N] sum_r e^(a z_r - a^2/2) f_r(x, a) prod_(t != r) f_t(x, 0)``,
      ``f_t(x, a) = sum_o Poisson(N/T)(o) x^o exp(s o (z_t - a) - (s o)^2/2)``, up to a factor that both sides share: N
    independent balls are Poisson counts given their sum. Followed bin by bin, N + 1 numbers with the record placed
    already and as many without. [the law is that of chua2025; the recursion is ours]
    """

    parameters: Mapping[str, Any]
    deviation: float
    others: int
    bins: int
    shared: float
    with_shift: float
    without_shift: float
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    @property
    def curve(self) -> None:
        """None: no closed form is known."""
        return

    @property
    def _most(self) -> int:
        """Others in one bin, exceeded with probability below 1e-12 in a transcript."""
        return min(self.others, int(binom.isf(1e-12 / self.bins, self.others, 1 / self.bins)) + 1)

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        del key
        seen = along(output).reshape(-1, self.bins) / self.deviation

        def epoch(z: jax.Array) -> jax.Array:
            return self._evidence(z, self.with_shift) - self._evidence(z, self.without_shift)

        return jnp.sum(jax.vmap(epoch)(seen))

    def _evidence(self, seen: jax.Array, shift: float) -> jax.Array:
        counts = np.arange(self._most + 1)
        prior = poisson.logpmf(counts, self.others / self.bins)
        sums = self.shared * counts
        length = self.others + 1

        def kernel(z: jax.Array, moved: float) -> jax.Array:
            return jnp.asarray(prior - sums**2 / 2 - sums * moved, jnp.float32) + jnp.asarray(sums, jnp.float32) * z

        def times(state: jax.Array, factor: jax.Array) -> jax.Array:
            return jnp.convolve(state, factor, precision=jax.lax.Precision.HIGHEST)[:length]

        def bin_by_bin(state: tuple[jax.Array, ...], z: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
            pending, placed, scale = state
            absent, present = kernel(z, 0.0), kernel(z, shift) + (shift * z - shift**2 / 2)
            top = jnp.maximum(jnp.max(absent), jnp.max(present))
            absent, present = jnp.exp(absent - top), jnp.exp(present - top)
            placed = times(placed, absent) + times(pending, present)
            pending = times(pending, absent)
            size = jnp.maximum(jnp.max(placed), jnp.max(pending))
            return (pending / size, placed / size, scale + top + jnp.log(size)), None

        start = jnp.zeros(length, jnp.float32).at[0].set(1.0)
        (_, placed, scale), _ = jax.lax.scan(bin_by_bin, (start, jnp.zeros_like(start), jnp.float32(0.0)), seen)
        return scale + jnp.log(placed[self.others]) - math.log(self.bins)
