"""How far the record moves the sum, in which direction, beside how much noise; and at which rate it seems sampled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array, Noise
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import chi2, student

CLOSE = 0.03
"""Relative error up to which a scale counts as stated."""
ERRORS = 2.0
"""Standard errors by which a measured rate may exceed 1."""
NO_MEAN = 0.01
"""Smallest p-value at which noise is taken to have mean zero."""
ROUNDED = 1e-6
"""Share of the outputs in the span below which what lies aside of a gradient is rounding."""
ROWS = ("rows_no_gradients",)
"""Cause of a movement aside from the gradient where rows are assumed to be gradients."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """Settings that the code was given."""

    clip: float
    noise_multiplier: float
    rate: float
    divisor: float | None = None
    """Divisor of the whole release, fixed beforehand; None if unknown."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the sum."""
        return self.clip * self.noise_multiplier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shift:
    """Length of the difference between the means of two sides, and its standard error."""

    length: float
    error: float


def shift(first: Array, second: Array) -> Shift:
    """Estimate how far apart two means are, in any direction.

    With ``d`` the observed difference and ``S`` its covariance, ``|d|^2 - tr S`` has the mean of the true squared
    length and the variance ``4 d S d + 2 tr S^2`` at the true ``d``; the error of the length is that of its square over
    twice the length.
    """
    apart = second.mean(axis=0) - first.mean(axis=0)
    covariance = sum(np.atleast_2d(np.cov(side, rowvar=False)) / len(side) for side in (first, second))
    squares = float(np.sum(covariance**2))
    length = math.sqrt(max(float(apart @ apart) - float(np.trace(covariance)), 1e-300))
    # the observed d S d exceeds the true one by tr S^2 on average
    variance = max(4 * float(apart @ covariance @ apart) - 2 * squares, 2 * squares)
    return Shift(length=length, error=max(math.sqrt(variance) / (2 * length), 1e-300))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Movement:
    """The mean movement of the release by the record, whole and along its clipped gradient, and the noise beside it."""

    whole: Shift
    """In the span of all gradients, where a sum of them can move."""
    aside_p: float
    """P-value of 'the movement is along the record's clipped gradient'."""
    mean: float
    """Movement along that gradient, with its sign."""
    spread: float
    """Variance along it with the record, less that without."""
    noise: float
    noise_error: float
    along: float
    """Standard deviation along it without the record, batches included."""
    others: float
    """How far the other records move the mean along their own sum."""
    others_error: float
    """Standard error of that; infinite if the noise has a mean of its own, which is part of it."""
    degrees: int
    mean_rows: tuple[Array, ...]
    spread_rows: tuple[Array, ...]

    def times(self, divisor: float) -> Movement:
        """The movement in units of the sum before it was divided."""
        return dataclasses.replace(
            self,
            whole=Shift(length=self.whole.length * divisor, error=self.whole.error * divisor),
            mean=self.mean * divisor,
            spread=self.spread * divisor**2,
            noise=self.noise * divisor,
            noise_error=self.noise_error * divisor,
            along=self.along * divisor,
            others=self.others * divisor,
            others_error=self.others_error * divisor,
            mean_rows=tuple(rows * divisor for rows in self.mean_rows),
            spread_rows=tuple(rows * divisor**2 for rows in self.spread_rows),
        )

    def p_value(self, slope: float, intercept: float) -> float:
        """P-value of ``intercept + spread = slope mean`` at the estimates, by every trial's contribution."""
        parts = [second - slope * first for first, second in zip(self.mean_rows, self.spread_rows, strict=True)]
        error = math.sqrt(sum(float(part.var(ddof=1)) / len(part) for part in parts))
        return 2 * float(special.ndtr(-abs(intercept) / max(error, 1e-300)))


def pooled_deviation(without: Noise, with_record: Noise) -> tuple[float, float]:
    """Standard deviation of the noise of both sides, and its standard error."""
    squares = np.concatenate([side.sizes**2 for side in (without, with_record)])
    noise = math.sqrt((without.variance + with_record.variance) / 2)
    return noise, float(squares.std(ddof=1)) / math.sqrt(len(squares)) / max(2 * noise, 1e-300)


def movement(without: Noise, with_record: Noise, signal: Signal) -> Movement:
    """Compare both sides; every scale is in the release's units."""
    sides = (without, with_record)
    along = [side.along - side.along.mean() for side in sides]
    spans = [side.outputs.astype(np.float64) @ signal.basis.T for side in sides]
    gradient = signal.basis @ signal.direction
    asides = [span - np.outer(span @ gradient, gradient) for span in spans]
    noise, noise_error = pooled_deviation(without, with_record)
    others = without.outputs @ (signal.others / (float(np.linalg.norm(signal.others)) or 1.0))
    return Movement(
        whole=shift(*spans),
        aside_p=equal_means_p(*asides) if _largest(asides) > ROUNDED * _largest(spans) else 1.0,
        mean=float(with_record.along.mean() - without.along.mean()),
        spread=float(along[1].var(ddof=1) - along[0].var(ddof=1)),
        noise=noise,
        noise_error=noise_error,
        along=float(along[0].std(ddof=1)),
        others=float(others.mean()),
        others_error=max(float(others.std(ddof=1)) / math.sqrt(len(others)), 1e-300)
        if not _has_a_mean(without.beside)
        else math.inf,
        degrees=min(map(len, along)) - 1,
        mean_rows=(-along[0], along[1]),
        spread_rows=(along[0].var(ddof=1) - along[0] ** 2, along[1] ** 2 - along[1].var(ddof=1)),
    )


