"""Whether noise that the record moves on the same seeds ends, where normal noise would not."""

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
from audit.diagnosis.told_noise import Told
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

LIGHT = 0.5
"""Excess kurtosis by which ends are called lighter; a sum of twelve uniform draws has -0.1."""
BEYOND = 10.0
"""Numbers that are due beyond the farthest, at least, for the noise to end there."""
CORRELATED = 5.0
"""Standard errors of a correlation from which on coordinates are no independent draws."""
MOST_COORDINATES = 1024
"""Evenly spread ones that are looked at."""
HALVINGS = 30
ASSUMES = (
    "the same seed gives the same noise and the same batch of other records on both datasets; nothing but noise covers "
    "the record as the claim says"
)


def ends(
    found: Movements, sides: Sequence[Array], *, allowed: float, told: Told | None = None, risk: float
) -> Diagnosis | None:
    """Whether normal noise that the claim needs has lighter ends than that, on the coordinates that the record moves.

    Two questions, half of the risk each: how far the farthest of all numbers is, and how heavy the ends are.

    One movement m on all seeds says that the release is a sum, whose noise nothing bends or cuts afterwards. Batches or
    a public start may add what ends, with share ``r_j`` of the variance ``s_j^2``; normal noise has the rest. So that
    this covers the record, ``sum_j w_j / (1 - r_j) <= 1 + x`` with ``w_j = t_j / T``, ``t_j = m_j^2 / s_j^2``,
    ``T = sum_j t_j`` and ``x = allowed^2 / T - 1``. No law has an excess kurtosis below -2: then the mean one, weighed
    by ``w``, is at least ``-2 sum_j w_j r_j^2``, which is ``-x / 2`` or more, and ``-2 (x / (1 + x))^2`` above
    ``x = 1``.
    Ends that are heavier, as of Laplace noise, are not accused.
    """
    if found.once or len(found.different) > 1 or not math.isfinite(allowed):
        return None
    moved, outputs = found.different[0], [np.asarray(side, np.float64).reshape(len(side), -1) for side in sides]
    rows = outputs[0]
    deviations = rows.std(axis=0, ddof=1)
    if np.any((deviations == 0) & (moved != 0)):
        return None
    scale = np.where(deviations > 0, deviations, 1.0)
    # correlated noise may cover more along the movement than its coordinates say
    along = float(np.std(rows @ moved, ddof=1)) / float(moved @ moved)
    apart = min(float(np.sum((moved / scale) ** 2)), along**-2)
    spare = allowed**2 / apart - 1
    if spare < -ERRORS * math.sqrt(2 / len(rows)):
        return None
    weights = (moved / scale) ** 2
    weights /= weights.sum()
    farthest = _farthest(outputs, weights, spare=max(spare, 0.0), deviation=_deviation(moved, told), risk=risk / 2)
    if farthest is not None:
        return farthest
    due = -2 * (spare / (1 + spare)) ** 2 if spare > 1 else -max(spare, 0.0) / 2
    values = (rows - rows.mean(axis=0)) / scale
    each = (values**4 - 6 * values**2 + 3) @ weights
    error = max(float(each.std(ddof=1)), 1e-300) / math.sqrt(len(each))
    # deviations of n trials make the mean of fourth powers 3 (n - 1) / (n + 1)
    kurtosis = float(each.mean()) + 6 / (len(rows) + 1)
    p = float(student.cdf((kurtosis - due) / error, len(each) - 1))
    if p >= risk / 2 or kurtosis > due - LIGHT:
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


def _deviation(moved: Array, told: Told | None) -> float | None:
    """Of the noise as it is told; None where the record does not move the release as far as its gradient says."""
    if told is None or told.stated is None or told.signal.assumed:
        return None
    divisor = told.stated.divisor or 1.0
    as_told = abs(float(np.linalg.norm(moved)) * divisor - told.signal.length) <= CLOSE * told.signal.length
    return told.stated.deviation / divisor if as_told else None


