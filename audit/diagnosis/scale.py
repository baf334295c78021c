"""How large the noise is, what it was divided by, and whether that reads the dataset or the batch."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array, Noise
from audit.diagnosis.sensitivity import Stated
from audit.record.diagnosis_answer import Diagnosis
from dpsgd_audit.spelling import counted
from guarantees.numerics.distributions import chi2, student
from guarantees.numerics.ranks import rank_sum_p
from guarantees.numerics.rounding import between

ERRORS = 3.0
"""Standard errors by which sizes of trials vary more than normal noise, from which on its scale looks mixed."""
MOST_COMPARED = 500
"""Trials whose noise is compared with each other's."""
PILE = 0.1
"""Share of the releases of each side from which on equal lengths are no chance."""
SAME_LENGTH = 1e-5
"""Relative difference of lengths that rounding explains."""


def noise_scale(noise: Noise, stated: Stated, *, side: str, risk: float) -> Diagnosis:
    """Standard deviation of the noise on one side, an estimate and no test: a divisor chosen beforehand is not wrong.

    ``sum y^2 / deviation^2`` is chi-square with one degree for each coordinate of each trial, less one a coordinate.
    """
    count = noise.rest.size - noise.rest.shape[1]
    total = noise.variance * count
    low, high = (math.sqrt(total / chi2.isf(q, count)) for q in (risk / 2, 1 - risk / 2))
    found = math.sqrt(noise.variance)
    due = f"the stated {stated.deviation:.4g} (clip times noise multiplier)"
    if stated.divisor not in (None, 1):
        due = f"the stated {stated.deviation / stated.divisor:.4g} (clip times noise multiplier over the divisor)"
    beside = "there is none" if found == 0 else f"{found * (stated.divisor or 1.0) / stated.deviation:.4g} times {due}"
    return Diagnosis(
        code=f"scale_{side}",
        question=f"noise scale, side '{side}'",
        wrong=False,
        says=f"side '{side}': the noise has standard deviation {found:.4g} ({between(low, high, '.4g')}): {beside}.",
        risk=0.0,
        assumes="independent normal noise of one scale",
        estimate=found,
        interval=(low, high),
    )


def depends_on_record(without: Noise, with_record: Noise, *, sampled: bool = False, risk: float) -> Diagnosis:
    """Whether the noise has another scale with the record: trials' sizes compared by their ranks. [mann1947]

    The unit is the trial, whose scale may vary with its batch on either side. Where batches are ``sampled`` they may be
    what changes it, likelier so where one side's scale varies.
    """
    first, second = without.sizes, with_record.sizes
    p = rank_sum_p(first, second) if np.ptp(np.append(first, second)) > 0 else 1.0
    ratio, (low, high) = _size_ratio(first, second, risk)
    wrong = p < risk
    measured = f"with the record the noise is {ratio:.4g} times ({between(low, high, '.4g')}) as large"
    # what the record adds of its own makes the noise larger, never smaller
    causes = ("reads_dataset",) if ratio < 1 else ("reads_dataset", "record_redrawn")
    if wrong:
        own, other = math.sqrt(without.variance), math.sqrt(with_record.variance)
        deviations = f"deviation {own:.3g} without it, {other:.3g} with it"
        if low * own <= other <= high * own and not low <= 1 <= high:
            measured = f"{measured} ({deviations})"
        else:
            measured, causes = f"the record changes the law of the noise ({deviations})", ("noise_of_dataset",)
    if wrong and sampled:
        mixed = _looks_mixed(without) or _looks_mixed(with_record)
        causes = ("batch_divisor", *causes) if mixed else (causes[0], "batch_divisor", *causes[1:])
    return answer(
        "scale_by_record",
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes="independent trials; the interval also that means of their logarithmic sizes are normal",
        estimate=ratio,
        interval=(low, high),
    )


def _size_ratio(first: Array, second: Array, risk: float) -> tuple[float, tuple[float, float]]:
    """Geometric mean size of trials with the record over that without, and Welch's interval; silent trials apart."""
    logs = [np.log(sizes[sizes > 0]) for sizes in (first, second)]
    if min(map(len, logs)) < 2:
        ratio = 1.0 if not len(logs[0]) and not len(logs[1]) else math.inf if len(logs[1]) else 0.0
        return ratio, (0.0, math.inf)
    if min(float(own.std()) for own in logs) < 1e-9:
        ratio = math.exp(float(logs[1].mean() - logs[0].mean()))
        return ratio, (ratio, ratio)
    gap = float(logs[1].mean() - logs[0].mean())
    squares = [float(own.var(ddof=1)) / len(own) for own in logs]
    degrees = sum(squares) ** 2 / sum(own**2 / (len(log) - 1) for own, log in zip(squares, logs, strict=True))
    reach = float(student.isf(risk / 2, degrees)) * math.sqrt(sum(squares))
    return math.exp(gap), (math.exp(gap - reach), math.exp(gap + reach))


