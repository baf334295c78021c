"""After a violation: what looks wrong. Each diagnosis is a test of its own, at its own stated share of the risk.

All of them look at noise alone: the coordinates of the outputs outside the span of the gradients. They explain and
never decide a verdict.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from scipy import special, stats

from audit.batch_workers import Batch, drawer
from distinguishers.directions import span_of
from guarantees.claim import require
from mechanisms.adapters.batch import BatchMechanism
from mechanisms.contract import Mechanism
from mechanisms.neighbours import Neighbours, materialise

FLOAT32_COLLISION = 2.0**-22
"""Chance that two float32 normals agree is below this, whether drawn from 23 bits or more."""
TIE_SAMPLE = 4000
NORMALITY_SAMPLE = 100_000
Array = np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The answer to one question about the noise or the sum."""

    question: str
    wrong: bool
    says: str
    p_value: float
    risk: float
    """Probability of saying 'wrong' when it is right, given the assumption."""
    assumes: str
    estimate: float | None = None
    interval: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """Outputs of one side, split into what the gradients can move and what they cannot."""

    along: Array
    """Coordinate along the differing record's gradient, shape (trials,)."""
    rest: Array
    """Coordinates that carry noise alone, shape (trials, coordinates)."""


def read_noise(outputs: Array, neighbours: Neighbours) -> Noise:
    """Split full outputs (trials, dimension); a rotated span costs its few directions one coordinate each."""
    values = np.asarray(outputs, float)
    frame, direction = span_of(neighbours)
    require("outputs", values.ndim == 2, "of shape (trials, coordinates)", values.shape)
    require("outputs", values.shape[1] == frame.dimension, f"of {frame.dimension} coordinates", values.shape)
    require("outputs", frame.dimension - frame.rank >= 2, "of two coordinates or more outside the span", frame.rank)
    require("outputs", bool(np.isfinite(values).all()), "finite", "NaN or infinity")
    if frame.basis is None:
        return Noise(along=values[:, : frame.rank] @ direction, rest=values[:, frame.rank :])
    basis = np.asarray(frame.basis, float)
    # Orthonormal directions outside the span: independent normals stay so.
    complement = np.linalg.qr(np.vstack([basis, np.eye(frame.dimension)]).T)[0][:, frame.rank : frame.dimension]
    return Noise(along=values @ (direction @ basis), rest=values @ complement)


def diagnose(
    outputs_without: Array,
    outputs_with: Array,
    neighbours: Neighbours,
    *,
    clip: float,
    noise_multiplier: float,
    risk: float = 0.05,
) -> tuple[Diagnosis, ...]:
    """Every diagnosis of outputs of both sides, sharing ``risk`` evenly.

    ``clip`` and ``noise_multiplier`` are what the code was told. Use outputs that were not used to choose what to ask.
    """
    require("risk", 0 < risk < 1, "in (0, 1)", risk)
    without, with_record = read_noise(outputs_without, neighbours), read_noise(outputs_with, neighbours)
    deviation = clip * noise_multiplier
    pooled = np.concatenate([_standard(without.rest), _standard(with_record.rest)])
    share = risk / 9
    return (
        noise_scale(without, deviation, side="without", risk=share),
        noise_scale(with_record, deviation, side="with", risk=share),
        depends_on_record(without, with_record, risk=share),
        depends_on_batch(without, risk=share),
        shared_noise(pooled, risk=share),
        repeated_noise(pooled, risk=share),
        record_moves(without, with_record, clip=clip, deviation=deviation, risk=share),
        not_normal(pooled, risk=share),
        grained(np.concatenate([without.rest, with_record.rest]), risk=share),
    )


def diagnose_mechanism(
    mechanism: Mechanism | BatchMechanism,
    neighbours: Neighbours,
    *,
    clip: float,
    noise_multiplier: float,
    key: jax.Array,
    trials: int = 300,
    risk: float = 0.05,
) -> tuple[Diagnosis, ...]:
    """Draw ``trials`` outputs a side, apart from those of any audit with another key, and diagnose them."""
    require("trials", trials >= 20, ">= 20", trials)
    sides = (neighbours.without, neighbours.with_record)
    first, second = (
        draw_outputs(own, mechanism, side, trials=trials)
        for own, side in zip(jax.random.split(key), sides, strict=True)
    )
    return diagnose(first, second, neighbours, clip=clip, noise_multiplier=noise_multiplier, risk=risk)


