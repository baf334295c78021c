"""Is it the mechanism that it is said to be? A two-sided test against the exact law of the subsampled Gaussian.

A step may keep its privacy promise and still be another mechanism: too much noise, records that never take part.
The noise is so small here (``NOISE``) that every trial shows which records were taken: the coefficients of the
clipped gradients are 0 or 1. What is left is noise, and every statistic below has a law that is known exactly.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
from scipy import stats

NOISE = 0.03
"""Noise multiplier: half of the shortest gradient is 8 deviations, so that a record is misread once in 10^15."""
RATE = 0.3
LENGTHS = (0.5, 1.0, 3.0, 40.0)
"""The gradients' lengths in units of the clipping bound; they are orthogonal."""
DIRECTIONS_TRIED = 8
MOST_STEPS_APART = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """One statistic: its name in words and its two-sided p-value, exact if the mechanism is the one stated."""

    what: str
    p_value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """All statistics together: the smallest p-value times their number."""

    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Finding:
        """The statistic that fits worst."""
        return min(self.findings, key=lambda finding: finding.p_value)

    @property
    def p_value(self) -> float:
        """Of 'it is the mechanism stated', by Bonferroni's inequality."""
        return min(1.0, len(self.findings) * self.worst.p_value)


def gradients(dimension: int, clip: float, steps: int = 1) -> np.ndarray:
    """Orthogonal dense gradients (records, steps, dimension), some too long; each step has another sign pattern."""
    columns = np.random.default_rng(7).standard_normal((steps, dimension, len(LENGTHS)))
    units = np.linalg.qr(columns)[0].transpose(2, 0, 1)
    return (clip * np.asarray(LENGTHS)[:, None, None] * units).astype(np.float32)


def clipped(given: np.ndarray, clip: float) -> np.ndarray:
    """What a right library makes of the gradients."""
    lengths = np.linalg.norm(given.astype(np.float64), axis=-1, keepdims=True)
    return given * np.minimum(1.0, clip / lengths)


def judge(outputs: np.ndarray, given: np.ndarray, *, clip: float, rate: float = RATE, noise: float = NOISE) -> Verdict:
    """Outputs (trials, steps, dimension) of the sum over the gradients (records, steps, dimension)."""
    exact = clipped(given, clip)
    taken = np.stack([_taken(outputs[:, t], exact[:, t]) for t in range(outputs.shape[1])], axis=1)
    total = np.einsum("ntr,rtd->ntd", taken, exact)
    rest = (outputs - total) / (noise * clip)
    if not np.isfinite(rest).all():
        return Verdict(findings=(Finding("outputs are not finite", 0.0),))
    return Verdict(findings=(*_batches(taken, rate), *_noise(rest), *_lengths(rest, taken, exact)))


def _taken(outputs: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Which records each output holds: coefficients to the nearer of 0 and 1."""
    coefficients = outputs.astype(np.float64) @ np.linalg.pinv(exact)
    return (coefficients > 0.5).astype(np.float64)


def _batches(taken: np.ndarray, rate: float) -> Iterator[Finding]:
    """Each record at the stated rate, every batch as often as independent draws make it, steps independent."""
    trials, steps, records = taken.shape
    yield Finding("records are taken at another rate", _binomial(taken.sum(), taken.size, rate))
    for record in range(records):
        count = taken[:, :, record].sum()
        yield Finding(f"record {record} is taken at another rate", _binomial(count, trials * steps, rate))
    for batch in itertools.product((0.0, 1.0), repeat=records):
        size = int(sum(batch))
        chance = rate**size * (1 - rate) ** (records - size)
        count = (taken == np.asarray(batch)).all(axis=2).sum()
        yield Finding(f"batches of {size} records have another frequency", _binomial(count, trials * steps, chance))
    for apart in range(1, min(steps, MOST_STEPS_APART + 1)):
        both = taken[:, 0] * taken[:, apart]
        yield Finding("batches of two steps depend on each other", _binomial(both.sum(), both.size, rate**2))


def _noise(rest: np.ndarray) -> Iterator[Finding]:
    """Independent standard normal numbers, whichever way one looks at them."""
    trials, steps, dimension = rest.shape
    rows = rest.reshape(trials, steps * dimension)
    yield Finding("the noise has another size", _chi_square(float(np.sum(rows**2)), rows.size))
    yield Finding("the noise is not normal", float(stats.kstest(rows.ravel(), "norm").pvalue))
    for coordinate in range(rows.shape[1]):
        column = rows[:, coordinate]
        where = f"in coordinate {coordinate % dimension}" + (f" of step {coordinate // dimension}" if steps > 1 else "")
        yield Finding(f"the noise has another size {where}", _chi_square(float(column @ column), trials))
        yield Finding(f"the sum is another one {where}", _normal(column.sum() / np.sqrt(trials)))
    yield from _dependence(rows)
    for apart in range(1, min(steps, MOST_STEPS_APART + 1)):
        first, second = rest[:, 0], rest[:, apart]
        correlation = np.sum(first * second) / np.sqrt(np.sum(first**2))
        yield Finding("the noise of two steps depends on each other", _normal(correlation))


def _dependence(rows: np.ndarray) -> Iterator[Finding]:
    """Between coordinates, by directions fixed beforehand and the trial's energy; between trials, by neighbours."""
    trials, size = rows.shape
    energy = stats.chi2.cdf(np.sum(rows**2, axis=1), size)
    what = "the noise differs from trial to trial in size"
    yield Finding(what, float(stats.kstest(energy, "uniform").pvalue))
    extremes = energy.min(), 1 - energy.max()
    yield from (Finding(what, float(-np.expm1(trials * np.log1p(-min(least, 1 - 1e-16))))) for least in extremes)
    signs = np.random.default_rng(11).choice([-1.0, 1.0], (size, DIRECTIONS_TRIED)) / np.sqrt(size)
    signs[:, 0] = 1 / np.sqrt(size)
    for along in (rows @ signs).T:
        yield Finding("the noise of coordinates depends on each other", _chi_square(along @ along, trials))
    even, odd = rows[0 : trials - 1 : 2], rows[1::2]
    norm = max(float(np.sqrt(np.sum(odd**2))), 1e-300)
    yield Finding("the noise of two trials depends on each other", _normal(np.sum(even * odd) / norm))


def _lengths(rest: np.ndarray, taken: np.ndarray, exact: np.ndarray) -> Iterator[Finding]:
    """Given the batch, what is left along each clipped gradient has mean zero."""
    for record, length in enumerate(LENGTHS[: exact.shape[0]]):
        unit = exact[record] / np.linalg.norm(exact[record], axis=-1, keepdims=True)
        along = np.einsum("ntd,td->nt", rest, unit)[taken[:, :, record] > 0]
        mean = along.sum() / np.sqrt(max(along.size, 1))
        yield Finding(f"a gradient of {length:g} times the bound counts as another length", _normal(mean))


def _binomial(count: float, trials: int, chance: float) -> float:
    law = stats.binom(trials, chance)
    return float(min(1.0, 2 * min(law.cdf(count), law.sf(count - 1))))


def _chi_square(square: float, degrees: int) -> float:
    law = stats.chi2(degrees)
    return float(min(1.0, 2 * min(law.cdf(square), law.sf(square))))


def _normal(standard: float) -> float:
    return float(2 * stats.norm.sf(abs(standard)))