def depends_on_batch(
    without: Noise,
    with_record: Noise,
    *,
    deviation: float | None = None,
    empty: bool | None = None,
    risk: float,
) -> Diagnosis:
    """Whether the noise changes scale from trial to trial: squares of a trial's coordinates are large together.

    With ``y_j`` the square of coordinate j less its mean, ``(sum y)^2 - sum y^2`` has mean zero for independent
    coordinates of any law. Where they were rotated it is at most the sum of their excess kurtoses, and what coordinates
    of different scales make of it; a t test of its mean over all trials. Sums of products lean to the right, where a t
    test says 'wrong' too rarely. ``empty``: whether trials of empty batches have no noise, as noise that each record
    brings along has none there; None where nobody knows.
    """
    sides = (without, with_record)
    together = np.concatenate([_squares_together(side) for side in sides])
    error = float(together.std(ddof=1)) / math.sqrt(len(together))
    p = float(student.sf(together.mean() / error, len(together) - 1)) if error > 0 else 1.0
    wrong = p < risk
    clipped = _one_length(without, with_record) if wrong else ""
    divisors = "" if clipped or not wrong or deviation is None else _whole_divisors(*sides, deviation, risk)
    causes = ("batch_divisor", "batch_bound", "scale_redrawn")
    causes = ("noise_of_records", *causes) if empty else (*causes, *(("noise_of_records",) if empty is None else ()))
    return answer(
        "scale_by_trial",
        measured=f"the noise's scale varies between trials{clipped}{divisors}"
        if wrong
        else "one scale fits every trial",
        causes=("release_clipped",) if clipped else causes,
        p_value=p,
        risk=risk,
        assumes="independent coordinates; means are normal",
    )


def _looks_mixed(side: Noise) -> bool:
    """Whether squared sizes of trials vary more than those of normal noise with this covariance C, ``2 tr(C^2)``."""
    squares = np.sum(side.centred**2, axis=1)
    excess = (squares - squares.mean()) ** 2 - 2 * _squared_covariance(side.centred)
    return bool(excess.mean() > ERRORS * excess.std(ddof=1) / math.sqrt(len(excess)))


def _one_length(without: Noise, with_record: Noise) -> str:
    """What to say where many releases of both sides have one length and none is longer, as no fresh noise has."""
    lengths = [np.linalg.norm(side.outputs.astype(np.float64), axis=1) for side in (without, with_record)]
    longest = max(float(own.max()) for own in lengths)
    shares = [float(np.mean(own > (1 - SAME_LENGTH) * longest)) for own in lengths]
    if min(shares) < PILE:
        return ""
    share = "all" if min(shares) == 1 else f"at least {math.floor(100 * min(shares))}% on each side"
    return f"; no release is longer than {longest:.4g}, and {share} have that length"


def _squares_together(side: Noise) -> Array:
    """Every trial's ``(sum y)^2 - sum y^2``, in units of the variance, less what a rotation can make of it."""
    squares = side.centred**2
    unit = float(squares.mean())
    if unit == 0:
        return np.zeros(len(squares))
    own = squares / unit - (squares / unit).mean(axis=0)
    found = own.sum(axis=1) ** 2 - np.sum(own**2, axis=1)
    if not side.rotated:
        return found
    values = side.outputs - side.outputs.mean(axis=0, dtype=np.float64)
    fourth, second = np.mean(values**4, axis=0), np.mean(values**2, axis=0)
    excess = np.maximum(fourth / np.maximum(second, 1e-100) ** 2 - 3, 0.0)
    return found - float(np.sum(excess)) - _correlated_squares(side.centred) / unit**2


def _correlated_squares(centred: Array) -> float:
    """``2 sum C_ij^2`` over pairs of coordinates: what correlated normals add to the sum of products of squares."""
    own = float(np.sum(np.mean(centred[:MOST_COMPARED] ** 2, axis=0) ** 2))
    return max(0.0, 2 * (_squared_covariance(centred) - own))


def _squared_covariance(centred: Array) -> float:
    """``tr(C^2)``: the mean square of products of two trials' rows, whatever the trials' scales."""
    products = centred[:MOST_COMPARED] @ centred[:MOST_COMPARED].T
    count = len(products)
    return (float(np.sum(products**2)) - float(np.sum(np.diag(products) ** 2))) / (count * (count - 1))


def _whole_divisors(without: Noise, with_record: Noise, deviation: float, risk: float) -> str:
    """Whole divisors that explain the noise of single trials: an interval for each, all together at ``risk``.

    ``width size^2 / (deviation / divisor)^2`` is chi-square; a number is named where it is the only one in an interval.
    """
    sizes, width = np.concatenate([without.sizes, with_record.sizes]), without.rest.shape[1]
    sizes = sizes[sizes > 0]
    return _whole(deviation / sizes, *_reach(width, risk / (2 * len(sizes))))


def _reach(width: int, tail: float) -> tuple[float, float]:
    """Factors between which a trial's divisor lies, beside the one found."""
    return math.sqrt(chi2.ppf(tail, width) / width), math.sqrt(chi2.isf(tail, width) / width)


def _whole(found: Array, low: float, high: float) -> str:
    """Whole divisors that single trials leave no choice about."""
    first, last = np.ceil(found * low), np.floor(found * high)
    alone = first[(first == last) & (first >= 1)].astype(int)
    if not len(alone):
        return ""
    numbers, counts = np.unique(alone, return_counts=True)
    first = zip(numbers[:8], counts[:8], strict=True)
    listed = ", ".join(f"by {number} in {counted(int(count), 'trial')}" for number, count in first)
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    undecided = f"undecided in {len(found) - len(alone)} of {len(found)}"
    return f" (if it is divided by whole numbers: {listed}{more}, {undecided})"
