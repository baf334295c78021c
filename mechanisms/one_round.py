"""One round of DP-SGD: Poisson batch, clipped gradients, Gaussian noise, one of four normalisers."""

from __future__ import annotations

import dataclasses
import difflib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guarantees.checks import require
from guarantees.vocabulary import NORMALISERS, Normaliser
from mechanisms.chi_square import mean_square
from mechanisms.contract import Collapsed, Described, OutputKind
from mechanisms.counts import binomial, poisson_batch
from mechanisms.neighbours import GradientTable, materialise
from mechanisms.noise import normal

SMALLEST = 1e-18
"""Floor of a gradient's largest entry: XLA may square it on its own, and smaller squares vanish."""
UNROLLED_RECORDS = 16
"""Records up to which the batch is summed term by term, which XLA fuses with the noise; a product it does not."""


def clip_rows(gradients: jax.Array, clip: float) -> jax.Array:
    """``g / max(1, |g|_2 / clip)`` for every row; the norm is scaled, so that large gradients do not overflow."""
    largest = jnp.maximum(jnp.max(jnp.abs(gradients), axis=1, keepdims=True), SMALLEST)
    scaled = gradients / largest
    # at least 1 but for a zero gradient
    length = jnp.maximum(jnp.sqrt(jnp.sum(scaled * scaled, axis=1, keepdims=True)), 1.0)
    return gradients * jnp.minimum(1.0, clip / largest / length)


def batch_sum(batch: jax.Array, gradients: jax.Array) -> jax.Array:
    """Sum of the gradients in the batch."""
    if len(gradients) > UNROLLED_RECORDS:
        # A GPU would otherwise multiply in 10-bit mantissas.
        return jnp.dot(batch, gradients, precision=jax.lax.Precision.HIGHEST)
    total = batch[0] * gradients[0]
    for record in range(1, len(gradients)):
        total = total + batch[record] * gradients[record]
    return total


