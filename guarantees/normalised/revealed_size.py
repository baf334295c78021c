"""What a normalised round leaks to an adversary who also sees the batch's size: an average over the sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from guarantees.answers import hands_on
from guarantees.checks import checked
from guarantees.claim import Claim
from guarantees.laws.combined import MixtureLaw
from guarantees.laws.discrete_law import no_leak
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import LossLaw
from guarantees.laws.summed_law import SummedLaw, summed
from guarantees.normalised.round import Round, batch_sizes, round_claim
from guarantees.normalised.variance_pair import ShiftedPairLaw, pair_log_moment
from guarantees.numerics.array import Array
from guarantees.vocabulary import Normaliser, Relation

NODES = 8
"""Points of the Gauss rule that stands for a run of neighbouring batch sizes."""
LEAST_WEIGHT = 1e-18
"""Sizes at either end with smaller weights are left out, and their weight is stated as lost."""


def average_over_sizes(records: int, rate: float, lengths: Callable[[Array], Array]) -> tuple[Array, Array, float]:
    """Batch sizes and weights for averages over a binomial size, and the weight left out.

    ``lengths`` says for each size over how many neighbours the averaged function is smooth (well within one of
    its own scales). Runs of more than NODES such sizes are replaced by a Gauss rule of their own weights, exact for
    polynomials below degree 2 NODES on the run; shorter ones are kept. Estimated error 1e-12 of the average.
    """
    sizes, log_weights, lost = batch_sizes(records, rate)
    sizes, weights = sizes.astype(float), np.exp(log_weights)
    held = np.flatnonzero(weights > LEAST_WEIGHT)
    lost += float(weights.sum() - weights[held].sum())
    sizes, weights = sizes[held[0] : held[-1] + 1], weights[held[0] : held[-1] + 1]
    longest = lengths(sizes)
    found, start = [], 0
    while start < len(sizes):
        end = min(len(sizes), start + max(1, int(longest[start])))
        found.append(_gauss(sizes[start:end], weights[start:end]))
        start = end
    nodes, shares = (np.concatenate(part) for part in zip(*found, strict=True))
    return nodes, shares, max(lost, 0.0) + (0.0 if len(nodes) == len(sizes) else 1e-12)


def _gauss(sizes: Array, weights: Array) -> tuple[Array, Array]:
    """The Gauss rule of a discrete law, from the recurrence of its orthogonal polynomials. [golub1969]"""
    if len(sizes) <= NODES:
        return sizes, weights
    total = float(weights.sum())
    middle, half = (sizes[0] + sizes[-1]) / 2, (sizes[-1] - sizes[0]) / 2
    x, law = (sizes - middle) / half, np.sqrt(weights / total)
    # Lanczos with every earlier vector removed again: few steps, so rounding stays rounding.
    basis, diagonal, beside = [law], [], []
    for step in range(NODES):
        image = x * basis[-1]
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):
            for vector in basis:
                image = image - (image @ vector) * vector
        norm = float(np.linalg.norm(image))
        if step < NODES - 1:
            beside.append(norm)
            basis.append(image / norm)
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return middle + half * nodes, total * vectors[0] ** 2


def _smooth_shift(step: float) -> Callable[[Array], Array]:
    """Run lengths if only the shift depends on the size, by ``step`` each: half a deviation, an eighth of the shift."""
    return lambda sizes: np.minimum(0.5 / max(step, 1e-300), sizes / 16.0)


def _smooth_scale(dimension: int, sigma: float) -> Callable[[Array], Array]:
    """Run lengths if the scale is k/(k+1): the mean loss is sqrt(n/2)/k deviations from 0 and falls like 1/k^2."""

    def lengths(sizes: Array) -> Array:
        size = np.maximum(sizes, 1.0)
        return np.minimum(0.5 * size / (8.0 + math.sqrt(2.0 * dimension) / size), 0.25 * sigma * size**2)

    return lengths


@hands_on("pair", "error", "work")
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RevealedSizeLaw(MixtureLaw):
    """ASGM with batch and bit shown: no loss without the bit, a shift for an empty batch, else unequal scales."""

    shift: float
    pair: ShiftedPairLaw

    @property
    def point_masses(self) -> tuple[float, ...]:
        """The loss 0, where the record was not taken."""
        return (0.0,)

    def log_moment(self, z: Array) -> Array:
        """``ln E_without e^(z loss)``, in closed form."""
        still, empty, taken = self.weights
        weights = np.concatenate([[still, empty], taken * self.pair.weights])
        scales = np.concatenate([[1.0, 1.0], self.pair.scales])
        shifts = np.concatenate([[0.0, self.shift], self.pair.shifts])
        kept = weights > 0
        return pair_log_moment(z, self.pair.dimension, scales[kept], shifts[kept], weights[kept])

    def compose(self, times: int) -> SummedLaw | None:
        """Composition by contour integrals of the closed-form moments; None if they decay too slowly."""
        still, empty, _ = self.weights
        gap = (1 - self.pair.scales) * (1 + self.pair.scales)
        return summed(
            SummedLaw(
                log_moment=self.log_moment,
                lowest=-float((self.pair.scales**2 / gap).min()),
                times=times,
                lost=self.pair.lost,
                atom=still + (empty if self.shift == 0 else 0.0),
            )
        )


def revealed_law(parameters: Round) -> LossLaw:
    """Law of the pair when the batch and the record's bit are shown (without the record, an unused bit)."""
    sigma, rate, scale = parameters.noise_multiplier, parameters.rate, parameters.scale
    if parameters.normalise_by != "realised_batch" and scale == 1:
        if parameters.extra == 0:
            return no_leak()
        return GaussianLaw(mu=abs(parameters.extra) / sigma, rate=rate)
    if parameters.normalise_by != "realised_batch":
        smooth = _smooth_shift((1 - scale) * abs(parameters.shared) / (scale * sigma))
        sizes, weights, lost = average_over_sizes(parameters.records, rate, smooth)
        unseen = (1 - scale) * abs(parameters.shared) * sizes / sigma
        seen = np.abs(scale * parameters.extra - (1 - scale) * parameters.shared * sizes) / sigma
        shifts, weights = np.concatenate([unseen, seen]), np.concatenate([(1 - rate) * weights, rate * weights])
        kept = weights > 0
        scales = np.full(int(kept.sum()), scale)
        return ShiftedPairLaw(
            dimension=parameters.dimension, scales=scales, shifts=shifts[kept], weights=weights[kept], lost=lost
        )
    smooth = _smooth_scale(parameters.dimension, sigma)
    sizes, weights, lost = average_over_sizes(parameters.records, rate, smooth)
    some = sizes > 0
    scales = sizes[some] / (sizes[some] + 1)
    shifts = scales * np.abs(parameters.extra - parameters.shared) / sigma
    pair = ShiftedPairLaw(
        dimension=parameters.dimension, scales=scales, shifts=shifts, weights=weights[some], lost=lost
    )
    shift = abs(parameters.extra) / sigma
    alone = GaussianLaw(mu=shift) if shift > 0 else no_leak()
    shares = (1 - rate, rate * float(weights[~some].sum()), rate)
    return RevealedSizeLaw(laws=(no_leak(), alone, pair), weights=shares, shift=shift, pair=pair)