def draw_outputs(key: jax.Array, mechanism: Mechanism | BatchMechanism, dataset: Any, *, trials: int) -> Array:
    """Full outputs of one side, shape (trials, coordinates), kept on the host: for a few hundred trials."""
    data = materialise(dataset)
    if isinstance(mechanism, BatchMechanism):
        words = np.asarray(jax.random.key_data(key)).ravel()
        found: dict[int, Array] = {}
        drawer(mechanism, {"one": np.asarray(data)}).draw([Batch("one", words, 0, trials)], found.__setitem__)
        return found[0]
    keys = jax.vmap(lambda trial: jax.random.fold_in(key, trial))(np.arange(trials))
    return np.asarray(jax.jit(jax.vmap(lambda own, rows: mechanism(own, rows), in_axes=(0, None)))(keys, data))


def _standard(rest: Array) -> Array:
    """Every trial's noise over its own root mean square: free of the divisor."""
    size = np.sqrt(np.mean(rest**2, axis=1, keepdims=True))
    return rest / np.where(size > 0, size, 1.0)


def noise_scale(noise: Noise, deviation: float, *, side: str, risk: float) -> Diagnosis:
    """Standard deviation of the noise, and the divisor that would explain it.

    ``sum y^2 / deviation^2`` is chi-square with one degree for each coordinate.
    """
    count, total = noise.rest.size, float(np.sum(noise.rest**2))
    low, high = (math.sqrt(total / stats.chi2.isf(q, count)) for q in (risk / 2, 1 - risk / 2))
    found, x = math.sqrt(total / count), total / deviation**2 if deviation > 0 else math.inf
    p = min(1.0, 2 * min(float(stats.chi2.cdf(x, count)), float(stats.chi2.sf(x, count))))
    divisor = "no noise at all" if found == 0 else f"as if divided by {deviation / found:.4g}"
    if found > 0:
        divisor += f" ({deviation / high:.4g} to {deviation / low:.4g})"
    return Diagnosis(
        question=f"noise scale, side '{side}'",
        wrong=p < risk,
        says=f"noise of deviation {found:.4g} ({low:.4g} to {high:.4g}) where {deviation:.4g} is due: {divisor}.",
        p_value=p,
        risk=risk,
        assumes="independent normal noise of one scale",
        estimate=found,
        interval=(low, high),
    )


def depends_on_record(without: Noise, with_record: Noise, *, risk: float) -> Diagnosis:
    """Whether the noise has another scale with the record: an F test of two variances."""
    sizes = without.rest.size, with_record.rest.size
    squares = float(np.mean(without.rest**2)), float(np.mean(with_record.rest**2))
    ratio = squares[1] / squares[0] if squares[0] > 0 else (1.0 if squares[1] == 0 else math.inf)
    law = stats.f(sizes[1], sizes[0])
    p = min(1.0, 2 * min(float(law.cdf(ratio)), float(law.sf(ratio))))
    low, high = (math.sqrt(ratio / float(law.isf(q))) for q in (risk / 2, 1 - risk / 2))
    wrong = p < risk
    return Diagnosis(
        question="does the noise depend on the record?",
        wrong=wrong,
        says=f"with the record the noise is {math.sqrt(ratio):.4g} times ({low:.4g} to {high:.4g}) as large"
        + (": a divisor or bound that reads the dataset." if wrong else "."),
        p_value=p,
        risk=risk,
        assumes="independent normal noise",
        estimate=math.sqrt(ratio),
        interval=(low, high),
    )


def depends_on_batch(noise: Noise, *, risk: float) -> Diagnosis:
    """Whether the noise changes scale from trial to trial: Bartlett's test of equal variances. [bartlett1937]"""
    trials, width = noise.rest.shape
    squares = np.mean(noise.rest**2, axis=1)
    if (squares == 0).any():
        p = 0.0 if (squares > 0).any() else 1.0
    else:
        statistic = trials * width * math.log(squares.mean()) - width * float(np.sum(np.log(squares)))
        correction = 1 + (trials / width - 1 / (trials * width)) / (3 * (trials - 1))
        p = float(stats.chi2.sf(statistic / correction, trials - 1))
    wrong = p < risk
    return Diagnosis(
        question="does the noise change from trial to trial?",
        wrong=wrong,
        says="the noise's scale varies between trials: a divisor that reads the batch."
        if wrong
        else "one scale fits every trial.",
        p_value=p,
        risk=risk,
        assumes="independent normal noise within a trial; the law of the statistic is approximate below 5 coordinates",
    )


def shared_noise(standard: Array, *, risk: float) -> Diagnosis:
    """Whether coordinates share noise: the mean of a trial's coordinates against their spread, by an F test.

    With independent noise both mean squares are equal, and their ratio is F(trials, trials (width - 1)).
    """
    trials, width = standard.shape
    means = standard.mean(axis=1)
    within = float(np.sum((standard - means[:, None]) ** 2)) / (trials * (width - 1))
    between = width * float(np.mean(means**2))
    ratio = between / within if within > 1e-12 else math.inf
    p = float(stats.f.sf(ratio, trials, trials * (width - 1)))
    share = max(0.0, (between - within) / max(between + (width - 1) * within, 1e-300))
    wrong = p < risk
    return Diagnosis(
        question="is noise shared between coordinates?",
        wrong=wrong,
        says=f"{share:.1%} of the noise is common to all coordinates: a key used more than once."
        if wrong
        else "no common part.",
        p_value=p,
        risk=risk,
        assumes="normal noise",
        estimate=share,
    )


