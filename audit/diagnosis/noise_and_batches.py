"""Whether the noise depends on which records are sampled, as where one stream of random numbers draws both."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.noise import Array, Noise, project_out, projected_variances, solve_projected_variances
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

SHARE = 0.05
"""Share of the risk of all questions that this one gets where records are sampled."""
FEWEST = 40
"""Fewest trials of a side."""
MOST_COORDINATES = 4096
"""Most coordinates beside the gradients that are examined, evenly spread."""
KNOWN = 0.01
"""Largest share of the correction for different scales that may be unknown."""
CLEARLY = 4.0
"""Standard errors by which the record must move the mean for its direction to be known."""
CODE = "noise_and_batches"
ASSUMES = "independent trials; means of many are normal"


def noise_follows_batch(without: Noise, with_record: Noise, signal: Signal, *, risk: float) -> Diagnosis:
    """Whether noise beside the gradients is correlated with what varies in their span, where the batch shows.

    Noise that is independent of the batch has no covariance across, whatever the batch and its divisor are. One half of
    the trials chooses two directions, the first singular ones; the other half is judged by the mean product of the
    components along them, less what independent coordinates of different scales contribute. That is
    ``sum_i l_i m_i d_i`` with ``l`` and ``m`` the directions and ``d`` the variances, estimated from squares beside the
    gradients; if these do not determine it, the answer is no.
    """
    sides, span = (without, with_record), signal.parts
    centred = [side.outputs - side.outputs.mean(axis=0, dtype=np.float64) for side in sides]
    noise = np.concatenate([project_out(rows, span) for rows in centred])
    sums = np.concatenate([rows @ signal.basis.T for rows in centred])
    chosen = np.linspace(0, noise.shape[1] - 1, min(MOST_COORDINATES, noise.shape[1])).astype(int)
    lengths = np.maximum(np.sqrt(np.sum(sums[::2] ** 2, axis=0)), 1e-300)
    covariance = (sums[::2] / lengths).T @ noise[::2][:, chosen]
    left, _, right = np.linalg.svd(covariance, full_matrices=False)
    noise_direction = np.zeros(noise.shape[1])
    noise_direction[chosen] = right[0]
    noise_direction = project_out(noise_direction, span)
    along_sum, along_noise = sums[1::2] @ (left[:, 0] / lengths), noise[1::2] @ noise_direction
    products = ((left[:, 0] / lengths) @ signal.basis) * noise_direction
    weights = solve_projected_variances(products, span, start=0.0)
    determined = np.linalg.norm(projected_variances(weights, span) - products) <= KNOWN * np.linalg.norm(products)
    product = (along_sum * along_noise - noise[1::2] ** 2 @ weights) * determined
    error = float(product.std(ddof=1)) / math.sqrt(len(product))
    p = float(student.sf(product.mean() / error, len(product) - 1)) if error > 0 else 1.0
    correlation = float(product.mean()) / max(float(along_sum.std() * along_noise.std()), 1e-300)
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


def noise_follows_record(first: Array, second: Array, *, risk: float) -> Diagnosis | None:
    """Whether the record correlates what varies along its movement with other noise, from outputs alone.

    A record that is taken independently of all else moves the mean by ``q g`` and the covariance by ``q (1 - q) g g'``,
    so that the change of the covariance is zero between any direction d and one on which the mean stays. Each half of
    the trials chooses both directions for the other half, the second as ``w = v - d (m v)/(m d)``, with m the movement
    of the mean there: its error is part of the standard error. None where the mean moves too little to give a
    direction.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    if min(map(len, sides)) < FEWEST:
        return None
    halves = [[side[start::2] for side in sides] for start in (0, 1)]
    found = [_judge_half(*order) for order in (halves, halves[::-1])]
    known = [result for result in found if result is not None]
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


def _judge_half(chosen_by: list[Array], judged_by: list[Array]) -> tuple[float, float] | None:
    """P-value and correlation of two directions that one half chooses, judged by the other half."""
    chosen_rows = [side - side.mean(axis=0) for side in chosen_by]
    spread = sum(side.var(axis=0) for side in chosen_rows)
    scale = np.where(spread > 0, spread, np.inf)
    along = (chosen_by[1].mean(axis=0) - chosen_by[0].mean(axis=0)) / scale
    covariance_change = (chosen_rows[1].T @ (chosen_rows[1] @ along)) / len(chosen_rows[1]) - (
        chosen_rows[0].T @ (chosen_rows[0] @ along)
    ) / len(chosen_rows[0])
    centred = [side - side.mean(axis=0) for side in judged_by]
    moved = judged_by[1].mean(axis=0) - judged_by[0].mean(axis=0)
    movement = float(moved @ along)
    if not movement > CLEARLY * _error([side @ along for side in centred]):
        return None
    elsewhere = covariance_change / scale
    elsewhere -= along * (float(moved @ elsewhere) / movement)
    components, other_components = ([side @ way for side in centred] for way in (along, elsewhere))
    slope = (float(np.var(components[1])) - float(np.var(components[0]))) / movement
    rows = [side * other - slope * other for side, other in zip(components, other_components, strict=True)]
    covariance, error = float(rows[1].mean() - rows[0].mean()), _error(rows)
    p = float(student.sf(covariance / error, min(map(len, rows)) - 1)) if error > 0 else 1.0
    return p, covariance / max(float(components[1].std() * other_components[1].std()), 1e-300)


def _error(rows: list[Array]) -> float:
    """Standard error of the difference of two means."""
    return math.sqrt(sum(float(side.var(ddof=1)) / len(side) for side in rows))
