"""Ranks of a sample, and the test that compares two samples by them."""

from __future__ import annotations

import importlib
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from guarantees.numerics.array import Array

FEW = 8
"""Values of the smaller sample up to which the law of the rank sum is counted, not approximated."""


def ranks_of(values: ArrayLike) -> Array:
    """Ranks from 1 on along the first axis; equal values share the mean of theirs."""
    given = np.asarray(values)
    if given.ndim > 1:
        flat = given.reshape(len(given), -1)
        return np.stack([ranks_of(column) for column in flat.T], axis=1).reshape(given.shape)
    order = np.argsort(given, kind="stable")
    ordered = given[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(given) else np.zeros(0, int)
    last = np.append(first[1:], len(given))
    shared = np.empty(len(given))
    shared[order] = np.repeat((first + last + 1) / 2, last - first)
    return shared


def rank_sum_p(first: Array, second: Array) -> float:
    """The two-sided p-value of Mann and Whitney's test that two samples have one law.

    Normal approximation with continuity correction and ties' smaller variance, as scipy.stats.mannwhitneyu has it; that
    function itself where one sample has few values.
    """
    n1, n2 = len(first), len(second)
    if min(n1, n2) <= FEW:
        return float(importlib.import_module("scipy.stats").mannwhitneyu(first, second).pvalue)
    both = np.concatenate([first, second])
    above = float(ranks_of(both)[:n1].sum()) - n1 * (n1 + 1) / 2
    ties = np.unique(both, return_counts=True)[1].astype(float)
    n = n1 + n2
    spread = math.sqrt(n1 * n2 / 12 * ((n + 1) - float((ties**3 - ties).sum()) / (n * (n - 1))))
    reached = max(above, n1 * n2 - above) - n1 * n2 / 2 - 0.5
    return float(min(1.0, 2 * ndtr(-reached / spread)))
