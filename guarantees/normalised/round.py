"""One exact round of DP-SGD with aligned gradients, for every way of normalising the noisy sum."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from guarantees.checks import checked, require
from guarantees.claim import Claim, unusual
from guarantees.laws.discrete_law import no_leak
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import LossLaw
from guarantees.normalised.line_law import LineLaw, PlaneLaw
from guarantees.normalised.realised_batch import realised_batch_law
from guarantees.normalised.variance_pair import variance_pair_law
from guarantees.numerics.array import Array
from guarantees.numerics.batch_sizes import batch_sizes
from guarantees.numerics.chi_square import square_rounding
from guarantees.numerics.line_table import NormalMixture
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import NORMALISERS, Normaliser, Relation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """The parameters of one round: N records without, one more with; gradients in units of the clip norm."""

    normalise_by: Normaliser
    records: int
    rate: float
    noise_multiplier: float
    dimension: int
    shared: float = -1.0
    extra: float = 1.0

    def __post_init__(self):
        require("normalise_by", self.normalise_by in NORMALISERS, f"one of {NORMALISERS}", self.normalise_by)
        require("records", self.records >= 1, ">= 1", self.records)
        require("rate", 0 < self.rate <= 1, "in (0, 1]", self.rate)
        require("noise_multiplier", 0 < self.noise_multiplier < np.inf, "> 0 and finite", self.noise_multiplier)
        require("dimension", self.dimension >= 1, ">= 1", self.dimension)
        require("shared", abs(self.shared) <= 1, "in [-1, 1]", self.shared)
        require("extra", abs(self.extra) <= 1, "in [-1, 1]", self.extra)

    @property
    def scale(self) -> float:
        """Ratio of the noise with the record to that without: the inverse ratio of the two divisors."""
        return divisor_ratio(self.normalise_by, self.records, self.rate)


def divisor_ratio(normalise_by: Normaliser, records: int, rate: float) -> float:
    """Divisor without the record over the divisor with it; a divisor of zero counts as 1. [wang2026]

    For ``realised_batch`` the divisor is random and this is 1 only nominally. The floor is taken of the
    product in double precision, as the libraries that divide by it do.
    """
    if normalise_by == "expected_batch":
        return records / (records + 1)
    if normalise_by == "floored_expected_batch":
        return max(1, math.floor(records * rate)) / max(1, math.floor((records + 1) * rate))
    return 1.0


def _mixture(log_weights: Array, means: Array, deviation: float) -> NormalMixture:
    order = np.argsort(means, kind="stable")
    return NormalMixture(log_weights=log_weights[order], means=means[order], deviations=np.full(len(means), deviation))


def _same_divisor_law(parameters: Round) -> LossLaw:
    """Law of SGM: the bit of the extra record shifts the same binomial mixture by ``extra / sigma``."""
    shift = parameters.extra / parameters.noise_multiplier
    if shift == 0:
        return no_leak()
    if parameters.shared == 0 or parameters.rate == 1:
        return GaussianLaw(mu=abs(shift), rate=parameters.rate)
    sizes, log_weights, lost = batch_sizes(parameters.records, parameters.rate)
    means = parameters.shared * sizes / parameters.noise_multiplier
    roughness = max(abs(parameters.shared), abs(parameters.extra)) / parameters.noise_multiplier
    return LineLaw(
        without=_mixture(log_weights, means, 1.0),
        sampled=_mixture(log_weights, means + shift, 1.0),
        rate=parameters.rate,
        roughness=roughness,
        error=1e-13 + lost,
    )


def _unequal_divisor_law(parameters: Round) -> LossLaw:
    """Law of EASGM and FEASGM, in units in which the noise without the record has variance 1."""
    scale, sigma = parameters.scale, parameters.noise_multiplier
    sizes, log_weights, lost = batch_sizes(parameters.records, parameters.rate)
    if parameters.rate == 1 or parameters.shared == parameters.extra == 0:
        total = parameters.shared * sizes[0] / sigma if parameters.rate == 1 else 0.0
        shift = scale * (total + parameters.extra / sigma) - total
        return variance_pair_law(dimension=parameters.dimension, scale=scale, shift=abs(shift))
    means = parameters.shared * sizes / sigma
    with_means = np.concatenate([means, means + parameters.extra / sigma])
    with_weights = np.concatenate([log_weights + math.log1p(-parameters.rate), log_weights + math.log(parameters.rate)])
    without = _mixture(log_weights, means, 1.0)
    with_record = _mixture(with_weights, scale * with_means, scale)
    roughness = max(abs(parameters.shared), abs(parameters.extra)) / sigma
    if parameters.dimension == 1:
        return LineLaw(without=without, sampled=with_record, roughness=roughness, error=1e-13 + lost)
    return PlaneLaw(
        without=without,
        with_record=with_record,
        degrees=parameters.dimension - 1,
        scale=scale,
        roughness=roughness,
        error=1e-12 + square_rounding(parameters.dimension) + lost,
    )


def round_law(parameters: Round) -> LossLaw:
    """The law of the exact loss of a round with aligned gradients."""
    if parameters.normalise_by == "realised_batch" and parameters.rate < 1:
        return realised_batch_law(
            *batch_sizes(parameters.records, parameters.rate),
            rate=parameters.rate,
            shared=parameters.shared / parameters.noise_multiplier,
            extra=parameters.extra / parameters.noise_multiplier,
            dimension=parameters.dimension,
        )
    if parameters.normalise_by == "realised_batch":
        # Every record is in the batch: the realised size is the expected one. [wang2026, section 3.4.2]
        return _unequal_divisor_law(dataclasses.replace(parameters, normalise_by="expected_batch"))
    return _same_divisor_law(parameters) if parameters.scale == 1 else _unequal_divisor_law(parameters)


def round_claim(parameters: Round, law: LossLaw, name: str, source: str, relation: Relation) -> Claim:
    """The claim about one round that its law makes."""
    return Claim(
        curve=TradeOff(law),
        name=name,
        parameters=dataclasses.asdict(parameters) | unusual(relation, "add_remove"),
        relation=relation,
        steps=1,
        observation="the normalised noisy sum of one Poisson batch",
        source=source,
    )


@checked
def normalised_round(
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
    """The exact curve of one round between N records of gradient ``shared e`` and one more of ``extra e``.

    Poisson batch at ``rate``, noisy sum divided by nothing (SGM), N q (EASGM), the realised size (ASGM) or
    floor(N q) (FEASGM); gradients in units of the clip norm. With u = <y, e> and w = |y|^2 - u^2 the loss of
    EASGM and FEASGM is affine in w given u, so each error rate is a one-dimensional integral of chi-square
    tails; ASGM needs two dimensions. [wang2026, definitions 2.8, 2.9, A.1; the reduction to (u, w) is ours]

    This is what this pair leaks, not a guarantee for other data: opposite gradients (the default) are not
    always the worst. ``error`` says what is bounded and what is estimated (see the law's class).

    Args:
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      records: N, without the differing record.
      rate: probability with which each record joins the batch.
      noise_multiplier: standard deviation of the noise over the clipping norm.
      dimension: coordinates of a gradient.
      shared: the common records' gradient, in units of the clip norm along e.
      extra: the differing record's.
      relation: which neighbours the curve is for.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> given = dict(records=4, rate=0.05, noise_multiplier=10.0, dimension=100)
      >>> round(guarantees.normalised_round(normalise_by="none", **given).total_variation, 4)
      0.002
      >>> round(guarantees.normalised_round(normalise_by="expected_batch", **given).total_variation, 3)
      0.884
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
    source = "wang2026, definitions 2.8, 2.9, A.1"
    return round_claim(parameters, round_law(parameters), "normalised_round", source, relation)
