"""Whether noise is used more than once: by all coordinates, or by some of them."""

from __future__ import annotations

import dataclasses
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


MOSTLY = 0.5
"""Share of the noise above which one number for all coordinates is said before copies at a distance."""
WHOLLY = 0.999
"""Share of the noise above which nothing is left that differs between coordinates."""


CAUSES = ("key_again", "correlated", "sum_elsewhere")


def shared(standard: Array, *, risk: float) -> Diagnosis:
    """Both questions below, half of the risk each; the answer that tells more."""
    common, copied = shared_noise(standard, risk=risk / 2), copied_noise(standard, risk=risk / 2)
    told = copied if copied.wrong and not (common.wrong and (common.estimate or 0.0) > MOSTLY) else common
    return dataclasses.replace(told, p_value=min(1.0, 2 * told.p_value), risk=risk)


def shared_noise(standard: Array, *, risk: float) -> Diagnosis:
    """Whether coordinates share noise: the mean of a trial's coordinates against their spread, by an F test.

    With independent noise both mean squares are equal, and their ratio is F(trials, trials (width - 1)).
    """
    trials, width = standard.shape
    means = standard.mean(axis=1)
    within = float(np.sum((standard - means[:, None]) ** 2)) / (trials * (width - 1))
    between = width * float(np.mean(means**2))
    ratio = between / within if within > 1e-12 else math.inf if between > 1e-12 else 1.0
    p = float(fisher.sf(ratio, trials, trials * (width - 1)))
    share = max(0.0, (between - within) / max(between + (width - 1) * within, 1e-300))
    wrong = p < risk
    return answer(
        "shared",
        measured=f"{share:.1%} of the noise is common to all coordinates" if wrong else "no common part",
        causes=("one_draw",) if share > WHOLLY else CAUSES,
        p_value=p,
        risk=risk,
        assumes="normal noise",
        estimate=share,
    )


def copied_noise(standard: Array, *, risk: float) -> Diagnosis:
    """Whether coordinates a fixed distance apart repeat noise, as parameters or steps do that share a key.

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
    p = min(1.0, 2 * (width - 1) * math.exp(-(float(z[at]) ** 2) / 2))
    correlation = float(sums[at]) / max(float(np.sum(rows**2)) * (width - 1 - at) / width, 1e-300)
    wrong = p < risk
    return answer(
        "shared",
        measured=f"coordinates {at + 1:,} apart have correlation {correlation:.3g}"
        if wrong
        else f"no distance between coordinates, of {width - 1:,}, at which noise repeats",
        causes=CAUSES,
        p_value=p,
        risk=risk,
        assumes="symmetric noise",
        estimate=correlation,
    )


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