def repeated_noise(standard: Array, *, risk: float) -> Diagnosis:
    """Whether trials repeat earlier noise: the products of successive trials, asymptotically normal."""
    products = standard[:-1] * standard[1:]
    z = float(np.sum(products)) / math.sqrt(max(float(np.sum(products**2)), 1e-300))
    p = 2 * float(special.ndtr(-abs(z)))
    wrong = p < risk
    return Diagnosis(
        question="is noise repeated from trial to trial?",
        wrong=wrong,
        says="successive trials have correlated noise: a key or seed is used again."
        if wrong
        else "successive trials are uncorrelated.",
        p_value=p,
        risk=risk,
        assumes="many independent coordinates",
        estimate=float(np.mean(products)),
    )


def record_moves(without: Noise, with_record: Noise, *, clip: float, deviation: float, risk: float) -> Diagnosis:
    """How far the record moves the sum, in units that undo the divisor: by more than ``clip``? One-sided z test.

    Means are taken after scaling each side's outputs by (noise due / noise found).
    """

    def scaled(noise: Noise) -> Array:
        found = math.sqrt(float(np.mean(noise.rest**2)))
        return noise.along * (deviation / found if found > 0 else 1.0)

    first, second = scaled(without), scaled(with_record)
    shift = float(second.mean() - first.mean())
    error = max(math.sqrt(float(first.var(ddof=1)) / len(first) + float(second.var(ddof=1)) / len(second)), 1e-300)
    reach = float(special.ndtri(1 - risk / 2)) * error
    p = float(special.ndtr((clip - abs(shift)) / error))
    wrong = p < risk
    return Diagnosis(
        question="does the record move the sum by more than the clipping norm?",
        wrong=wrong,
        says=f"the mean moves by {shift:.4g} ({shift - reach:.4g} to {shift + reach:.4g}) where {clip:.4g} is the most"
        + (": clipping does not bound it." if wrong else "."),
        p_value=p,
        risk=risk,
        assumes="many trials; the noise is what it should be, up to a divisor",
        estimate=shift,
        interval=(shift - reach, shift + reach),
    )


def not_normal(standard: Array, *, risk: float) -> Diagnosis:
    """Skewness and excess kurtosis of the noise against a normal law, half of the risk each. [dagostino1973]

    A trial over its own size is a point on a sphere: its kurtosis is ``3 n / (n + 2)``, and varies less than that of
    independent normals, whose limits ``6/N`` and ``24/N`` are used.
    """
    width = standard.shape[1]
    values = standard[: max(1, NORMALITY_SAMPLE // width)].ravel()
    count = len(values)
    centred = values - values.mean()
    square = max(float(np.mean(centred**2)), 1e-300)
    skew = float(np.mean(centred**3)) / square**1.5
    kurtosis = float(np.mean(centred**4)) / square**2 - 3 * width / (width + 2)
    z = max(abs(skew) / math.sqrt(6 / count), abs(kurtosis) / math.sqrt(24 / count))
    p = min(1.0, 4 * float(special.ndtr(-z)))
    wrong = p < risk
    return Diagnosis(
        question="is the noise normal?",
        wrong=wrong,
        says=f"the noise is not normal: skewness {skew:.3g}, excess kurtosis {kurtosis:.3g}."
        if wrong
        else "a normal law fits the noise.",
        p_value=p,
        risk=risk,
        assumes="independent coordinates, many of them",
        estimate=kurtosis,
    )


def grained(rest: Array, *, risk: float) -> Diagnosis:
    """Whether the noise takes few values: equal pairs among 4,000 draws, which float32 noise hardly ever has.

    The number of equal pairs is at most about Poisson with mean ``pairs * 2^-22``.
    """
    values = rest.astype(np.float32).ravel()[:: max(1, rest.size // TIE_SAMPLE)][:TIE_SAMPLE]
    counts = np.unique(values, return_counts=True)[1]
    ties = int(np.sum(counts * (counts - 1) // 2))
    expected = len(values) * (len(values) - 1) / 2 * FLOAT32_COLLISION
    p = float(stats.poisson.sf(ties - 1, expected))
    wrong = p < risk
    return Diagnosis(
        question="does the noise take too few values?",
        wrong=wrong,
        says=f"{len(counts)} different values among {len(values)} draws: noise of low precision or entropy."
        if wrong
        else f"{len(counts)} different values among {len(values)} draws.",
        p_value=p,
        risk=risk,
        assumes="independent coordinates",
    )
