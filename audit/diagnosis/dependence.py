"""Whether noise is used more than once: by all coordinates, or by some of them."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import fisher

LAG_ENTRIES = 2**21
"""Coordinates, over all trials, whose distances are searched for repeated noise."""
AT_ONCE = 2**15
"""Entries of the rows that are transformed together."""
WHOLLY = 0.999
"""Correlation of all coordinates above which nothing is left that differs between them."""
CAUSES = ("key_again", "correlated", "sum_elsewhere")


def shared(standard: Array, *, released: Array | None, risk: float) -> Diagnosis:
    """Both questions below, half of the risk each; numbers are read from what was ``released``, centred.

    None where batches move all of that: mixtures of coordinates tell that noise is shared, and not where.
    """
    p = min(1.0, 2 * min(common(standard), _farthest(standard)[1]))
    measured, causes, estimate = "no common part, and no distance at which noise repeats", CAUSES, 0.0
    if p < risk:
        measured = "noise that no gradient moves is correlated"
    if p < risk and released is not None:
        deviations = released.std(axis=0)
        rows = released[: max(2, LAG_ENTRIES // released.shape[1])] / np.where(deviations > 0, deviations, np.inf)
        at, p_copied = _farthest(rows)
        count = np.count_nonzero(deviations)
        estimate = (float(np.mean(rows.sum(axis=1) ** 2)) - count) / (count * (count - 1))
        if estimate > WHOLLY:
            measured, causes = f"{estimate:.1%} of the noise is common to all coordinates", ("one_draw",)
        elif p_copied < risk:
            pairs = _lagged(1.0 * (deviations > 0)[None])[at]
            measured = f"coordinates {at + 1:,} apart have correlation {_lagged(rows)[at] / (len(rows) * pairs):.3g} "
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


def common(standard: Array) -> float:
    """Of no shared noise, by the mean of a trial's coordinates against their spread, an F test.

    With independent noise both mean squares are equal, and their ratio is F(trials, trials (width - 1)).
    """
    trials, width = standard.shape
    means = standard.mean(axis=1)
    within = float(np.sum((standard - means[:, None]) ** 2)) / (trials * (width - 1))
    between = width * float(np.mean(means**2))
    ratio = between / within if within > 1e-12 else math.inf if between > 1e-12 else 1.0
    return float(fisher.sf(ratio, trials, trials * (width - 1)))


def _farthest(standard: Array) -> tuple[int, float]:
    """The distance less one at which coordinates repeat noise most, as where parameters share a key, and its p-value.

    For every distance h the products ``x_j x_(j+h)`` have independent random signs, whatever their sizes, when the
    noise is symmetric and independent: ``P(|sum| > z root(sum of squares)) <= 2 exp(-z^2 / 2)``. [hoeffding1963] The
    largest z over all distances pays for their number (Bonferroni).
    """
    width = standard.shape[1]
    rows = standard[: max(2, LAG_ENTRIES // width)]
    sums, squares = _lagged(rows), _lagged(rows**2)
    # round-off of the transforms must not pass for a product; a distance without any says nothing
    known = squares > 1e-9 * squares.max(initial=0.0)
    z = np.where(known, np.abs(sums) / np.sqrt(np.where(known, squares, 1.0)), 0.0)
    at = int(np.argmax(z))
    return at, min(1.0, 2 * (width - 1) * math.exp(-(float(z[at]) ** 2) / 2))


def _lagged(rows: Array) -> Array:
    """Sums of products of coordinates at every distance 1, 2, ... over all rows, by Fourier transforms."""
    width = rows.shape[1]
    size = 1 << (2 * width - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    some = max(1, AT_ONCE // size)
    for start in range(0, len(rows), some):
        powers = np.abs(np.fft.rfft(rows[start : start + some], size)) ** 2
        # row after row, so that how many are transformed at once changes no bit
        power = np.add.reduce(np.concatenate([power[None], powers]), axis=0)
    return np.fft.irfft(power, size)[1:width]
