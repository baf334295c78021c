"""One round of DP-SGD: Poisson batch, clipped gradients, Gaussian noise, one of four normalisers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dpsgd_audit.later import jax, jnp
from dpsgd_audit.spelling import did_you_mean
from guarantees.answers import answers
from guarantees.checks import require
from guarantees.vocabulary import NORMALISERS, Normaliser
from mechanisms.contract import Collapsed, Described
from mechanisms.pairs.neighbours import GradientTable, materialise
from mechanisms.randomness.counts import joining
from mechanisms.simulators.rounds import CollapsedTable, DenseRound, TableRound, collapsed_table, inverse, table_round


@answers(reads_tables=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Round(Described):
    """Parameters of both simulators of a round."""

    normalise_by: Normaliser
    rate: float
    clip: float
    noise_multiplier: float

    def __post_init__(self):
        check_parameters(self.normalise_by, self.rate, self.clip, self.noise_multiplier)

    def divisor(self, records: int) -> float | None:
        """Divisor of the noisy sum; None if it depends on the batch."""
        return divisor(self.normalise_by, records=records, rate=self.rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRound(_Round):
    """One round of DP-SGD on an array of per-example gradients.

    Every record joins the batch with probability ``rate``; gradients are clipped to ``clip`` in l2; the sum gets
    N(0, (noise_multiplier * clip)^2 I) and is divided by nothing (SGM), N * rate (EASGM), the batch's size or 1
    (ASGM), or floor(N * rate) or 1 (FEASGM). [wang2026, definitions 2.7, 2.8, 2.9 and A.1]

    N is the size of the dataset at hand: under add_remove neighbours the divisor itself leaks. This simulates the rule;
    it says nothing about any library's code.

    Args:
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      rate: probability with which each record joins the batch.
      clip: l2 norm to which gradients are clipped.
      noise_multiplier: standard deviation of the noise over ``clip``.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=1.0, noise_multiplier=1.0)
      >>> step.divisor(records=4), step.divisor(records=5)  # which tells the two datasets apart
      (2.0, 2.5)
    """

    def collapsed(self) -> CollapsedRound:
        """The same law through sufficient statistics."""
        return CollapsedRound(**dataclasses.asdict(self))

    def release_on(self, dataset: Any) -> TableRound | DenseRound:
        """The round on a table or an array of per-example gradients, shape (records, dimension)."""
        deviation = self.noise_multiplier * self.clip
        if isinstance(dataset, GradientTable) and dataset.basis is None:
            return table_round(
                dataset, clip=self.clip, rate=self.rate, deviation=deviation, divisor=self.divisor(dataset.records)
            )
        gradients = jnp.asarray(materialise(dataset), jnp.float32)
        if gradients.ndim != 2 or gradients.shape[0] < 1:
            raise ValueError(f"dataset must have shape (records, dimension), records >= 1, got {gradients.shape}.")
        return DenseRound(
            gradients=gradients,
            clip=self.clip,
            joins=joining(self.rate),
            deviation=deviation,
            shrink=inverse(self.divisor(len(gradients))),
        )

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The update on a table or an array of per-example gradients, shape (records, dimension)."""
        return self.release_on(dataset)(key)


one_round = OneRound
"""The constructor, by the name that suites and records use."""


@answers(kind="collapsed")
@dataclasses.dataclass(frozen=True, kw_only=True)
class CollapsedRound(_Round):
    """One round of DP-SGD through sufficient statistics: ``one_round(...).collapsed()``.

    The update in the span of the gradients, with the mean square of the rest: the same law, O(1) in the dimension. The
    noise outside the span is independent of everything, so its mean square is one scaled chi-square; a group of equal
    gradients enters the batch by a binomial count. [wang2026, definitions 2.7-2.9]

    It reads GradientTables only, which ``worst_case_pair`` and its like hold, and simulates the rule: it says nothing
    about any library's code.

    Args:
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      rate: probability with which each record joins the batch, in (0, 1].
      clip: l2 norm to which gradients are clipped, above 0 and finite.
      noise_multiplier: standard deviation of the noise over ``clip``, above 0 and finite.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> from mechanisms.simulators.one_round import collapsed_round
      >>> given = dict(normalise_by="expected_batch", rate=0.5, clip=1.0, noise_multiplier=1.0)
      >>> collapsed_round(**given) == mechanisms.one_round(**given).collapsed()
      True
    """

    def release_on(self, dataset: Any) -> CollapsedTable:
        """The round on a GradientTable."""
        if not isinstance(dataset, GradientTable):
            raise ValueError(
                "the collapsed simulator reads a GradientTable (worst_case_pair, neighbours_from_gradients, ...), "
                f"got {type(dataset).__name__}."
            )
        return collapsed_table(
            dataset,
            clip=self.clip,
            rate=self.rate,
            deviation=self.noise_multiplier * self.clip,
            divisor=self.divisor(dataset.records),
        )

    def __call__(self, key: jax.Array, dataset: Any) -> Collapsed:
        """The update's statistics on a GradientTable."""
        return self.release_on(dataset)(key)


collapsed_round = CollapsedRound
"""The constructor, by the name that suites and records use."""


def divisor(normalise_by: str, *, records: int, rate: float) -> float | None:
    """Divisor of a round: 1, N q, or floor(N q) with 1 for 0; None for the realised batch.

    [wang2026, definitions 2.7-2.9 and A.1] The floor is of the float64 product, as implementations compute it.
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
        meant = did_you_mean(normalise_by, NORMALISERS)
        raise ValueError(f"normalise_by must be one of {NORMALISERS}, got {normalise_by!r}{meant}.")
    require("rate", bool(0 < rate <= 1), "in (0, 1]", rate)
    require("clip", bool(clip > 0 and math.isfinite(clip)), "> 0 and finite", clip)
    good = bool(noise_multiplier > 0 and math.isfinite(noise_multiplier))
    require("noise_multiplier", good, "> 0 and finite", noise_multiplier)
