"""Whether noise that the record moves, seen on the same seeds, ends where normal noise would not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.cut_noise import ROUNDED
from audit.diagnosis.noise import Array
from audit.diagnosis.same_seeds import ERRORS, Movements
from audit.diagnosis.scale import SAME_LENGTH
from audit.diagnosis.sensitivity import CLOSE
from audit.diagnosis.stated_noise import KnownStep
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

LIGHT = 0.5
"""Excess kurtosis below that expected from which on ends are light; a sum of twelve uniform draws has -0.1."""
BEYOND = 10.0
"""Fewest numbers that normal noise must have beyond the largest for the noise to end there."""
CORRELATED = 5.0
"""Standard errors of a correlation from which on coordinates are not independent."""
MOST_COORDINATES = 1024
"""Most coordinates that are examined, evenly spread."""
HALVINGS = 30
"""Bisections of each search."""
ASSUMES = (
    "the same seed gives the same noise and the same batch of other records on both datasets; nothing but noise covers "
    "the record as the claim says"
)


def noise_ends_early(
    movements: Movements, sides: Sequence[Array], *, allowed: float, step: KnownStep | None = None, risk: float
) -> Diagnosis | None:
    """Whether the noise has lighter ends than normal noise that the claim needs, on coordinates that the record moves.

    Two questions, half of the risk each: how far out the largest number is, and how heavy the ends are.

    A single movement m on all seeds says that the release is a sum whose noise nothing bends or cuts afterwards.
    Batches or a public start may add a part whose law ends, with share ``r_j`` of the variance ``s_j^2``; normal noise
    has the rest. For this to cover the record, ``sum_j w_j / (1 - r_j) <= 1 + x`` with ``w_j = t_j / T``,
    ``t_j = m_j^2 / s_j^2``, ``T = sum_j t_j`` and ``x = allowed^2 / T - 1``. No law has an excess kurtosis below -2:
    then the mean one, weighted by ``w``, is at least ``-2 sum_j w_j r_j^2``, which is ``-x / 2`` or more, and
    ``-2 (x / (1 + x))^2`` above ``x = 1``. Ends that are heavier, as of Laplace noise, are not accused.
    """
    if movements.once or len(movements.different) > 1 or not math.isfinite(allowed):
        return None
    moved, outputs = movements.different[0], [np.asarray(side, np.float64).reshape(len(side), -1) for side in sides]
    rows = outputs[0]
    deviations = rows.std(axis=0, ddof=1)
    if np.any((deviations == 0) & (moved != 0)):
        return None
    scale = np.where(deviations > 0, deviations, 1.0)
    # correlated noise may cover more along the movement than its coordinates say
    inverse_distance = float(np.std(rows @ moved, ddof=1)) / float(moved @ moved)
    distance = min(float(np.sum((moved / scale) ** 2)), inverse_distance**-2)
    slack = allowed**2 / distance - 1
    if slack < -ERRORS * math.sqrt(2 / len(rows)):
        return None
    weights = (moved / scale) ** 2
    weights /= weights.sum()
    deviation = _deviation(moved, step)
    farthest = _farthest(outputs, weights, slack=max(slack, 0.0), deviation=deviation, risk=risk / 2)
    if farthest is not None:
        return farthest
    expected = -2 * (slack / (1 + slack)) ** 2 if slack > 1 else -max(slack, 0.0) / 2
    values = (rows - rows.mean(axis=0)) / scale
    fourth_cumulants = (values**4 - 6 * values**2 + 3) @ weights
    error = max(float(fourth_cumulants.std(ddof=1)), 1e-300) / math.sqrt(len(fourth_cumulants))
    # deviations of n trials make the mean of fourth powers 3 (n - 1) / (n + 1)
    kurtosis = float(fourth_cumulants.mean()) + 6 / (len(rows) + 1)
    p = float(student.cdf((kurtosis - expected) / error, len(fourth_cumulants) - 1))
    if p >= risk / 2 or kurtosis > expected - LIGHT:
        return None
    return answer(
        "ends",
        wrong=True,
        measured=f"the noise ends earlier than normal noise does (excess kurtosis {kurtosis:.2g}; normal noise has 0, "
        "uniform noise -1.2), so that outputs near its ends give the record away. With the same seeds the record moves "
        "the release by one constant, so nothing cuts the noise afterwards. Draw normal noise",
        causes=(),
        p_value=p,
        risk=risk,
        assumes=ASSUMES,
        estimate=kurtosis,
    )


def _deviation(moved: Array, step: KnownStep | None) -> float | None:
    """Stated deviation of the noise; None where the record moves the release otherwise than its gradient says."""
    if step is None or step.stated is None or step.signal.assumed:
        return None
    divisor = step.stated.divisor or 1.0
    as_stated = abs(float(np.linalg.norm(moved)) * divisor - step.signal.length) <= CLOSE * step.signal.length
    return step.stated.deviation / divisor if as_stated else None


def _farthest(
    sides: Sequence[Array], weights: Array, *, slack: float, deviation: float | None, risk: float
) -> Diagnosis | None:
    """Answer that no number is as far out as normal noise that covers the record would put some; or None.

    What is added to normal noise makes it no likelier to stay within a distance (Anderson). So with ``c_j`` the largest
    of coordinate j over its deviation, ``P(none is farther) <= F(c_j^2 v_j)^n``, where F is the chi-square law of one
    degree and ``1 / v_j`` the normal share of the variance; ``sum_j w_j v_j <= 1 + slack`` for the record to be
    covered. The largest product over all such v is taken: logarithms of d uniform numbers add up to a gamma law. Where
    the ``deviation`` of the noise is stated, it gives the share. Correlated coordinates are not judged, nor is a
    release that seems cut afterwards, whose ends the record does not move.
    """
    lengths = np.concatenate([np.linalg.norm(side, axis=1) for side in sides])
    if len(weights) > 1 and np.count_nonzero(lengths > (1 - SAME_LENGTH) * lengths.max()) > 1:
        return None
    centred = np.concatenate([side - side.mean(axis=0) for side in sides])
    count, deviations = len(centred), centred.std(axis=0)
    cut, moved = _cut_alike(sides, np.ptp(centred, axis=0)), weights > 0
    # where one coordinate is cut, others may be that have not reached their bound
    kept = np.flatnonzero((deviations > 0) & np.where(moved, not np.any(cut & moved), not np.any(cut & ~moved)))
    least = math.inf if deviation is None else (1 - ERRORS / math.sqrt(2 * count)) * deviation
    usable = bool(np.any(deviations[kept] > least))
    kept = kept[deviations[kept] > least if usable else weights[kept] > 0]
    if not len(kept):
        return None
    kept = kept[np.linspace(0, len(kept) - 1, min(MOST_COORDINATES, len(kept))).astype(int)]
    standard = centred[:, kept] / deviations[kept]
    squares, weights = np.max(standard**2, axis=0), weights[kept]
    if usable and deviation is not None:
        shares = np.maximum(1.0, (deviations[kept] / deviation) ** 2)
    else:
        shares = _largest_product(squares, weights, 1 + slack + ERRORS * math.sqrt(2 / count))
    statistic = -count * float(np.sum(np.log1p(-_farther(squares, shares))))
    p = float(special.gammaincc(len(kept), statistic))
    due_beyond = count * float(np.sum(_farther(squares.max(), shares)))
    if p >= risk or due_beyond < BEYOND or _correlated(standard):
        return None
    return answer(
        "ends",
        wrong=True,
        measured=f"the noise ends earlier than normal noise does: the farthest of {standard.size:,} numbers is "
        f"{math.sqrt(squares.max()):.3g} deviations out, and of normal noise some {due_beyond:.2g} would be farther. "
        "Outputs near its ends give the record away. With the same seeds the record moves the release by one constant, "
        "so that nothing seems to cut it afterwards. Draw normal noise",
        p_value=p,
        risk=risk,
        assumes=ASSUMES,
        estimate=math.sqrt(squares.max()),
    )


def _farther(squares: Array, shares: Array) -> Array:
    """Chance that a normal number with these shares of the variance is farther out."""
    return special.erfc(np.sqrt(squares * shares / 2))


def _correlated(standard: Array) -> bool:
    """Whether any two coordinates are correlated by more than chance explains."""
    count, width = standard.shape
    correlations = np.abs(standard.T @ standard / count - np.eye(width))
    return bool(correlations.max() > CORRELATED / math.sqrt(count))


def _cut_alike(sides: Sequence[Array], ranges: Array) -> Array:
    """Mask of the coordinates that end at one number on both sides, as continuous noise never does."""
    apart = [np.abs(end(sides[0], axis=0) - end(sides[1], axis=0)) for end in (np.min, np.max)]
    return (np.minimum(*apart) <= ROUNDED * ranges) & (ranges > 0)


def _largest_product(squares: Array, weights: Array, total: float) -> Array:
    """Find the ``v_j >= 1`` with ``sum_j w_j v_j = total`` for which ``sum_j log F(c_j^2 v_j)`` is largest.

    The logarithm is concave in v, so that its slope over the weight is the same wherever v is above 1.
    """

    def shares(slope: float) -> Array:
        low, high = np.ones(len(squares)), np.full(len(squares), 1 + total / weights.min())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            steep = _log_slope(squares, middle) > slope * weights
            low, high = np.where(steep, middle, low), np.where(steep, high, middle)
        return high

    low, high = 0.0, float(np.max(_log_slope(squares, np.ones(len(squares))) / weights))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if weights @ shares(middle) > total else (low, middle)
    # the lower slope gives at least the total
    return shares(low)


def _log_slope(squares: Array, shares: Array) -> Array:
    """Derivative of ``log F(c^2 v)`` in v."""
    reach = np.sqrt(squares * shares)
    density = np.exp(-(reach**2) / 2) / (math.sqrt(2 * math.pi) * reach)
    return squares * density / special.erf(reach / math.sqrt(2))
