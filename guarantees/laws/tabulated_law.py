"""Thresholds at many levels from one table: for laws whose tails are costly."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from guarantees.laws.law import LossLaw, Tails, invert
from guarantees.numerics.array import Array

END = 1e-13
POINTS = 97
"""Levels nearer to 0 or 1 than this are searched one by one."""


def _score(above: Array, below: Array) -> Array:
    """Normal quantile of a rate, computed from the smaller tail; it rises with the threshold."""
    small = above < 0.5
    above, below = np.maximum(above, 1e-300), np.maximum(below, 1e-300)
    return np.where(small, -ndtri(np.where(small, above, 0.5)), ndtri(np.where(small, 0.5, below)))


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreTable:
    """Thresholds and the normal scores of one tail at them.

    A threshold is bracketed by the table and found by the Illinois method in the score, which is nearly linear
    in the threshold. It stops within 1e-8: a curve's supporting line depends on it only to second order.
    """

    rates: Callable[[Array], tuple[Array, Array]]
    """(above, below) of one side at each threshold."""
    thresholds: Array
    scores: Array
    end: float
    """The smallest level in the table; one minus it is the largest."""

    def threshold(self, alpha: Array) -> Array:
        """The threshold above which the mass is ``alpha``."""
        a = np.asarray(alpha, float)
        flat = a.ravel()
        inside = (flat > self.end) & (flat < 1 - self.end)
        value = np.empty(flat.shape)
        value[inside] = self._refine(_score(flat[inside], 1 - flat[inside]))
        if (~inside).any():
            value[~inside] = _search(self.rates, flat[~inside])
        return value.reshape(a.shape)

    def _refine(self, wanted: Array) -> Array:
        at = np.clip(np.searchsorted(self.scores, wanted), 1, len(self.scores) - 1)
        low, high = self.thresholds[at - 1], self.thresholds[at]
        under, over = self.scores[at - 1] - wanted, self.scores[at] - wanted
        t = low
        for _ in range(40):
            t = np.where(over > under, (low * over - high * under) / np.where(over > under, over - under, 1.0), low)
            gap = _score(*self.rates(t)) - wanted
            if np.all((np.abs(gap) < 1e-8) | (high - low < 1e-13 * (1 + np.abs(t)))):
                return t
            left = gap < 0
            # The end that stays has its gap halved, so that it cannot stay for ever.
            low, under = np.where(left, t, low), np.where(left, gap, under / 2)
            high, over = np.where(left, high, t), np.where(left, over / 2, gap)
        return t


def _search(rates: Callable[[Array], tuple[Array, Array]], alpha: Array) -> Array:
    def tails(t: Array) -> Tails:
        above, below = rates(t)
        return Tails(without_above=above, without_below=below, with_above=above, with_below=below)

    return invert(tails, alpha)


def score_table(rates: Callable[[Array], tuple[Array, Array]]) -> ScoreTable:
    """Tabulate one side of a law between the levels END and 1 - END, or less far where rounding hides its tails."""
    end = END
    low, high = _search(rates, np.array([1 - end, end]))
    while not (np.isfinite(low) and np.isfinite(high)) and end < 1e-3:
        end *= 100
        low, high = _search(rates, np.array([1 - end, end]))
    t = np.linspace(low, high, POINTS)
    return ScoreTable(rates, t, np.maximum.accumulate(_score(*rates(t))), end)


class TabulatedLaw(LossLaw):
    """A law computed one side at a time; thresholds come from a table of each side, built on first use."""

    @abc.abstractmethod
    def _without(self, threshold: Array) -> tuple[Array, Array]:
        """(above, below) without the record, at each threshold."""

    @abc.abstractmethod
    def _with_record(self, threshold: Array) -> tuple[Array, Array]:
        """(above, below) with the record, at each threshold."""

    def tails(self, threshold: Array) -> Tails:
        """Tails of both sides."""
        above0, below0 = self._without(threshold)
        above1, below1 = self._with_record(threshold)
        return Tails(without_above=above0, without_below=below0, with_above=above1, with_below=below1)

    @functools.cached_property
    def _forward(self) -> ScoreTable:
        return score_table(self._without)

    @functools.cached_property
    def _backward(self) -> ScoreTable:
        def rates(t: Array) -> tuple[Array, Array]:
            above, below = self._with_record(-t)
            return below, above

        return score_table(rates)

    def threshold(self, alpha: Array) -> Array:
        """Threshold from the table of the side without the record."""
        return self._forward.threshold(alpha)

    def reversed_threshold(self, alpha: Array) -> Array:
        """Threshold from the table of the side with the record."""
        return self._backward.threshold(alpha)