def _farthest(
    sides: Sequence[Array], weights: Array, *, spare: float, deviation: float | None, risk: float
) -> Diagnosis | None:
    """Whether no number is as far out as normal noise that covers the record puts some.

    What is added to normal noise makes it no likelier to stay within a distance (Anderson). So with ``c_j`` the
    farthest of coordinate j over its deviation, ``P(none is farther) <= F(c_j^2 v_j)^n``, where F is the chi-square law
    of one degree and ``1 / v_j`` the normal share of the variance; ``sum_j w_j v_j <= 1 + spare`` for the record to be
    covered. The largest product of all is taken: logarithms of d uniform numbers add up to a gamma law. Noise of which
    the ``deviation`` is told has that share. Of coordinates that are correlated nothing is said. A release that is cut
    afterwards has ends that the record does not move.
    """
    lengths = np.concatenate([np.linalg.norm(own, axis=1) for own in sides])
    if len(weights) > 1 and np.count_nonzero(lengths > (1 - SAME_LENGTH) * lengths.max()) > 1:
        return None
    centred = np.concatenate([own - own.mean(axis=0) for own in sides])
    count, own = len(centred), centred.std(axis=0)
    cut, moved = _cut_alike(sides, np.ptp(centred, axis=0)), weights > 0
    # one that is cut speaks for those of which no number has come to the bound
    kept = np.flatnonzero((own > 0) & np.where(moved, not np.any(cut & moved), not np.any(cut & ~moved)))
    least = math.inf if deviation is None else (1 - ERRORS / math.sqrt(2 * count)) * deviation
    told = bool(np.any(own[kept] > least))
    kept = kept[own[kept] > least if told else weights[kept] > 0]
    if not len(kept):
        return None
    kept = kept[np.linspace(0, len(kept) - 1, min(MOST_COORDINATES, len(kept))).astype(int)]
    standard = centred[:, kept] / own[kept]
    squares, weights = np.max(standard**2, axis=0), weights[kept]
    if told and deviation is not None:
        shares = np.maximum(1.0, (own[kept] / deviation) ** 2)
    else:
        shares = _largest_product(squares, weights, 1 + spare + ERRORS * math.sqrt(2 / count))
    beyond = -count * float(np.sum(np.log1p(-_farther(squares, shares))))
    p, due = float(special.gammaincc(len(kept), beyond)), count * float(np.sum(_farther(squares.max(), shares)))
    if p >= risk or due < BEYOND or _correlated(standard):
        return None
    return answer(
        "ends",
        wrong=True,
        measured=f"the noise ends earlier than normal noise does: the farthest of {standard.size:,} numbers is "
        f"{math.sqrt(squares.max()):.3g} deviations out, and of normal noise some {due:.2g} would be farther. Outputs "
        "near its ends give the record away. With the same seeds the record moves the release by one constant, so that "
        "nothing seems to cut it afterwards. Draw normal noise",
        p_value=p,
        risk=risk,
        assumes=ASSUMES,
        estimate=math.sqrt(squares.max()),
    )


def _farther(squares: Array, shares: Array) -> Array:
    """Chance of a normal number, with these shares of the variance, to be farther out."""
    return special.erfc(np.sqrt(squares * shares / 2))


def _correlated(standard: Array) -> bool:
    """Whether two coordinates are, by more than chance explains."""
    count, width = standard.shape
    together = np.abs(standard.T @ standard / count - np.eye(width))
    return bool(together.max() > CORRELATED / math.sqrt(count))


def _cut_alike(sides: Sequence[Array], ranges: Array) -> Array:
    """Coordinates that end at one number on both sides, as continuous noise never does."""
    apart = [np.abs(end(sides[0], axis=0) - end(sides[1], axis=0)) for end in (np.min, np.max)]
    return (np.minimum(*apart) <= ROUNDED * ranges) & (ranges > 0)


def _largest_product(squares: Array, weights: Array, total: float) -> Array:
    """The v_j of 1 and more with ``sum_j w_j v_j = total`` that make the sum of ``log F(c_j^2 v_j)`` largest.

    The logarithm is concave in v: its slope over the weight is the same wherever v is above 1.
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
    # a slope that is too small gives more than there is
    return shares(low)


def _log_slope(squares: Array, shares: Array) -> Array:
    """Of ``log F(c^2 v)`` in v."""
    reach = np.sqrt(squares * shares)
    density = np.exp(-(reach**2) / 2) / (math.sqrt(2 * math.pi) * reach)
    return squares * density / special.erf(reach / math.sqrt(2))