@checked
def revealed_round(
    *,
    normalise_by: Normaliser,
    records: int,
    rate: float,
    noise_multiplier: float,
    dimension: int,
    shared: float = -1.0,
    extra: float = 1.0,
    relation: Relation = "add_remove",
) -> Claim:
    """The round's curve when the batch is shown as well: a lower bound on the curve of the same aligned pair.

    Given the batch and the record's bit the pair is N(0, I) against N(mu e, s^2 I); the best test uses one
    threshold for all batches, so the tails are averaged. With opposite gradients (the default) these are the
    guarantees of [wang2026, theorems 3.6, 3.7, A.3]; ``none`` gives the SGM guarantee. Tight at rate 1; for
    ASGM the truth lies far above.

    With other gradients than opposite ones it speaks of that pair alone.

    Args:
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      records: N, without the differing record, at least 1.
      rate: probability with which each record joins the batch, in (0, 1].
      noise_multiplier: standard deviation of the noise over the clipping norm, above 0 and finite.
      dimension: coordinates of a gradient, at least 1.
      shared: the common records' gradient, in units of the clip norm along e, in [-1, 1].
      extra: the differing record's, in [-1, 1].
      relation: which neighbours the curve is for.

    Returns:
      The claim, for one step.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> given = dict(normalise_by="realised_batch", records=4, rate=0.7, noise_multiplier=10.0, dimension=100)
      >>> round(guarantees.revealed_round(**given).total_variation, 2)
      0.66
    """
    parameters = Round(
        normalise_by=normalise_by,
        records=records,
        rate=rate,
        noise_multiplier=noise_multiplier,
        dimension=dimension,
        shared=shared,
        extra=extra,
    )
    source = "wang2026, theorems 3.6, 3.7, A.3"
    return round_claim(parameters, revealed_law(parameters), "revealed_round", source, relation)
