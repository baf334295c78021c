"""Whether the noise depends on which records are sampled, as where one stream of random numbers draws both."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.noise import Array, Noise, outside, seen_outside, squared_outside
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

SHARE = 0.05
"""Of the risk of all questions, for this one, where records are sampled."""
FEWEST = 40
"""Trials of a side from which on it is asked."""
MOST_COORDINATES = 4096
"""Evenly spread ones beside the gradients that are looked at."""
KNOWN = 0.01
"""Share of what scales make of a product that may be unknown."""
CLEARLY = 4.0
"""Standard errors by which the record must move the mean for its direction to be known."""
CODE = "noise_and_batches"
ASSUMES = "independent trials; means of many are normal"


def noise_beside(without: Noise, with_record: Noise, signal: Signal, *, risk: float) -> Diagnosis:
    """Whether noise beside the gradients goes together with what varies in their span, where the batch shows.

    Noise that is independent of the batch has no covariance across, whatever the batch and its divisor are. One half of
    the trials chooses two directions, the first singular ones; the other half is judged by the mean of their product,
    less what independent coordinates of different scales make of it. That is ``sum_i l_i m_i d_i`` with ``l`` and ``m``
    the directions and ``d`` the variances, as squares beside the gradients show them; where they do not show it,
    nothing is said.
    """
    sides, spanned = (without, with_record), signal.parts
    centred = [side.outputs - side.outputs.mean(axis=0, dtype=np.float64) for side in sides]
    noise = np.concatenate([outside(rows, spanned) for rows in centred])
    sums = np.concatenate([rows @ signal.basis.T for rows in centred])
    chosen = np.linspace(0, noise.shape[1] - 1, min(MOST_COORDINATES, noise.shape[1])).astype(int)
    lengths = np.maximum(np.sqrt(np.sum(sums[::2] ** 2, axis=0)), 1e-300)
    across = (sums[::2] / lengths).T @ noise[::2][:, chosen]
    left, _, right = np.linalg.svd(across, full_matrices=False)
    way = np.zeros(noise.shape[1])
    way[chosen] = right[0]
    way = outside(way, spanned)
    own, other = sums[1::2] @ (left[:, 0] / lengths), noise[1::2] @ way
    mixed = ((left[:, 0] / lengths) @ signal.basis) * way
    weights = seen_outside(mixed, spanned, start=0.0)
    known = np.linalg.norm(squared_outside(weights, spanned) - mixed) <= KNOWN * np.linalg.norm(mixed)
    product = (own * other - noise[1::2] ** 2 @ weights) * known
    error = float(product.std(ddof=1)) / math.sqrt(len(product))
    p = float(student.sf(product.mean() / error, len(product) - 1)) if error > 0 else 1.0
    correlation = float(product.mean()) / max(float(own.std() * other.std()), 1e-300)
    wrong = p < risk
    measured = "no sign that it does"
    if wrong:
        measured = f"the sum of the batch and the noise beside the gradients have correlation {correlation:.2g}"
    return answer(
        CODE,
        measured=measured,
        causes=("noise_of_batch", "correlated", "sum_elsewhere"),
        p_value=p,
        risk=risk,
        assumes=ASSUMES,
        estimate=correlation,
    )


def noise_elsewhere(first: Array, second: Array, *, risk: float) -> Diagnosis | None:
    """The same of outputs alone: whether the record makes what varies along it go together with what varies elsewhere.

    A record that is taken independently of all else moves the mean by ``q g`` and the covariance by ``q (1 - q) g g'``,
    so that the change of the covariance is zero between any direction d and one on which the mean stays. Each half of
    the trials chooses both for the other, where the second is ``w = v - d (m v)/(m d)``, with m how far the mean
    moves there: its own error is part of the standard error. None where the mean moves too little to say where.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    if min(map(len, sides)) < FEWEST:
        return None
    halves = [[side[start::2] for side in sides] for start in (0, 1)]
    found = [_judged(*order) for order in (halves, halves[::-1])]
    known = [one for one in found if one is not None]
    if not known:
        return None
    p, correlation = min(known)
    p = min(1.0, len(found) * p)
    wrong = p < risk
    measured = "no sign that it does"
    if wrong:
        measured = (
            f"with the record, the release along the direction in which the record moves it has correlation "
            f"{correlation:.2g} with the noise in another direction; a record that is sampled by itself gives it none"
        )
    return answer(
        CODE,
        measured=measured,
        causes=("noise_of_batch", "moves_batches", "batch_divisor", OTHERS),
        p_value=p,
        risk=risk,
        assumes=ASSUMES,
        estimate=correlation,
    )


def _judged(chosen_by: list[Array], judged_by: list[Array]) -> tuple[float, float] | None:
    """The p-value of two directions that one half chooses, and their correlation, by the other half."""
    fit = [side - side.mean(axis=0) for side in chosen_by]
    spread = sum(side.var(axis=0) for side in fit)
    scale = np.where(spread > 0, spread, np.inf)
    along = (chosen_by[1].mean(axis=0) - chosen_by[0].mean(axis=0)) / scale
    changed = (fit[1].T @ (fit[1] @ along)) / len(fit[1]) - (fit[0].T @ (fit[0] @ along)) / len(fit[0])
    centred = [side - side.mean(axis=0) for side in judged_by]
    moved = judged_by[1].mean(axis=0) - judged_by[0].mean(axis=0)
    ahead = float(moved @ along)
    if not ahead > CLEARLY * _error([side @ along for side in centred]):
        return None
    elsewhere = changed / scale
    elsewhere -= along * (float(moved @ elsewhere) / ahead)
    own, other = ([side @ way for side in centred] for way in (along, elsewhere))
    slope = (float(np.var(own[1])) - float(np.var(own[0]))) / ahead
    rows = [one * two - slope * two for one, two in zip(own, other, strict=True)]
    together, error = float(rows[1].mean() - rows[0].mean()), _error(rows)
    p = float(student.sf(together / error, min(map(len, rows)) - 1)) if error > 0 else 1.0
    return p, together / max(float(own[1].std() * other[1].std()), 1e-300)


def _error(rows: list[Array]) -> float:
    """Standard error of the difference of two means."""
    return math.sqrt(sum(float(own.var(ddof=1)) / len(own) for own in rows))
