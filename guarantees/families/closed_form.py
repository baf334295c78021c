"""Textbook mechanisms whose trade-off curve is known in closed form."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import expit

from guarantees.checks import Delta, Epsilon, EpsilonAboveZero, Positive, Rate, checked
from guarantees.claim import Claim, grouped, poisson_sums, unusual
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw, LaplaceLaw
from guarantees.laws.group import group_law
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import Relation, Unit


@checked
def gaussian(*, mu: Positive, relation: Relation = "any") -> Claim:
    """mu-GDP: ``f(a) = Phi(Phi^-1(1-a) - mu)``. [dong2022, definition 2.6]

    A claim is a promise, not a proof: nothing here checks that a mechanism keeps it.

    Args:
      mu: above 0 and at most 1e8; a Gaussian mechanism of noise multiplier sigma has ``mu = 1 / sigma``.
      relation: which neighbours the promise is for.

    Returns:
      The claim.

    Raises:
      ValueError: ``mu`` is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.gaussian(mu=1.0)
      >>> round(claim.epsilon(1e-5), 2), round(claim.delta(0.0), 3)
      (4.38, 0.383)
    """
    return Claim(
        curve=TradeOff(GaussianLaw(mu=mu)),
        name="gaussian",
        parameters={"mu": mu} | unusual(relation, "any"),
        relation=relation,
        unit="release",
        source="dong2022, definition 2.6",
    )


@checked
def subsampled_gaussian(
    *, rate: Rate, noise_multiplier: Positive, relation: Relation = "add_remove", group: int = 1
) -> Claim:
    """One round of the subsampled Gaussian mechanism, what accountants assume of DP-SGD.

    ``f = q G_{1/sigma} + (1-q) ID`` from without to with the record; ``reverse`` is the other direction.
    [wang2026, equation 1; dong2022, section 4] Under substitution 'with' and 'without' are the two records.

    Speaks about the noisy sum of one Poisson batch. It does not cover shuffled batches, nor a sum divided by a number
    that depends on the dataset.

    Args:
      rate: probability with which each record joins the batch.
      noise_multiplier: standard deviation of the noise over the clipping norm.
      relation: which neighbours the promise is for.
      group: in how many records they may differ: a binomial number of them is in the batch. [ganesh2024]

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.subsampled_gaussian(rate=0.05, noise_multiplier=10.0)
      >>> round(claim.epsilon(1e-5), 4)
      0.0144
    """
    return Claim(
        curve=TradeOff(group_law(rate=rate, noise_multiplier=noise_multiplier, group=group, relation=relation)),
        name="subsampled_gaussian",
        parameters={"rate": rate, "noise_multiplier": noise_multiplier}
        | unusual(relation, "add_remove")
        | grouped(group),
        relation=relation,
        group=group,
        steps=1,
        observation=poisson_sums(1),
        source="dong2022, section 4" if group == 1 else "ganesh2024",
    )


@checked
def epsilon_delta(*, epsilon: Epsilon, delta: Delta, relation: Relation = "any", unit: Unit = "release") -> Claim:
    """(epsilon, delta)-DP: ``f(a) = max(0, 1-delta-e^eps a, e^-eps (1-delta-a))``. [wasserman2010]

    A single pair says little between its corners: judged by it, a mechanism may leak more at other deltas than the
    curve of its accountant would allow.

    Args:
      epsilon: in [0, 1e15].
      delta: in [0, 1).
      relation: which neighbours the promise is for.
      unit: how much output it covers: a step, an epoch, a training, or what is audited, whatever that releases.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)
      >>> round(claim.delta(0.0), 3)  # the advantage that it allows
      0.462
    """
    losses = np.array([-np.inf, -epsilon, epsilon, np.inf]) if epsilon > 0 else np.array([-np.inf, 0, np.inf])
    large, small = (1 - delta) * expit(epsilon), (1 - delta) * expit(-epsilon)
    middle0 = [large, small] if epsilon > 0 else [1 - delta]
    law = DiscreteLaw(
        atoms=losses,
        without=np.array([delta, *middle0, 0.0]),
        with_record=np.array([0.0, *middle0[::-1], delta]),
    )
    return Claim(
        curve=TradeOff(law),
        name="epsilon_delta",
        parameters={"epsilon": epsilon, "delta": delta}
        | unusual(relation, "any")
        | ({} if unit == "release" else {"unit": unit}),
        relation=relation,
        unit=unit,
        source="wasserman2010",
    )


@checked
def laplace(*, epsilon: EpsilonAboveZero, relation: Relation = "any") -> Claim:
    """The Laplace mechanism with sensitivity / scale = epsilon. [dong2022, section 2]

    It speaks about one number. Laplace noise on a vector is (epsilon, 0)-DP for its l1 sensitivity, and its curve is
    not this one: ``randomised_response`` is a valid claim for it.

    Args:
      epsilon: above 0 and at most 1e15.
      relation: which neighbours the promise is for.

    Returns:
      The claim.

    Raises:
      ValueError: ``epsilon`` is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.laplace(epsilon=1.0).total_variation, 3)
      0.393
    """
    return Claim(
        curve=TradeOff(LaplaceLaw(scale=epsilon)),
        name="laplace",
        parameters={"epsilon": epsilon} | unusual(relation, "any"),
        relation=relation,
        unit="release",
        source="dong2022, section 2",
    )


@checked
def randomised_response(*, epsilon: float, relation: Relation = "any") -> Claim:
    """Randomised response: the curve of (epsilon, 0)-DP itself. [kairouz2015]

    The weakest claim of that epsilon: a mechanism may keep it and leak far less, which it does not show.

    Args:
      epsilon: in [0, 1e15].
      relation: which neighbours the promise is for.

    Returns:
      The claim.

    Raises:
      ValueError: ``epsilon`` is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.randomised_response(epsilon=1.0).total_variation, 3)
      0.462
    """
    claim = epsilon_delta(epsilon=epsilon, delta=0.0, relation=relation)
    given = {"epsilon": epsilon} | unusual(relation, "any")
    return dataclasses.replace(claim, name="randomised_response", parameters=given, source="kairouz2015")
