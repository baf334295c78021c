"""Bounds around the exact curve of normalised rounds: a guarantee for all data, and what they surely leak."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.special import ndtr

from guarantees.checks import Count, checked, require
from guarantees.claim import Claim
from guarantees.laws.discrete_law import no_leak
from guarantees.laws.law import LossLaw
from guarantees.normalised.line_law import SampledLaw
from guarantees.normalised.revealed_size import revealed_law
from guarantees.normalised.round import Round, round_claim
from guarantees.normalised.variance_pair import VariancePairLaw
from guarantees.numerics.root import root
from guarantees.vocabulary import Normaliser, Relation


@checked
def normalised_guarantee(
    *, normalise_by: Normaliser, records: int, rate: float, noise_multiplier: float, dimension: int
) -> Claim:
    """What one normalised round guarantees for ANY clipped gradients, between ``records`` and one more.

    Proved: (1) Showing the batch B of the common records and an independent bit of the extra record's law can
    only help the adversary. (2) Given them the pair is N(0, I) against N(mu e, s^2 I) with s fixed by B and
    ``mu = |(1-s) S_B - s bit g| / sigma <= ((1-s) |B| + s bit) / sigma`` (ASGM without the bit: identical).
    (3) For s < 1 the best test is a ball; moving it along with the second mean keeps its power and, by
    Anderson's inequality, lowers its level, so every curve falls as mu grows. (4) Hence the average at the
    largest mu, which opposite gradients attain, is below the curve of every pair; ``reverse`` is the other
    direction. It holds for each round given the past, so ``compose`` bounds adaptive training.
    [wang2026, theorems 3.6, 3.7, A.3; anderson1955; dong2022, theorem 3.2]

    Not proved: that it is tight. Total variation allowed, and leaked by the opposite pair: EASGM N 4, n 100, q .05,
    sigma 10: .88431 and .88429; EASGM N 3, n 1, q .5, sigma 1: .353 and .257; ASGM N 4, n 100, q .7, sigma 10:
    .66 and .28. It speaks of datasets of exactly these two sizes: other sizes have other curves.

    Args:
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      records: N, without the differing record, at least 1.
      rate: probability with which each record joins the batch, in (0, 1].
      noise_multiplier: standard deviation of the noise over the clipping norm, above 0 and finite.
      dimension: coordinates of a gradient, at least 1.

    Returns:
      The claim, for one step and add_remove neighbours.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> given = dict(records=4, rate=0.05, noise_multiplier=10.0, dimension=100)
      >>> round(guarantees.normalised_guarantee(normalise_by="none", **given).total_variation, 4)
      0.002
      >>> round(guarantees.normalised_guarantee(normalise_by="expected_batch", **given).total_variation, 5)
      0.88431
    """
    parameters = Round(
        normalise_by=normalise_by,
        records=records,
        rate=rate,
        noise_multiplier=noise_multiplier,
        dimension=dimension,
    )
    law = revealed_law(parameters)
    source = "wang2026, theorems 3.6, 3.7, A.3; anderson1955"
    claim = round_claim(parameters, law, "normalised_guarantee", source, "add_remove")
    given = {key: value for key, value in claim.parameters.items() if key not in ("shared", "extra")}
    return dataclasses.replace(claim, parameters=given)


@checked
def round_upper_bound(
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
    """The papers' upper bound f-bar on the revealed curve, exactly.

    EASGM, FEASGM: ``T(N(0, I_(n-1)), N(0, s^2 I_(n-1)))``, which bounds the true curve too: drop the dimension that
    the gradients span. ASGM: ``w T_N + (1-w) ID`` with w = q - q (1-q)^N, which bounds only the revealed curve: the
    true one lies far above it. Where both divisors agree there is no theorem and this is the SGM guarantee.
    [wang2026, theorems 3.8, 3.10, A.4]

    Not a guarantee: it says that the revealed round leaks at least so much.

    Args:
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      records: N, without the differing record, at least 1.
      rate: probability with which each record joins the batch, in (0, 1].
      noise_multiplier: standard deviation of the noise over the clipping norm, above 0 and finite.
      dimension: n, coordinates of a gradient, at least 1.
      shared: the common records' gradient, in units of the clip norm along e, in [-1, 1].
      extra: the differing record's, in [-1, 1].
      relation: which neighbours the curve is for.

    Returns:
      The claim, for one step.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> given = dict(normalise_by="expected_batch", records=4, rate=0.05, noise_multiplier=10.0, dimension=100)
      >>> round(guarantees.round_upper_bound(**given).total_variation, 4)
      0.8825
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
    same = no_leak()
    degrees = dimension - 1
    if normalise_by == "realised_batch":
        weight = -rate * math.expm1(records * math.log1p(-rate)) if rate < 1 else 1.0
        inner = VariancePairLaw(degrees=degrees, scale=records / (records + 1))
        law: LossLaw = SampledLaw(law=inner, rate=weight) if degrees else same
    elif parameters.scale == 1:
        law = revealed_law(parameters)
    else:
        law = VariancePairLaw(degrees=degrees, scale=parameters.scale) if degrees else same
    return round_claim(parameters, law, "round_upper_bound", "wang2026, theorems 3.8, 3.10, A.4", relation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CltBound:
    """``f(a) <= G_mu(a - gamma) + gamma`` for a in [gamma, 1 - gamma]; vacuous where that is never below 1 - a."""

    mu: float
    gamma: float
    vacuous: bool


@checked
def clt_bound(*, normaliser: Count, dimension: int, rounds: Count = 1) -> CltBound:
    """The papers' Gaussian approximation of f-bar, a Berry-Esseen bound over ``rounds (dimension - 1)`` copies.

    Of ``f = max(f*, f*^-1)``, f* = T(N(0,1), N(0, s^2)), s = K/(K+1): mu = 2 m kl / sqrt(m k2 - m kl^2),
    gamma = .56 m k3 / (m k2 - m kl^2)^1.5. The maximum keeps only 61% of mu, and the bound can be vacuous where
    ``round_upper_bound(...).compose``, a chi-square law, is not.
    [wang2026, theorems 3.12, 3.13, A.7, B.2; dong2022, theorem 3.5]

    Not a guarantee: a bound on how private the rounds can be.

    Args:
      normaliser: K, at least 1: N for EASGM, floor(N q) for FEASGM.
      dimension: coordinates of a gradient, at least 2.
      rounds: rounds that are composed, at least 1.

    Returns:
      The bound: ``mu``, ``gamma``, and ``vacuous`` where ``G_mu(a - gamma) + gamma`` is nowhere below ``1 - a``.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> bound = guarantees.clt_bound(normaliser=4, dimension=100)
      >>> round(bound.mu, 3), round(bound.gamma, 3), bound.vacuous
      (1.929, 0.059, False)
    """
    require("dimension", dimension >= 2, ">= 2", dimension)
    gap, copies = 1 / (normaliser + 1), rounds * (dimension - 1)
    s = 1 - gap
    end = root(lambda t: 2 * ndtr(t) - 1 - 2 * ndtr(-t / s), 0.0, 5.0, absolute=1e-15)
    x, weight = np.polynomial.legendre.leggauss(100)
    t, weight = (x + 1) * end / 2, weight * end / 2
    loss = -math.log1p(-gap) - gap * (1 + s) * t**2 / (2 * s**2)
    wide = 2 * np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) * weight
    narrow = np.exp(loss) * wide
    # not narrow - wide, which is next to nothing for a large normaliser
    kl = float((loss * np.expm1(loss) * wide).sum())
    second = float((loss**2 * (narrow + wide)).sum()) - kl**2
    third = float((np.abs(loss + kl) ** 3 * wide).sum() + (np.abs(kl - loss) ** 3 * narrow).sum())
    mu = 2 * math.sqrt(copies) * kl / math.sqrt(second)
    gamma = 0.56 * third / (math.sqrt(copies) * second**1.5)
    return CltBound(mu=mu, gamma=gamma, vacuous=bool(2 * ndtr(mu / 2) - 1 <= 2 * gamma))
