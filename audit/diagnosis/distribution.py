"""Whether the noise is normal: its shape, its tails, and how many values it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import poisson, student

FLOAT32_COLLISION = 2.0**-22
"""Upper bound on the chance that two float32 normals are equal, whether drawn from 23 bits or more."""
TIE_SAMPLE, TIE_TRIALS = 8000, 1000
PILED = 10.0
"""How many times more frequent one value is than the others on average, where values pile up."""
NORMALITY_SAMPLE = 100_000


def not_normal(standard: Array, *, risk: float) -> Diagnosis:
    """Whether skewness or excess kurtosis of the noise are not those of a normal law, half of the risk each.

    [dagostino1973] A trial over its own size is a point on a sphere: its kurtosis is ``3 n / (n + 2)``, and varies less
    than that of independent normals, whose limits ``6/N`` and ``24/N`` are used. Coordinates of different scales are
    distinguished from another law by testing again with each over its own scale.
    """
    width = standard.shape[1]
    rows = standard[: max(1, NORMALITY_SAMPLE // width)]
    skew, kurtosis, p = _moments(rows)
    wrong = p < risk
    scales = np.sqrt(np.mean(rows**2, axis=0))
    uneven = wrong and len(rows) > 1 and bool(scales.min() > 0) and _moments(_rescaled(rows, scales))[2] >= risk
    spread = f"; their deviations are {scales.min():.3g} to {scales.max():.3g} of the trial's" if uneven else ""
    return answer(
        "normal",
        measured=f"the coordinates beside the gradients are not normal numbers of one scale (skewness {skew:.3g}, "
        f"excess kurtosis {kurtosis:.3g}{spread})"
        if wrong
        else "a normal law fits the noise",
        causes=("uneven",) if uneven else ("another_law", "sum_elsewhere"),
        p_value=p,
        risk=risk,
        assumes="independent coordinates, many of them",
        estimate=kurtosis,
    )


def _rescaled(rows: Array, scales: Array) -> Array:
    """Rows with every coordinate divided by its scale, normalised to one size each."""
    rescaled = rows / scales
    return rescaled / np.sqrt(np.mean(rescaled**2, axis=1, keepdims=True))


def _moments(rows: Array) -> tuple[float, float, float]:
    """Skewness and excess kurtosis of all entries, and the p-value of both together."""
    values, width = rows.ravel(), rows.shape[1]
    count = len(values)
    centred = values - values.mean()
    square = max(float(np.mean(centred**2)), 1e-100)
    skew = float(np.mean(centred**3)) / square**1.5
    kurtosis = float(np.mean(centred**4)) / square**2 - 3 * width / (width + 2)
    z = max(abs(skew) / math.sqrt(6 / count), abs(kurtosis) / math.sqrt(24 / count))
    return skew, kurtosis, min(1.0, 4 * float(special.ndtr(-z)))


def known_skewness(sides: Sequence[Array], *, risk: float) -> float:
    """Skewness of releases that are one constant and noise on each side; 0 where it is not shown to differ from 0.

    The mean over a trial's coordinates of ``He3(y) = y^3 - 3 y``, each over its own deviation, has mean zero over the
    trials, however the coordinates are correlated: a t test.
    """
    centred = np.concatenate([side - side.mean(axis=0) for side in sides])
    deviations = centred.std(axis=0)
    rows = centred[:, deviations > 0] / deviations[deviations > 0]
    by_trial = (rows**3 - 3 * rows).mean(axis=1) if rows.size else np.zeros(len(rows))
    mean, error = float(by_trial.mean()), float(by_trial.std(ddof=1)) / math.sqrt(len(by_trial))
    return mean if error > 0 and 2 * float(student.sf(abs(mean) / error, len(by_trial) - 1)) < risk else 0.0


def cut_tails(sides: Sequence[Array], *, risk: float) -> Diagnosis:
    """Whether the noise ends too early: tests whether its largest number would be larger if it were normal.

    Of ``sides`` every coordinate is divided by its deviation or, where there are more coordinates than trials, every
    trial by its own: a point on a sphere. With n degrees of freedom ``z^2 / n`` is Beta(1/2, (n - 1)/2), and squares
    that sum to n are negatively associated: ``P(all |z| <= x) <= P(|z| <= x)^N``. [joagdev1983] Noise whose scale
    varies from trial to trial reaches farther. Ends beyond 5 deviations need millions of draws: audit.noise_tails.
    """
    standard = [_over_its_deviation(side - side.mean(axis=0)) for side in sides]
    largest = max(float(np.abs(rows).max(initial=0.0)) for rows, _ in standard)
    log_p, count = 0.0, sum(rows.size for rows, _ in standard)
    for rows, freedom in standard:
        beyond = float(special.betaincc(0.5, (freedom - 1) / 2, min(1.0, largest**2 / freedom)))
        log_p += rows.size * math.log1p(-beyond) if largest > 0 and beyond < 1 else 0.0
    p = math.exp(log_p)
    return answer(
        "tails",
        wrong=p < risk,
        measured=f"the largest of {count:,} numbers of noise is {largest:.4g} standard deviations",
        causes=("cut", "another_law"),
        p_value=p,
        risk=risk,
        assumes="independent normal noise",
        estimate=largest,
    )


def _over_its_deviation(centred: Array) -> tuple[Array, int]:
    """Columns or rows that vary, each over its root mean square, and their degrees of freedom."""
    by_trial = centred.shape[1] >= len(centred)
    size = np.sqrt(np.mean(centred**2, axis=int(by_trial), keepdims=True))
    rows = centred[size[:, 0] > 0] if by_trial else centred[:, size[0] > 0]
    return rows / size[size > 0].reshape((-1, 1) if by_trial else (1, -1)), rows.shape[1] if by_trial else len(rows) - 1


def grained(outputs: Array, deviation: float, *, coarse: bool = False, risk: float) -> Diagnosis:
    """Whether the noise takes few values, so that a coordinate is equal in two trials, as float32 noise hardly ever is.

    The number of equal pairs is at most about Poisson with mean ``pairs * 2^-22``, or more where outputs are so large
    that float32 is coarser there. The smallest and the largest value, where cut noise piles up, are left out unless the
    noise is known to be ``coarse``.
    """
    columns = max(1, min(outputs.shape[1], TIE_SAMPLE // min(len(outputs), TIE_TRIALS)))
    chosen = np.linspace(0, outputs.shape[1] - 1, columns).astype(int)
    values = _updates(outputs[:TIE_TRIALS, chosen].astype(np.float32))
    spacing = float(np.spacing(np.float32(np.abs(values).max(initial=0.0))))
    collision = max(FLOAT32_COLLISION, spacing / max(deviation, 1e-300))
    expected = values.shape[1] * len(values) * (len(values) - 1) / 2 * collision
    ties = sum(_equal_pairs(column, ends=coarse) for column in values.T)
    p = float(poisson.sf(ties - 1, expected))
    wrong = p < risk
    different = sum(len(np.unique(column)) for column in values.T)
    grid = _grid(np.unique(values)) if wrong else ""
    piled = wrong and not grid and any(map(_is_piled, values.T))
    return answer(
        "grain",
        measured=f"{different} different values among {values.size} draws{grid}",
        causes=("cut", "coarse_noise", "release_rounded") if piled else ("coarse_noise", "release_rounded"),
        p_value=p,
        risk=risk,
        assumes="independent trials",
        estimate=float(different),
    )


def _updates(values: Array) -> Array:
    """Trials that are not zero throughout, if there are any: an empty batch gives no update."""
    nonzero = np.any(values != 0, axis=1)
    return values[nonzero] if nonzero.any() else values


def _is_piled(values: Array) -> bool:
    """Whether one value is far more frequent than others are, as where noise is cut; coarse noise repeats them all."""
    counts = np.unique(values, return_counts=True)[1]
    return bool(counts.max() > PILED * counts.mean())


def _equal_pairs(values: Array, *, ends: bool) -> int:
    """Number of pairs of equal values, with or without those at the ends."""
    counts = np.unique(values, return_counts=True)[1]
    counts = counts if ends else counts[1:-1]
    return int(np.sum(counts * (counts - 1) // 2))


def on_a_grid(values: Array) -> bool:
    """Whether distinct sorted float32 values are multiples of their smallest distance, and most multiples occur.

    A floating-point format is a grid too, but only few of its places are occupied.
    """
    if len(values) < 3:
        return False
    span, step = float(np.ptp(values)), float(np.diff(values.astype(float)).min())
    # the smallest distance is rounded; the span over its number of steps is more precise
    places = values / (span / max(round(span / step), 1))
    return bool(np.abs(places).max() < 4 * len(values) and np.abs(places - np.round(places)).max() < 1e-3)


def _grid(values: Array) -> str:
    """Name the grid on which float32 values lie, if it is a simple one."""
    if on_a_grid(values):
        return f", all of them multiples of {float(np.diff(values.astype(float)).min()):.4g}"
    if len(values) < 3:
        return ""
    if not np.any(values.view(np.uint32) & 0xFFFF):
        return ", all of them bfloat16 numbers"
    return ", all of them float16 numbers" if np.all(values.astype(np.float16) == values) else ""