def _has_a_mean(noise: Array) -> bool:
    """Whether coordinates that no record moves have a mean other than zero."""
    squares = noise.mean(axis=0) ** 2 / np.maximum(noise.var(axis=0, ddof=1) / len(noise), 1e-300)
    return bool(chi2.sf(float(squares.sum()), len(squares)) < NO_MEAN)


def _largest(sides: Sequence[Array]) -> float:
    """Largest absolute number on the sides."""
    return max(float(np.abs(side).max(initial=0.0)) for side in sides)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """Which sampling rate explains how the record moves mean and variance along its gradient.

    Taken with probability p, it moves the mean by ``m = p a`` and the variance by ``v = p (1 - p) a^2``: at the stated
    rate ``v = m^2 (1 - q) / q``; if the noise is as expected, at any rate, ``v = m (a - m)`` with
    ``a = s L / (sigma C)``.
    """

    found: float
    """The rate, if the noise over the sensitivity is as expected."""
    error: float
    """Its standard error."""
    p_stated: float
    p_found: float

    @classmethod
    def of(cls, movement: Movement, signal: Signal, stated: Stated) -> Rates:
        """Test both hypotheses."""
        mean, odds = movement.mean, (1 - stated.rate) / stated.rate
        expected = movement.noise * signal.length / stated.deviation
        return cls(
            found=mean / max(expected, 1e-300),
            error=movement.whole.error / max(expected, 1e-300),
            p_stated=movement.p_value(2 * mean * odds, movement.spread - mean**2 * odds),
            p_found=movement.p_value(expected - 2 * mean, movement.spread - mean * (expected - mean)),
        )

    def may_explain(self, rate: float, risk: float) -> bool:
        """Whether a rate above the stated one is possible."""
        return rate < 1 and self.p_found >= risk and rate < self.found < 1 + CLOSE + ERRORS * self.error


def beyond_the_scale(ratio: Diagnosis, scale: Diagnosis, signal: Signal) -> bool:
    """Whether noise over sensitivity is smaller than a divisor that the record changes explains.

    Such a divisor scales the other records' sum with the noise, and so moves it: by ``|r (others + moves) - others|``
    where the noise with the record is r times as large.
    """
    if not (ratio.wrong and scale.wrong) or ratio.interval is None:
        return False
    scales = np.array([*(scale.interval or ()), scale.estimate or 1.0])
    moved = np.linalg.norm(np.outer(scales, signal.others + signal.moves) - signal.others, axis=1)
    explained = signal.length * np.sqrt((1 + scales**2) / 2) / np.maximum(moved, 1e-300)
    return bool(ratio.interval[1] < (1 - CLOSE) * float(explained.min()))


def taken_at_stated_rate(movement: Movement, signal: Signal, stated: Stated, *, beyond: bool, risk: float) -> Diagnosis:
    """Whether a record that moves the mean too far is taken too often: the stated rate fails and a larger one fits."""
    rates = Rates.of(movement, signal, stated)
    wrong = beyond and rates.p_stated < risk and rates.may_explain(stated.rate, risk)
    return answer(
        "rate",
        wrong=wrong,
        measured=f"the record moves the sum as if it were taken at rate {min(rates.found, 1.0):.2g} where "
        f"{stated.rate:g} is stated"
        if wrong
        else "another rate does not explain how the record moves the sum",
        causes=("another_rate", "weight_redrawn"),
        p_value=rates.p_stated if wrong else 1.0,
        risk=risk,
        assumes="records are taken independently; sums of many trials are normal",
        estimate=rates.found,
    )


def equal_means_p(first: Array, second: Array) -> float:
    """P-value of 'the means of both sides are equal': half of the trials chooses a direction for the other half."""
    halves = [(side[::2], side[1::2]) for side in (first, second)]
    direction = halves[1][0].mean(axis=0) - halves[0][0].mean(axis=0)
    z, degrees = welch_statistic(*(side[1] @ direction for side in halves))
    return float(student.sf(z, degrees))


def welch_statistic(first: Array, second: Array) -> tuple[float, int]:
    """Welch's t statistic of 'second is larger', and the smaller degrees of freedom; 0 where nothing varies."""
    error = math.sqrt(sum(float(values.var(ddof=1)) / len(values) for values in (first, second)))
    difference = float(second.mean() - first.mean())
    scale = float(np.abs(np.append(first, second)).max())
    if abs(difference) <= 1e-9 * scale:
        return 0.0, 1
    return difference / max(error, 1e-9 * scale), min(len(first), len(second)) - 1
