"""The usual figures of an attack, all from one band: area under the curve, true-positive rates, accuracy."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.bounds.local_levels import ThresholdBand
from guarantees.numerics.array import Array

FALSE_POSITIVE_RATES = (1e-4, 1e-3, 1e-2, 1e-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtFalsePositiveRate:
    """True-positive rate of the test with at most this false-positive rate."""

    false_positive_rate: float
    estimate: float
    """The rate among these scores; nothing is proven about it."""
    at_least: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackSummary:
    """The scores as an attack. All ``at_least`` hold together at the risk; estimates prove nothing."""

    risk: float
    auroc: float
    """Share of pairs in which the score with the record is the higher one, ties counting half."""
    auroc_at_least: float
    accuracy: float
    """Accuracy of the best threshold when both datasets are equally likely."""
    accuracy_at_least: float
    true_positive_rates: tuple[AtFalsePositiveRate, ...]


def attack_summary(
    without: Array,
    with_record: Array,
    band: ThresholdBand,
    *,
    false_positive_rates: tuple[float, ...] = FALSE_POSITIVE_RATES,
) -> AttackSummary:
    """Estimates from scores in increasing order, and lower limits from a band that holds at every threshold at once.

    The curve of true- against false-positive rates grows, so at any x it is at least ``max{1 - beta_U(t): alpha_U(t)
    <= x}``; the area under that staircase bounds the area under the curve. [docs/validity.md, section 14]
    """
    staircase = _Staircase.of(band)
    zero, one = len(without), len(with_record)
    threshold = np.unique(np.concatenate([without[zero - _ranks(zero)], with_record[_ranks(one) - 1]]))
    false_positive = 1 - np.searchsorted(without, threshold, side="right") / zero
    true_positive = 1 - np.searchsorted(with_record, threshold, side="right") / one
    best = float(np.max(1 - band.alpha_upper - band.beta_upper, initial=0.0))
    return AttackSummary(
        risk=band.risk,
        auroc=_area(without, with_record),
        auroc_at_least=max(staircase.area, 0.0),
        accuracy=float(0.5 + np.max(true_positive - false_positive, initial=0.0) / 2),
        accuracy_at_least=0.5 + max(best, 0.0) / 2,
        true_positive_rates=tuple(
            AtFalsePositiveRate(
                false_positive_rate=rate,
                estimate=float(_power_at(without, with_record, rate)),
                at_least=staircase.at(rate),
            )
            for rate in false_positive_rates
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Staircase:
    alpha: Array
    power: Array
    """Largest proven power up to each false-positive rate."""

    @classmethod
    def of(cls, band: ThresholdBand) -> _Staircase:
        order = np.argsort(band.alpha_upper, kind="stable")
        alpha = np.concatenate([band.alpha_upper[order], [1.0]])
        power = np.concatenate([band.power_lower[order], [1.0]])
        return cls(alpha=alpha, power=np.maximum.accumulate(np.maximum(power, 0.0)))

    def at(self, rate: float) -> float:
        last = int(np.searchsorted(self.alpha, rate, side="right")) - 1
        return float(self.power[last]) if last >= 0 else 0.0

    @property
    def area(self) -> float:
        return float(np.sum(np.diff(self.alpha) * self.power[:-1]))


def _ranks(count: int) -> Array:
    """Ranks from 1 to ``count``: all of them if few, 4,096 if many."""
    return np.unique(np.linspace(1, count, min(count, 4096)).astype(np.int64))


def _area(without: Array, with_record: Array) -> float:
    lower = np.searchsorted(without, with_record, side="left")
    ties = np.searchsorted(without, with_record, side="right") - lower
    return float((lower.mean() + ties.mean() / 2) / len(without))


def _power_at(without: Array, with_record: Array, rate: float) -> float:
    """Share of scores with the record above the lowest threshold that at most this share without exceeds."""
    allowed = int(rate * len(without))
    threshold = without[len(without) - 1 - allowed] if allowed < len(without) else -np.inf
    return 1 - np.searchsorted(with_record, threshold, side="right") / len(with_record)
