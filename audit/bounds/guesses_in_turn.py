"""Coins guessed one after the other, each revealed once it is guessed: what is learnt helps the next. Delta 0 only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from audit.bounds.counted_guesses import Guesses
from audit.bounds.number_of_guesses import foretold
from guarantees.numerics.array import Array

THRESHOLDS = 40
"""Log odds that are tried out on imagined trainings."""
FEWEST, MOST = 0.003, 0.9
"""Shares of the imagined coins that the highest and the lowest threshold guess."""
SPARE = 1.0
"""Deviations by which fewer are guessed than imagined trainings would, so that there seldom are too few."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """Guess a coin whose log odds are at least a threshold, until so many have been guessed. Fixed beforehand."""

    threshold: float
    guesses: int


def log_odds(likelihoods: Array, coins: Array, *, turn: int) -> Array:
    """Of one coin in every place, earlier ones of the place known, later ones fair.

    ``likelihoods`` are logarithms, (places, 1 + coins in one place), by how many coins show heads.
    """
    later = coins.shape[1] - 1 - turn
    number = np.arange(later + 1)
    prior = gammaln(later + 1) - gammaln(number + 1) - gammaln(later - number + 1)
    heads = coins[:, :turn].sum(1)[:, None] + number
    places = np.arange(len(coins))[:, None]
    present, absent = (np.logaddexp.reduce(likelihoods[places, heads + own] + prior, axis=1) for own in (1, 0))
    return present - absent


def best_rule(imagined: Sequence[tuple[Array, Array]], *, risk: float) -> Rule:
    """The rule that proves most where likelihoods and coins are like the imagined ones."""
    odds, right = [], []
    for likelihoods, coins in imagined:
        turns = [log_odds(likelihoods, coins, turn=turn) for turn in range(coins.shape[1])]
        odds += [np.abs(own) for own in turns]
        right += [(own > 0) == coins[:, turn] for turn, own in enumerate(turns)]
    every, hits = np.concatenate(odds), np.concatenate(right)
    order = np.argsort(-every)
    counts = np.unique(np.geomspace(max(1.0, FEWEST * len(every)), MOST * len(every), THRESHOLDS).astype(int))
    of_one = counts / len(imagined)
    guesses = np.maximum(1, np.floor(of_one - SPARE * np.sqrt(of_one)))
    shares = np.cumsum(hits[order])[counts - 1] / counts
    best = int(np.argmax(foretold(shares * guesses, guesses, exposed=0.0, risk=risk, split=1.0)))
    return Rule(threshold=float(every[order][counts[best] - 1]), guesses=int(guesses[best]))


def guessed_in_turn(likelihoods: Array, coins: Array, *, rule: Rule, risk: float) -> Guesses:
    """Go through the coins of every place by turns, guess those that are sure enough, reveal all.

    Given the training's output and all other coins, a coin is right with probability at most
    ``e^eps / (1 + e^eps)`` if delta is 0, whatever was revealed before: right guesses are at most binomial. With a
    delta the bound on one count would not hold, as flipping a coin moves later guesses.
    [keinan2025; docs/one-run-validity.md, 'In turn']
    """
    said: list[Array] = []
    true: list[Array] = []
    left = rule.guesses
    for turn in range(coins.shape[1]):
        odds = log_odds(likelihoods, coins, turn=turn)
        surest = np.argsort(-np.abs(odds), kind="stable")
        # nothing comes after the last turn: what is left to guess is guessed there
        last = turn == coins.shape[1] - 1
        taken = surest[: left if last else min(left, int(np.sum(np.abs(odds) >= rule.threshold)))]
        said.append(odds[taken] > 0)
        true.append(coins[taken, turn])
        left -= len(taken)
    guess, truth = np.concatenate(said), np.concatenate(true)
    # guesses that were never made count as wrong: their number was fixed
    return Guesses(
        guessed_in=int(guess.sum()) + left,
        guessed_out=int((~guess).sum()),
        right_in=int((guess & truth).sum()),
        right_out=int((~guess & ~truth).sum()),
        canaries=coins.size,
        revealed=coins.size - len(guess),
        risk=risk,
        at_delta=0.0,
    )
