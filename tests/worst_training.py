"""The best of all mechanisms with a few coins, found by a linear program."""

import itertools
import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_matrix


def guess_vectors(coins, guesses, guessed_in=None):
    """Every way to guess that many of the coins, so many of them 'in' if that is fixed: where, and what."""
    free = itertools.product((0, 1), repeat=guesses)
    answers = [each for each in free if guessed_in is None or sum(each) == guessed_in]
    return list(itertools.product(itertools.combinations(range(coins), guesses), answers))


def right_guesses(sides, guess):
    return sum(sides[i] == answer for i, answer in zip(*guess, strict=True))


def best_training(coins, guesses, correct, profile, *, guessed_in=None, reverse=None):
    """Largest P(C >= correct) over ALL mechanisms that keep every (epsilon, delta) of the profile."""
    vectors = guess_vectors(coins, guesses, guessed_in)
    return largest_chance(coins, vectors, lambda side, guess: right_guesses(side, guess) >= correct, profile, reverse)


def largest_chance(coins, outputs, wins, profile, reverse=None):
    """Largest P(win) over ALL mechanisms with these outputs that keep every (epsilon, delta) of the profile.

    With ``reverse`` the profile is of a coin that is in against the same one out, and ``reverse`` the other way round.
    """
    sides = list(itertools.product((0, 1), repeat=coins))
    near = [
        (a, b) for a, b in itertools.permutations(range(len(sides)), 2) if np.not_equal(sides[a], sides[b]).sum() == 1
    ]
    ways = [reverse or profile, profile]
    kinds = [(a, b, *kept) for a, b in near for kept in ways[sum(sides[a]) > sum(sides[b])]]
    laws, each = len(sides) * len(outputs), len(outputs)
    upper = lil_matrix((len(kinds) * (each + 1), laws + len(kinds) * each))
    limit = np.zeros(upper.shape[0])
    for place, (a, b, epsilon, delta) in enumerate(kinds):
        for y in range(each):
            row, excess = place * (each + 1) + y, laws + place * each + y
            upper[row, a * each + y], upper[row, b * each + y], upper[row, excess] = 1, -math.exp(epsilon), -1
            upper[place * (each + 1) + each, excess] = 1
        limit[place * (each + 1) + each] = delta
    whole, gain = lil_matrix((len(sides), upper.shape[1])), np.zeros(upper.shape[1])
    for a, side in enumerate(sides):
        for y, output in enumerate(outputs):
            whole[a, a * each + y] = 1
            gain[a * each + y] = -wins(side, output) / len(sides)
    return -linprog(gain, A_ub=upper.tocsr(), b_ub=limit, A_eq=whole.tocsr(), b_eq=np.ones(len(sides))).fun
