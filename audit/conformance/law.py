"""Is it the mechanism that it is said to be? A two-sided test against the exact law of the subsampled Gaussian.

A step may keep its privacy promise and still be another mechanism: too much noise, records that never take part.
The noise is so small here (``NOISE``) that every trial shows which records were taken: the coefficients of the
clipped gradients are 0 or 1, or as many as are equal. What is left is noise, and every statistic below has a law that
is known exactly.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from dpsgd_audit.spelling import counted

NOISE = 0.03
"""Noise multiplier: half of the shortest gradient is 8 deviations, so that a record is misread once in 10^15."""
RATE = 0.3
LENGTHS = (0.5, 1.0, 3.0, 40.0, 1e9)
"""The gradients' lengths in units of the clipping bound; they are orthogonal. The last is far beyond the bound, but its
square is a float32."""
COPIES = (1, 2, 1, 1, 1)
"""How many records have each of these gradients."""
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
    """Dense gradients (records, steps, dimension), orthogonal or equal; each step has another sign pattern."""
    kinds = min(len(LENGTHS), dimension)
    columns = np.random.default_rng(7).standard_normal((steps, dimension, kinds))
    units = np.linalg.qr(columns)[0].transpose(2, 0, 1)
    different = (clip * np.asarray(LENGTHS[:kinds])[:, None, None] * units).astype(np.float32)
    return np.repeat(different, COPIES[:kinds], axis=0)


def clipped(given: np.ndarray, clip: float) -> np.ndarray:
    """What a right library makes of the gradients."""
    lengths = np.linalg.norm(given.astype(np.float64), axis=-1, keepdims=True)
    return given * np.minimum(1.0, clip / lengths)


def judge(outputs: np.ndarray, given: np.ndarray, *, clip: float, rate: float = RATE, noise: float = NOISE) -> Verdict:
    """Outputs (trials, steps, dimension) of the sum over the gradients (records, steps, dimension)."""
    first = np.flatnonzero(np.append(True, np.any(given[1:] != given[:-1], axis=(1, 2))))
    copies = np.diff(np.append(first, len(given)))
    exact = clipped(given[first], clip)
    taken = np.stack([_taken(outputs[:, t], exact[:, t], copies) for t in range(outputs.shape[1])], axis=1)
    total = np.einsum("ntr,rtd->ntd", taken, exact)
    rest = (outputs - total) / (noise * clip)
    if not np.isfinite(rest).all():
        return Verdict(findings=(Finding("outputs are not finite", 0.0),))
    return Verdict(findings=(*_batches(taken, copies, rate), *_noise(rest), *_lengths(rest, taken, exact)))


def _taken(outputs: np.ndarray, exact: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """How many records of each gradient an output holds: coefficients to the nearest number that there can be."""
    coefficients = outputs.astype(np.float64) @ np.linalg.pinv(exact)
    # what is not finite is told by what is left
    return np.clip(np.round(np.nan_to_num(coefficients)), 0, copies)


def _batches(taken: np.ndarray, copies: np.ndarray, rate: float) -> Iterator[Finding]:
    """Each record at the stated rate, every batch as often as independent draws make it, steps independent."""
    draws, records = taken.shape[0] * taken.shape[1], int(copies.sum())
    yield Finding("records are taken at another rate", _binomial(taken.sum(), draws * records, rate))
    for kind, (last, equal) in enumerate(zip(np.cumsum(copies) - 1, copies, strict=True)):
        who = f"record {last} is" if equal == 1 else f"equal records ({last - equal + 1} to {last}) are"
        yield Finding(f"{who} taken at another rate", _binomial(taken[:, :, kind].sum(), draws * int(equal), rate))
        if equal > 1:
            together = int((taken[:, :, kind] == equal).sum())
            yield Finding(f"{who} not all counted", _binomial(together, draws, rate ** int(equal)))
    for batch in itertools.product(*(range(own + 1) for own in copies)):
        size = sum(batch)
        ways = math.prod(math.comb(int(own), count) for own, count in zip(copies, batch, strict=True))
        chance = ways * rate**size * (1 - rate) ** (records - size)
        count = (taken == np.asarray(batch)).all(axis=2).sum()
        yield Finding(f"batches of {counted(size, 'record')} have another frequency", _binomial(count, draws, chance))
    alone = taken[:, :, copies == 1]
    for apart in range(1, min(alone.shape[1], MOST_STEPS_APART + 1)):
        both = alone[:, 0] * alone[:, apart]
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
    for kind, length in enumerate(LENGTHS[: exact.shape[0]]):
        unit = exact[kind] / np.linalg.norm(exact[kind], axis=-1, keepdims=True)
        along = np.einsum("ntd,td->nt", rest, unit)[taken[:, :, kind] > 0]
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
