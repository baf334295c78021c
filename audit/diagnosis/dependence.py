"""Whether coordinates share noise: all of them, or those at a certain distance."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import fisher

LAG_ENTRIES = 2**21
"""Coordinates, over all trials, that are searched for repeated noise."""
AT_ONCE = 2**15
"""Entries of the rows that are transformed at once."""
WHOLLY = 0.999
"""Correlation of all coordinates above which nothing in them differs."""
CAUSES = ("key_again", "correlated", "sum_elsewhere")


def shared_noise(standard: Array, *, released: Array | None, risk: float) -> Diagnosis:
    """Whether all coordinates have a common part, or those at some distance repeat; half of the risk each.

    ``released`` is the centred noise in the release's own coordinates, from which the numbers in the sentence are
    computed; None where batches move all of it: mixtures of coordinates show that noise is shared, but not where.
    """
    p = min(1.0, 2 * min(common_part_p(standard), _most_correlated_lag(standard)[1]))
    measured, causes, estimate = "no common part, and no distance at which noise repeats", CAUSES, 0.0
    if p < risk:
        measured = "noise that no gradient moves is correlated"
    if p < risk and released is not None:
        deviations = released.std(axis=0)
        rows = released[: max(2, LAG_ENTRIES // released.shape[1])] / np.where(deviations > 0, deviations, np.inf)
        lag, p_copied = _most_correlated_lag(rows)
        noisy = np.count_nonzero(deviations)
        estimate = (float(np.mean(rows.sum(axis=1) ** 2)) - noisy) / (noisy * (noisy - 1))
        if estimate > WHOLLY:
            measured, causes = f"{estimate:.1%} of the noise is common to all coordinates", ("one_draw",)
        elif p_copied < risk:
            pairs = _lag_products(1.0 * (deviations > 0)[None])[lag]
            measured = (
                f"coordinates {lag + 1:,} apart have correlation {_lag_products(rows)[lag] / (len(rows) * pairs):.3g} "
            )
            measured += f"on average, and all pairs of them {estimate:.3g}"
    return answer(
        "shared",
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes="normal noise",
        estimate=estimate,
    )


def common_part_p(standard: Array) -> float:
    """P-value of 'trials have no common part', by an F test of their means against the spread of their coordinates.

    For independent noise both mean squares are equal, and their ratio is F(trials, trials (width - 1)).
    """
    trials, width = standard.shape
    means = standard.mean(axis=1)
    within = float(np.sum((standard - means[:, None]) ** 2)) / (trials * (width - 1))
    between = width * float(np.mean(means**2))
    ratio = between / within if within > 1e-12 else math.inf if between > 1e-12 else 1.0
    return float(fisher.sf(ratio, trials, trials * (width - 1)))


def _most_correlated_lag(standard: Array) -> tuple[int, float]:
    """Distance (less one) at which coordinates are most correlated, as where parameters share a key, and its p-value.

    For every distance h the products ``x_j x_(j+h)`` have independent random signs, whatever their sizes, when the
    noise is symmetric and independent: ``P(|sum| > z root(sum of squares)) <= 2 exp(-z^2 / 2)``. [hoeffding1963] The
    largest z over all distances pays for their number (Bonferroni).
    """
    width = standard.shape[1]
    rows = standard[: max(2, LAG_ENTRIES // width)]
    sums, squares = _lag_products(rows), _lag_products(rows**2)
    # where squares are as small as the round-off of the transforms, z would be noise
    known = squares > 1e-9 * squares.max(initial=0.0)
    z = np.where(known, np.abs(sums) / np.sqrt(np.where(known, squares, 1.0)), 0.0)
    lag = int(np.argmax(z))
    return lag, min(1.0, 2 * (width - 1) * math.exp(-(float(z[lag]) ** 2) / 2))


def _lag_products(rows: Array) -> Array:
    """Sums over all rows of products of coordinates at every distance 1, 2, ..., by Fourier transforms."""
    width = rows.shape[1]
    size = 1 << (2 * width - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    rows_at_once = max(1, AT_ONCE // size)
    for start in range(0, len(rows), rows_at_once):
        powers = np.abs(np.fft.rfft(rows[start : start + rows_at_once], size)) ** 2
        # added row by row, so that the result does not depend on how many are transformed at once
        power = np.add.reduce(np.concatenate([power[None], powers]), axis=0)
    return np.fft.irfft(power, size)[1:width]
