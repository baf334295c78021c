"""The sharp tail of right guesses in one training under a claimed curve, by bets at many epsilons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.sparse import csr_matrix

from guarantees.numerics.array import Array
from guarantees.numerics.search import halved
from guarantees.trade_off import TradeOff

Profile = Callable[[Array], Array]
"""Function that gives one coin's delta at each epsilon, never below the truth."""
Side = Literal["both", "in", "out"]
COARSE, FINE = 16, 20
"""Levels of epsilon of the first program, and of the second, which looks closer where the first one bets."""
GRID = np.concatenate([[0.0], np.geomspace(1e-3, 600.0, 500)])
NEGLIGIBLE = 1e-3
"""Expected number of coins exposed by delta below which a larger epsilon is not worth a bet."""
BELOW, ABOVE = 5.0, 4.0
"""Square roots of the number of guesses by which the program looks below and above the right ones."""
MOST_GUESSES = 2_500
"""Most guesses for the program, which takes too long beyond; the recursion then decides alone."""
SMALLEST = 1e-6
"""Smallest tail that is computed: the program's tolerance is not much smaller."""
RAISED = 1 + 1e-6
"""Factor on the program's stakes that covers its tolerance; the certificate is valid for any stakes."""
LARGEST_STAKE = 1e3
"""Largest product of stakes and guesses, so that rounding stays below ``ROUNDING``."""
ROUNDING = 1e-12
DELTA_ROUNDING = 1e-15
"""Absolute error of a delta in closed form."""
HALVINGS = 44


def sharp_tail(correct: int, guesses: int, *, coins: float, profile: Profile) -> float:
    """Upper bound on the probability of this many right guesses, over all mechanisms with a profile of deltas.

    A linear program proposes stakes at levels of epsilon; ``certified_tail`` proves what they prove. 1 where the
    program is too large or proposes nothing. [docs/one-run-validity.md, 'Claims as curves']
    """
    if not 0 < correct <= guesses <= MOST_GUESSES:
        return 1.0
    known = coins * profile(GRID)
    last = int(np.argmin(known)) if known.min() > NEGLIGIBLE else int(np.argmax(known <= NEGLIGIBLE))
    if last == 0:
        last = 1
    epsilons, best = np.linspace(0.0, GRID[last], COARSE), 1.0
    for _ in range(2):
        deltas = profile(epsilons)
        stakes = best_stakes(correct, guesses, coins=coins, epsilons=epsilons, deltas=deltas)
        best = min(best, certified_tail(correct, guesses, coins=coins, epsilons=epsilons, deltas=deltas, stakes=stakes))
        used = np.flatnonzero(stakes)
        if not len(used):
            break
        low, high = max(used[0] - 1, 0), min(used[-1] + 1, len(epsilons) - 1)
        epsilons = np.linspace(epsilons[low], epsilons[high], FINE)
    return best


def certified_tail(correct: int, guesses: int, *, coins: float, epsilons: Array, deltas: Array, stakes: Array) -> float:
    """``lambda + n sum stake_e delta(e)``, an upper bound on ``P(C >= v)`` whatever the stakes are.

    lambda is the least capital from which bets on every guess, at each level e at most ``stake_e``, reach 1 where v or
    more guesses are right and stay at 0 or above elsewhere. [docs/one-run-validity.md, 'Claims as curves']
    """
    used = stakes > 0
    levels = [
        (float(stake), math.exp(e))
        for stake, e in sorted(zip(stakes[used], epsilons[used], strict=True), key=lambda pair: pair[1])
    ]
    if guesses * sum(stake for stake, _ in levels) > LARGEST_STAKE:
        return 1.0

    def reaches(capital: float) -> bool:
        bet = 0.0
        for right in range(guesses + 1):
            left = capital + right * bet - (right >= correct)
            if left < 0 or right == guesses:
                return left >= 0
            bet = _largest_bet(left / (guesses - right), levels)
        return True

    _, enough = halved(reaches, 0.0, 1.0, rounds=HALVINGS)
    return min(1.0, enough + coins * float(stakes @ deltas) + ROUNDING)


def _largest_bet(affordable: float, levels: list[tuple[float, float]]) -> float:
    """The largest bet whose loss is affordable, placed at the lowest levels first, which lose least."""
    bet = 0.0
    for stake, odds in levels:
        if affordable <= stake * odds:
            return bet + affordable / odds
        affordable -= stake * odds
        bet += stake
    return bet


def best_stakes(correct: int, guesses: int, *, coins: float, epsilons: Array, deltas: Array) -> Array:
    """Stakes from the dual of a linear program: the largest ``P(C >= v)`` over the laws p of the right guesses.

    ``sum_j ((j + 1) p_{j+1} - e^e (k - j) p_j)^+ <= n delta(e)`` at every level e. Laws reach only some deviations to
    either side of v: that may cost tightness, never validity. All zeros where the solver fails.
    """
    wide = math.sqrt(guesses)
    first = max(0, int(correct - BELOW * wide))
    last = min(guesses, math.ceil(correct + ABOVE * wide))
    j, levels = np.arange(first, last), len(epsilons)
    width = len(j)
    excess = width + 1 + np.arange(width * levels)
    each = np.repeat(np.arange(width), levels)
    row = np.arange(width * levels)
    total = width * levels + np.tile(np.arange(levels), width)
    kept = -(np.exp(epsilons)[None, :] * (guesses - j)[:, None]).ravel()
    upper = csr_matrix(
        (
            np.concatenate([np.repeat(j + 1.0, levels), kept, -np.ones(len(row)), np.ones(len(row))]),
            (np.concatenate([row, row, row, total]), np.concatenate([each + 1, each, excess, excess])),
        ),
        (width * levels + levels, width + 1 + width * levels),
    )
    column = np.arange(width + 1 + width * levels)
    law = column <= width
    gain = np.where(law & (first + column >= correct), -1.0, 0.0)
    limit = np.concatenate([np.zeros(len(row)), coins * deltas])
    from scipy.optimize import linprog

    solved = linprog(gain, A_ub=upper, b_ub=limit, A_eq=law[None, :].astype(float), b_eq=[1.0], method="highs-ds")
    if solved.status != 0:
        return np.zeros(levels)
    duals: Array = solved["ineqlin"]["marginals"]
    return np.maximum(-duals[len(row) :], 0.0) * RAISED


def profile_of(curve: TradeOff, side: Side) -> Profile:
    """Deltas of a coin guessed on one side, or the mean of both sides, raised by the curve's numerical error."""

    def profile(epsilons: Array) -> Array:
        included = np.asarray(curve.delta(epsilons, "with_given_without"), float)
        left_out = np.asarray(curve.delta(epsilons, "without_given_with"), float)
        found = {"in": included, "out": left_out, "both": (included + left_out) / 2}[side]
        # a law that is not trusted so far down promises nothing there
        found = np.maximum(found, curve.law.smallest_delta)
        return np.minimum(1.0, found + (1 + np.exp(epsilons)) * curve.error + DELTA_ROUNDING)

    return profile
