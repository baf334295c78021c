"""Scores for outputs that somebody else drew: learned on some of them, applied to the others."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from guarantees.checks import require
from guarantees.numerics.array import Array
from guarantees.numerics.equal_rows import different_rows

LEARN = 3
"""One output in this many learns the score."""
FEWEST = 12
"""Fewest outputs of a side from which a score can be learned and judged."""
FULL = 4
"""Learning trials per coordinate from which covariances are used, not only variances."""
RIDGE = 1e-9
"""Share of the joint variance added to each variance: numbers may be constant, or one draw."""
FEW = 64
"""Most different rows of a release that counts as discrete."""
PLAIN = 4
"""Standard errors beyond which a number's spread counts as different on the two sides."""
FAR = 1e50
"""Units at which distances are capped, so that squares stay finite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedScores:
    """Scores of the outputs that did not learn the score, and how many of each side did."""

    without: Array
    with_record: Array
    learned_from: tuple[int, int]


def are_outputs(values: ArrayLike) -> bool:
    """Whether each trial has several numbers, so that it is an output and not a score."""
    shape = np.shape(values)
    return len(shape) > 1 and 1 not in (shape[0], int(np.prod(shape[1:])))


def learned_scores(without: Array, with_record: Array, *, seed: int) -> LearnedScores:
    """Scores of outputs (trials, numbers), larger where the record seems to have been there.

    A third of each side, drawn by ``seed``, learns: one half of it the direction in which means differ most for their
    noise, and the coordinates that vary more on one side; the other half the normal law of three numbers on each side,
    the place along that direction, the logarithm of the spread, and what those coordinates say. The score is their
    likelihood ratio. The others are independent of it and may be judged.
    """
    # a stream of its own: the same seed sets scores aside that choose thresholds
    rng = np.random.default_rng((seed, LEARN))
    split = [_split(side, rng) for side in (without, with_record)]
    directions, laws, judged = zip(*split, strict=True)
    read = _Read.of(*directions)
    found = [read(side) for side in laws]
    floor = RIDGE * np.concatenate(found).var(axis=0)
    normal = [_Normal.of(side, np.where(floor > 0, floor, 1.0)) for side in found]
    zero, one = (normal[1](rows) - normal[0](rows) for rows in map(read, judged))
    return LearnedScores(
        without=zero,
        with_record=one,
        learned_from=(len(without) - len(zero), len(with_record) - len(one)),
    )


def copies(values: ArrayLike) -> int:
    """How many trials are copies of others, if they look like draws of continuous noise; else 0.

    Whole numbers, and trials that take few values, are what a discrete release gives. Scores may be rounded: they are
    called copies only if each comes more than once.
    """
    given = np.asarray(values)
    rows = given.reshape(len(given), int(np.prod(given.shape[1:])))
    if not np.mod(rows[np.isfinite(rows)], 1).any():
        return 0
    _, times = different_rows(rows)
    if len(times) <= FEW or (rows.shape[1] == 1 and times.min() == 1):
        return 0
    return len(rows) - len(times)


def rows_of_outputs(name: str, values: ArrayLike) -> Array:
    """Outputs as one row per trial; an error says what is wrong and where."""
    outputs = np.asarray(values)
    require(name, outputs.dtype.kind in "biuf", "an array of real numbers", outputs.dtype)
    require(name, len(outputs) >= FEWEST, f"at least {FEWEST} outputs", len(outputs))
    rows = outputs.reshape(len(outputs), -1).astype(float)
    require(name, rows.shape[1] > 0, "rows of numbers, one row a trial", f"shape {outputs.shape}")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        where = int(np.argmin(finite))
        raise ValueError(f"{name}[{where}] is not finite; an output is made of numbers. Repair it, do not drop it.")
    return rows


def counting_column(without: Array, with_record: Array) -> int | None:
    """The first column that numbers the trials of the two files: different whole numbers, as no release has.

    They rise or fall from trial to trial, or are all those between the least and the largest, of each file or of both.
    """
    sides = (without, with_record)
    some = np.concatenate([side[:FEWEST] for side in sides])
    for place in np.flatnonzero((np.mod(some, 1) == 0).all(axis=0)):
        pair = [side[:, place] for side in sides]
        if any(np.mod(column, 1).any() for column in pair):
            continue
        in_order = all((np.diff(column) > 0).all() or (np.diff(column) < 0).all() for column in pair)
        if in_order or all(map(_consecutive, pair)) or _consecutive(np.concatenate(pair)):
            return int(place)
    return None


def _consecutive(column: Array) -> bool:
    return bool((np.diff(np.sort(column)) == 1).all())


def _split(side: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    order, learn = rng.permutation(len(side)), len(side) // LEARN
    return side[order[: learn // 2]], side[order[learn // 2 : learn]], side[order[learn:]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Read:
    """Three numbers of an output, computed in units in which the learned quantities are about 1."""

    unit: Array
    middle: Array
    spread: Array
    direction: Array
    scale: Array
    squares: Array
    """Weights of the squares, as in the likelihood ratio of normal numbers; 0 if both sides vary alike."""

    @classmethod
    def of(cls, without: Array, with_record: Array) -> _Read:
        both = np.concatenate([without, with_record])
        # powers of two: they change no bit
        unit = np.exp2(np.maximum(np.frexp(np.abs(both).max(axis=0))[1] - 1, -1022))
        both /= unit
        middle, spread = both.mean(axis=0), both.std(axis=0)
        # what varies by rounding alone is constant
        spread = np.where(spread > 1e-14, spread, 1.0)
        sides = np.split((both - middle) / spread, [len(without)])
        means = [side.mean(axis=0) for side in sides]
        centred = np.concatenate([side - mean for side, mean in zip(sides, means, strict=True)])
        apart, scale = means[1] - means[0], np.sqrt(centred.var(axis=0) + RIDGE)
        direction = apart / scale
        if len(centred) >= FULL * centred.shape[1]:
            scaled = centred / scale
            covariance = scaled.T @ scaled / len(scaled) + RIDGE * np.eye(len(scale))
            direction = np.linalg.solve(covariance, direction)
        variances = [side.var(axis=0) / scale**2 + RIDGE for side in sides]
        # of normal numbers; of heavier ones more pass, which costs power and nothing else
        error = np.sqrt(sum(2 / len(side) for side in sides))
        differ = np.abs(np.log(variances[1] / variances[0])) > PLAIN * error
        squares = np.where(differ, 1 / variances[0] - 1 / variances[1], 0.0) / 2
        return cls(unit=unit, middle=middle, spread=spread, direction=direction, scale=scale, squares=squares)

    def __call__(self, rows: Array) -> Array:
        with np.errstate(over="ignore"):
            given = np.clip(rows / self.unit, -FAR, FAR)
        scaled = (given - self.middle) / self.spread / self.scale
        spread = np.log(np.maximum(np.mean(scaled**2, axis=1), 1e-300))
        # the weight of a number that is constant on one side is huge
        varied = np.arcsinh(np.minimum(scaled**2, FAR) @ self.squares)
        return np.stack([scaled @ self.direction, spread, varied], axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Normal:
    """The log density of three numbers, up to a constant."""

    mean: Array
    factor: Array

    @classmethod
    def of(cls, found: Array, floor: Array) -> _Normal:
        covariance = np.cov(found, rowvar=False) + np.diag(floor)
        deviations = np.sqrt(np.diag(covariance))
        # of numbers that say the same one may be a multiple of another
        correlation = covariance / np.outer(deviations, deviations) + RIDGE * np.eye(len(floor))
        factor = np.linalg.inv(np.linalg.cholesky(correlation)).T / deviations[:, None]
        return cls(mean=found.mean(axis=0), factor=factor)

    def __call__(self, found: Array) -> Array:
        return np.sum(np.log(np.diag(self.factor))) - np.sum(((found - self.mean) @ self.factor) ** 2, axis=1) / 2
