"""Claims from a user's own accountant: from its table of (epsilon, delta), or from the history that it keeps."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from guarantees.checks import checked, require
from guarantees.claim import Claim, poisson_sums
from guarantees.laws.composition import composed_law
from guarantees.laws.gaussian_and_laplace import sampled_law
from guarantees.laws.profile import law_from_promises
from guarantees.trade_off import ComputedCurve, TradeOff
from guarantees.vocabulary import PairRelation, Relation, Unit

Entry = tuple[float, float, int]
"""One entry of an Opacus accountant's history: noise multiplier, sampling rate, number of consecutive steps."""
SMALL_EPSILON = 0.01
"""Threshold for spotting swapped columns: deltas are usually smaller than this, and epsilons larger."""


@checked
def claim_from_table(
    points: Iterable[tuple[float, float]],
    *,
    relation: Relation = "any",
    unit: Unit = "training",
    source: str = "a table of epsilon and delta",
) -> Claim:
    """All pairs (epsilon, delta) of a table, promised together in both directions: any accountant's output as a claim.

    The curve is the largest one below ``max(0, 1-delta-e^eps a, e^-eps (1-delta-a))`` over the rows and promises
    nothing between them but what follows. [dong2022, proposition 2.12] Where an epsilon is repeated the smaller
    delta counts; a row of epsilon infinity says nothing.

    Args:
      points: pairs (epsilon, delta).
      relation: which neighbours the promise is for.
      unit: how much output it covers: a step, an epoch or a training.
      source: who says so, for the report.

    Returns:
      The claim.

    Raises:
      ValueError: a number is negative or NaN, no epsilon is finite, or all rows look like (delta, epsilon): such a
        claim would be weaker than the one that was meant, and hide a leak.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.claim_from_table([(1.0, 1e-5), (2.0, 1e-8)])
      >>> round(claim.epsilon(1e-5), 3)
      1.0
    """
    table = [(float(epsilon), float(delta)) for epsilon, delta in points]
    require("points", not any(np.isnan(epsilon) for epsilon, _ in table), "free of NaN", table)
    require("points", all(epsilon >= 0 for epsilon, _ in table), "pairs with epsilon >= 0", table)
    require("points", all(0 <= delta <= 1 for _, delta in table), "pairs with delta in [0, 1]", table)
    swapped = table and all(0 < epsilon < min(SMALL_EPSILON, delta) for epsilon, delta in table)
    require("points", not swapped, "pairs (epsilon, delta), and these look like (delta, epsilon): swap them", table)
    finite = [(epsilon, delta) for epsilon, delta in table if epsilon < np.inf]
    require("points", finite, "at least one pair (epsilon, delta) with a finite epsilon", table)
    return Claim(
        curve=TradeOff(law_from_promises(finite)),
        name="claim_from_table",
        parameters={"points": tuple(finite), "relation": relation, "unit": unit},
        relation=relation,
        unit=unit,
        source=source,
    )


@checked
def claim_from_history(
    history: Sequence[Entry],
    *,
    relation: PairRelation = "add_remove",
    unit: Unit = "training",
    source: str = "the history of an Opacus accountant, composed by this package",
) -> Claim:
    """The exact claim for the history of an Opacus accountant, a list of (noise multiplier, rate, steps).

    Every step is one round of the subsampled Gaussian mechanism; all are composed with a certificate, so the claim is
    at most as strict as the truth and at least as strict as any sound accountant. [dong2022, section 4]
    What the accountant prints (rdp: more, gdp: often less) is ``claim_from_table([(epsilon, delta)])``. The history
    assumes Poisson batches, whatever the loader did.

    Args:
      history: entries (noise multiplier above 0, rate in (0, 1], steps at least 1), as ``accountant.history`` has them.
      relation: ``"add_remove"``, ``"zero_out"`` or ``"substitution"``.
      unit: how much output the history covers: a step, an epoch or a training.
      source: who says so, for the report.

    Returns:
      The claim.

    Raises:
      ValueError: the history is empty, or a number is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.claim_from_history([(1.0, 1.0, 3), (2.0, 1.0, 4)])  # 3 steps of 1-GDP, 4 of 0.5-GDP
      >>> round(claim.mu_star(), 3), claim.steps
      (2.0, 7)
    """
    entries = [(float(noise), float(rate), int(steps)) for noise, rate, steps in history]
    require("history", entries, "a list of (noise multiplier, rate, steps), at least one", history)
    for noise, rate, steps in entries:
        require("noise multiplier", 0 < noise < np.inf, "> 0 and finite (no noise, no promise)", noise)
        require("rate", 0 < rate <= 1, "in (0, 1]", rate)
        require("steps", steps >= 1, ">= 1", steps)
    laws = [
        (sampled_law(rate=rate, noise_multiplier=noise, relation=relation), steps) for noise, rate, steps in entries
    ]
    return Claim(
        curve=ComputedCurve(functools.partial(composed_law, laws)),
        name="claim_from_history",
        parameters={"history": tuple(entries), "relation": relation, "unit": unit},
        relation=relation,
        unit=unit,
        steps=sum(steps for _, _, steps in entries),
        observation=poisson_sums(sum(steps for _, _, steps in entries)),
        source=source,
    )