def table_sum(batch: jax.Array, table: GradientTable, clip: float) -> jax.Array:
    """The same for gradients along the first axes: nothing of the full dimension is read."""
    rows = jnp.asarray(clipped_rows(table.rows, clip), jnp.float32)
    ends = np.cumsum(table.counts)
    if len(ends) == table.records:
        joined = batch
    elif len(ends) <= UNROLLED_RECORDS:
        joined = jnp.stack([jnp.sum(part) for part in jnp.split(batch, ends[:-1])])
    else:
        joined = jnp.diff(jnp.cumsum(batch)[ends - 1], prepend=0.0)
    return jnp.pad(batch_sum(joined, rows), (0, table.dimension - table.rank))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRound(Described):
    """One round of DP-SGD on an array of per-example gradients.

    Every record joins the batch with probability ``rate``; gradients are clipped to ``clip`` in l2; the sum gets
    N(0, (noise_multiplier * clip)^2 I) and is divided by nothing (SGM), N * rate (EASGM), the batch's size or 1
    (ASGM), or floor(N * rate) or 1 (FEASGM). [wang2026, definitions 2.7, 2.8, 2.9 and A.1]

    N is the size of the dataset at hand: under add_remove neighbours the divisor itself leaks.
    """

    normalise_by: Normaliser
    rate: float
    clip: float
    noise_multiplier: float

    def __post_init__(self):
        check_parameters(self.normalise_by, self.rate, self.clip, self.noise_multiplier)

    @property
    def reads_tables(self) -> bool:
        """Whether it reads a GradientTable as it is."""
        return True

    def divisor(self, records: int) -> float | None:
        """What the noisy sum is divided by; None where it depends on the batch."""
        return divisor(self.normalise_by, records=records, rate=self.rate)

    def collapsed(self) -> CollapsedRound:
        """The same law through sufficient statistics."""
        return CollapsedRound(**dataclasses.asdict(self))

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The update on a table or an array of per-example gradients, shape (records, dimension)."""
        if isinstance(dataset, GradientTable) and dataset.basis is None:
            records, dimension = dataset.records, dataset.dimension
            batch = poisson_batch(key, records=records, rate=self.rate)
            total = table_sum(batch, dataset, self.clip)
        else:
            gradients = jnp.asarray(materialise(dataset), jnp.float32)
            if gradients.ndim != 2 or gradients.shape[0] < 1:
                raise ValueError(f"dataset must have shape (records, dimension), records >= 1, got {gradients.shape}.")
            records, dimension = gradients.shape
            batch = poisson_batch(key, records=records, rate=self.rate)
            total = batch_sum(batch, clip_rows(gradients, self.clip))
        noisy = total + self.noise_multiplier * self.clip * normal(key, (dimension,))
        fixed = self.divisor(records)
        return noisy * ((1 / fixed) if fixed is not None else 1 / jnp.maximum(jnp.sum(batch), 1.0))


one_round = OneRound
"""The constructor, by the name that suites and records use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollapsedRound(Described):
    """One round of DP-SGD through sufficient statistics: ``one_round(...).collapsed()``.

    The update in the span of the gradients, with the mean square of the rest: the same law, O(1) in the dimension. The
    noise outside the span is independent of everything, so its mean square is one scaled chi-square; a group of equal
    gradients enters the batch by a binomial count. [wang2026, definitions 2.7-2.9]
    """

    normalise_by: Normaliser
    rate: float
    clip: float
    noise_multiplier: float

    def __post_init__(self):
        check_parameters(self.normalise_by, self.rate, self.clip, self.noise_multiplier)

    @property
    def reads_tables(self) -> bool:
        """Whether it reads a GradientTable as it is."""
        return True

    @property
    def kind(self) -> OutputKind:
        """Sufficient statistics."""
        return "collapsed"

    def divisor(self, records: int) -> float | None:
        """What the noisy sum is divided by; None where it depends on the batch."""
        return divisor(self.normalise_by, records=records, rate=self.rate)

    def __call__(self, key: jax.Array, dataset: Any) -> Collapsed:
        """The update's statistics on a GradientTable."""
        if not isinstance(dataset, GradientTable):
            raise ValueError(
                "the collapsed simulator reads a GradientTable (worst_case_pair, neighbours_from_gradients, ...), "
                f"got {type(dataset).__name__}."
            )
        total, size = self._batch(key, dataset)
        deviation = self.noise_multiplier * self.clip
        along = total + deviation * normal(key, (dataset.rank,))
        fixed = self.divisor(dataset.records)
        degrees = dataset.dimension - dataset.rank
        variance = (deviation / fixed if fixed is not None else deviation) ** 2
        rest = mean_square(key, degrees, scale=variance) if degrees else jnp.float32(0.0)
        if fixed is not None:
            return Collapsed(along * (1 / fixed), rest)
        scale = 1 / jnp.maximum(size, 1.0)
        return Collapsed(along * scale, rest * scale**2)

    def _batch(self, key: jax.Array, table: GradientTable) -> tuple[jax.Array, jax.Array]:
        """Sum of the batch's gradients in the span, and its size."""
        rows = clipped_rows(table.rows, self.clip)
        counts = np.asarray(table.counts)
        total, size = jnp.zeros((table.rank,), jnp.float32), jnp.float32(0.0)
        # Groups of equal size share a table and one vectorised draw; the counter is the group's place.
        for count in np.unique(counts):
            groups = np.flatnonzero(counts == count)
            drawn = binomial(key, jnp.asarray(groups, jnp.uint32), trials=int(count), rate=self.rate)
            total = total + jnp.sum(drawn[:, None] * jnp.asarray(rows[groups], jnp.float32), axis=0)
            size = size + jnp.sum(drawn)
        return total, size


collapsed_round = CollapsedRound
"""The constructor, by the name that suites and records use."""


def clipped_rows(rows: np.ndarray, clip: float) -> np.ndarray:
    """Clipping on the host: coordinates in an orthonormal basis have the norms of the gradients."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(1.0, lengths / clip)


def divisor(normalise_by: str, *, records: int, rate: float) -> float | None:
    """1, N q, or floor(N q) with 1 for 0; None for the realised batch. [wang2026, definitions 2.7-2.9 and A.1]

    The floor is of the float64 product, as implementations compute it.
    """
    if normalise_by == "realised_batch":
        return None
    if normalise_by == "none":
        return 1.0
    expected = records * rate
    return expected if normalise_by == "expected_batch" else float(max(math.floor(expected), 1))


def check_parameters(normalise_by: str, rate: float, clip: float, noise_multiplier: float) -> None:
    """Refuse parameters outside the definition."""
    if normalise_by not in NORMALISERS:
        near = difflib.get_close_matches(str(normalise_by), NORMALISERS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"normalise_by must be one of {NORMALISERS}, got {normalise_by!r}.{hint}")
    require("rate", bool(0 < rate <= 1), "in (0, 1]", rate)
    require("clip", bool(clip > 0 and math.isfinite(clip)), "> 0 and finite", clip)
    good = bool(noise_multiplier > 0 and math.isfinite(noise_multiplier))
    require("noise_multiplier", good, "> 0 and finite", noise_multiplier)
