"""The best of all trainings of a few coins, by linear programs."""

import itertools
import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_matrix


def best_training(coins, outputs, wins, epsilon, delta):
    """Largest P(win) over ALL (epsilon, delta)-DP mechanisms with these outputs: a linear program."""
    sides = list(itertools.product((0, 1), repeat=coins))
    near = [
        (a, b) for a, b in itertools.permutations(range(len(sides)), 2) if np.not_equal(sides[a], sides[b]).sum() == 1
    ]
    each, laws = len(outputs), len(sides) * len(outputs)
    upper = lil_matrix((len(near) * (each + 1), laws + len(near) * each))
    limit = np.zeros(upper.shape[0])
    for place, (a, b) in enumerate(near):
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
