"""One training with many canaries, each included by its own fair coin: bounds from guessing the coins."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from audit.bounds.clopper_pearson import require_risk
from audit.bounds.counted_guesses import Guesses
from audit.bounds.number_of_guesses import best_guesses, guess_extremes, risk_split, sampled_canaries
from audit.bounds.ranking import from_highest, tied
from audit.bounds.supporting_lines import tabulate
from audit.one_run.judgement import by_epsilon, judge
from audit.one_run.result import OneRun, OneRunJudgement
from guarantees.checks import Delta, Share, checked, require
from guarantees.claim import Claim
from guarantees.numerics.distributions import binom
from guarantees.vocabulary import Relation

DELTA = 1e-5
"""Delta at which epsilon is proven by default."""
UNFAIR = 1e-9
"""Coins are refused if their number of heads is less likely than this."""
FEWEST_TO_WONDER = 100
"""Number of canaries from which on exactly half of them are included less than once in twelve trainings."""
NUMBERS = "the numbers of guesses were fixed before looking at these scores and coins"
FLIPS = {
    "add_remove": "adds or removes one canary",
    "zero_out": "replaces one canary by a record that contributes nothing",
    "substitution": "exchanges one canary for another record",
}


@checked
def one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    risk: Share,
    delta: Delta | None = None,
    guesses: Sequence[tuple[int, int]] | None = None,
    claim: Claim | None = None,
    relation: Relation = "add_remove",
    seed: int = 0,
    name: str = "one training",
) -> OneRun:
    """Bounds from one training in which each canary was included by its own fair coin.

    The highest scores are guessed 'in', the lowest 'out', the rest are not guessed. By default the coins of the middle
    scores, revealed and never guessed, choose how many ('inside out'), and epsilon is proven at ``delta``. A claim that
    is a curve chooses for itself, by what a training that just keeps it would show. An (epsilon, delta) claim is judged
    by epsilon, any other by its curve. [steinke2023; mahloujifar2024; docs/one-run-validity.md]

    Does not hold for coins that are not fair and independent, for a fixed number of canaries on each side, or for a
    ``delta``, ``guesses`` or ``seed`` that were tried out on these scores and coins.

    Args:
      scores: one per canary, larger for 'it was in'. They may depend on each other in any way.
      included: whether each canary was included.
      risk: probability that any of the statements is wrong.
      delta: where epsilon is proven; by default the claim's, else 1e-5.
      guesses: pairs (in, out) fixed before the training; they share the risk equally.
      claim: a promise to judge, if there is one.
      relation: what flipping one coin does to the training set.
      seed: orders tied scores and draws the first canaries to reveal.
      name: what records and reports call it.

    Returns:
      What the guesses prove: ``epsilon(delta)``, ``delta(epsilon)``, ``mu`` and, with a claim, ``verdict``. With a
      claim, ``audit.save_records`` and ``audit.write_report`` take it among records.

    Raises:
      ValueError: scores and coins differ in length, a score is NaN, or an argument is out of range.

    Examples:
      >>> import audit, numpy as np
      >>> rng = np.random.default_rng(0)
      >>> included = rng.random(1000) < 0.5
      >>> found = audit.one_run(rng.normal(size=1000) + 3.0 * included, included, risk=0.05, delta=1e-5)
      >>> found.epsilon(1e-5) > 2.0
      True
    """
    require_risk(risk)
    require("relation", relation in FLIPS, f"one of {tuple(FLIPS)}", relation)
    values, coins = _canaries(scores, included)
    if claim is not None and not claim.covers(relation):
        raise ValueError(
            f"the claim is for {claim.relation} neighbours but flipping a canary's coin makes {relation} ones; "
            "restate the claim, or pass the relation of the canaries."
        )
    order, shared = from_highest(values, seed=seed), tied(values)
    ordered, deltas = coins[order], _deltas(delta, claim)
    numbers = NUMBERS
    if guesses is not None:
        found = _count(ordered, _pairs(guesses, len(values)), risk=risk)
    elif claim is not None and not by_epsilon(claim):
        found = _count(ordered, (guesses_of_claim(claim, len(values), delta=deltas[0], risk=risk),), risk=risk)
        numbers = "the claim, which says how many coins are guessed, was fixed before looking at these scores and coins"
    else:
        each, sampled = risk / len(deltas), sampled_canaries(len(values), seed=seed)[order]
        found = tuple(guess_extremes(values[order], ordered, sampled=sampled, delta=own, risk=each) for own in deltas)
        numbers = (
            f"delta {' and '.join(f'{own:g}' for own in deltas)} {'was' if len(deltas) == 1 else 'were'} fixed before "
            "looking at these scores and coins "
            "(how many coins are guessed was chosen by other coins, which are not guessed)"
        )
    return OneRun(
        guesses=found,
        canaries=len(values),
        included=int(coins.sum()),
        relation=relation,
        risk=risk,
        seed=seed,
        tied=shared,
        conditions=_conditions(
            relation, coins, numbers=numbers, seed=_seed_condition(seed, tied=shared, guesses=found)
        ),
        judgement=None if claim is None else judged(found, claim, delta=deltas[0]),
        claim=claim,
        report_delta=deltas[0],
        name=name,
    )


def guesses_of_claim(claim: Claim, canaries: int, *, delta: float, risk: float) -> tuple[int, int]:
    """The numbers of guesses that would prove most of epsilon at ``delta`` if the training just kept the claim.

    At most what stays three deviations of the coins below half of the canaries.
    """
    tail = np.logspace(-7, np.log10(0.5), 200)
    alpha = np.concatenate([[0.0], tail, 1 - tail[-2::-1], [1.0]])
    beta = tabulate(claim).below(alpha)
    ks = np.arange(1, max(1, int(canaries / 2 - 1.5 * math.sqrt(canaries))) + 1)
    # Of k = m/2 (alpha + 1 - beta) guesses 'in' m/2 (1 - beta) are right, and of k = m/2 (beta + 1 - alpha) 'out' ...
    right_in = np.interp(ks, canaries / 2 * (alpha + 1 - beta), canaries / 2 * (1 - beta))
    right_out = np.interp(ks, canaries / 2 * (beta + 1 - alpha)[::-1], canaries / 2 * (1 - alpha)[::-1])
    exposed = canaries * delta
    k_in, k_out = best_guesses(right_in, right_out, exposed=exposed, risk=risk, split=risk_split(exposed))
    return k_in, min(k_out, canaries - k_in)


def judged(found: tuple[Guesses, ...], claim: Claim, *, delta: float, weights: int | None = None) -> OneRunJudgement:
    """The verdict on these guesses, from no more than a record keeps."""
    own, planned = found[0], None
    if len(found) == 1 and own.at_delta is None and not by_epsilon(claim):
        numbers = guesses_of_claim(claim, own.canaries, delta=delta, risk=own.risk)
        if numbers == (own.guessed_in, own.guessed_out):
            planned = functools.partial(planned_guesses, claim, delta=delta, risk=own.risk)
    return judge(found, claim, delta=delta, planned=planned, weights=weights)


def planned_guesses(claim: Claim, canaries: int, *, delta: float, risk: float) -> tuple[Guesses, ...]:
    """The guesses that such a claim chooses; none of them is counted yet."""
    k_in, k_out = guesses_of_claim(claim, canaries, delta=delta, risk=risk)
    return (Guesses(guessed_in=k_in, guessed_out=k_out, right_in=0, right_out=0, canaries=canaries, risk=risk),)


def _deltas(delta: float | None, claim: Claim | None) -> tuple[float, ...]:
    """The deltas that statements are about, each of which has a share of the risk."""
    if claim is None or not by_epsilon(claim):
        return (DELTA if delta is None else delta,)
    promised = float(claim.parameters.get("delta", 0.0))
    return (promised,) if delta is None or delta == promised else (promised, delta)


def _pairs(guesses: Sequence[tuple[int, int]], canaries: int) -> tuple[tuple[int, int], ...]:
    """Numbers of guesses, checked."""
    pairs = tuple((int(a), int(b)) for a, b in guesses)
    for pair in pairs:
        require("guesses", min(pair) >= 0 and 1 <= sum(pair) <= canaries, f"1..{canaries} in all", pair)
    require("guesses", len(pairs) > 0, "at least one pair", pairs)
    return pairs


def _seed_condition(seed: int, *, tied: int, guesses: tuple[Guesses, ...]) -> tuple[str, ...]:
    """The condition that the seed was not tried out, if anything depends on it."""
    draws = ["drew the canaries that are revealed first"] if any(each.sampled for each in guesses) else []
    effects = " and ".join([*draws, *(["ordered tied scores"] if tied else [])])
    return (f"the seed {seed}, which {effects}, was not tried out on these coins",) if effects else ()


def _conditions(relation: Relation, coins: np.ndarray, *, numbers: str, seed: tuple[str, ...]) -> tuple[str, ...]:
    """Everything that the user must vouch for."""
    half = ""
    if 2 * int(coins.sum()) == len(coins) >= FEWEST_TO_WONDER:
        chance = float(binom.pmf(len(coins) // 2, len(coins), 0.5))
        half = f" (exactly half were included, which fair coins do with probability {chance:.2g}: nothing is proven if "
        half += "half was what you chose)"
    return (
        f"each canary was included by its own fair coin, independent of the other coins and of everything else{half}",
        "the scores were computed from what the training released and from the canaries, never from the coins; "
        "they may depend on each other in any way",
        "one rule made every guess: highest scores 'in', lowest 'out'",
        f"flipping one coin {FLIPS[relation]}: the bounds are about {relation} neighbours",
        numbers,
        *seed,
    )


def _canaries(scores: ArrayLike, included: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Scores and coins, checked."""
    values, coins = np.asarray(scores), np.asarray(included)
    require("scores", values.ndim == 1 and len(values) > 0, "a non-empty vector", f"shape {values.shape}")
    require("scores", np.issubdtype(values.dtype, np.number), "an array of numbers", values.dtype)
    values = values.astype(float)
    if not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"scores[{where}] is {values[where]}; a score must be finite. Do not drop the canary.")
    require("included", coins.shape == values.shape, f"of the shape {values.shape}", coins.shape)
    require("included", bool(np.all((coins == 0) | (coins == 1))), "0 or 1", "other values")
    heads = int(coins.sum())
    likely = 2 * binom.cdf(min(heads, len(values) - heads), len(values), 0.5)
    require("included", likely > UNFAIR, "drawn by fair coins", f"{heads} of {len(values)} included")
    return values, coins.astype(bool)


def _count(coins: np.ndarray, pairs: tuple[tuple[int, int], ...], *, risk: float) -> tuple[Guesses, ...]:
    """Count the right guesses of every pair, which share the risk; coins are sorted from the highest score down."""
    top, bottom = ([0, *np.cumsum(side).tolist()] for side in (coins, ~coins[::-1]))
    return tuple(
        Guesses(
            guessed_in=k_in,
            guessed_out=k_out,
            right_in=top[k_in],
            right_out=bottom[k_out],
            canaries=len(coins),
            risk=risk / len(pairs),
        )
        for k_in, k_out in pairs
    )
