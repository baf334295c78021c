"""How large the noise is, what divides it, and whether that depends on the dataset or the batch."""

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
"""Standard errors of excess variation of trial sizes from which on the noise seems to have several scales."""
MOST_COMPARED = 500
"""Most trials whose noise is compared pairwise."""
PILE = 0.1
"""Share of the releases of each side from which on equal lengths are no chance."""
CLOSE = 0.05
"""Share by which the noise may miss the stated one without a word on divisors."""
SAME_LENGTH = 1e-5
"""Relative difference of lengths up to which they differ by rounding."""


def noise_scale(noise: Noise, stated: Stated, *, side: str, risk: float) -> Diagnosis:
    """Estimate the standard deviation of the noise on one side; no test, as a divisor chosen beforehand is not wrong.

    ``sum y^2 / deviation^2`` is chi-square with one degree for each coordinate of each trial, less one a coordinate.
    """
    count = noise.rest.size - noise.rest.shape[1]
    total = noise.variance * count
    low, high = (math.sqrt(total / chi2.isf(q, count)) for q in (risk / 2, 1 - risk / 2))
    found = math.sqrt(noise.variance)
    stated_noise = f"the stated {stated.deviation:.4g} (clip times noise multiplier)"
    if stated.divisor not in (None, 1):
        due = stated.deviation / stated.divisor
        stated_noise = f"the stated {due:.4g} (clip times noise multiplier over the divisor)"
    times = found * (stated.divisor or 1.0) / stated.deviation
    versus = "there is none" if found == 0 else f"{times:.4g} times {stated_noise}"
    if stated.divisor is None and 0 < times < 1 - CLOSE:
        versus += f", as in a release that is divided by {1 / times:.3g}"
    return Diagnosis(
        code=f"scale_{side}",
        question=f"noise scale, side '{side}'",
        wrong=False,
        says=f"side '{side}': the noise has standard deviation {found:.4g} ({between(low, high, '.4g')}): {versus}.",
        risk=0.0,
        assumes="independent normal noise of one scale",
        estimate=found,
        interval=(low, high),
    )


def depends_on_record(without: Noise, with_record: Noise, *, sampled: bool = False, risk: float) -> Diagnosis:
    """Whether the noise has another scale with the record: sizes of trials are compared by rank. [mann1947]

    The unit is the trial, whose scale may vary with its batch on either side. Where batches are ``sampled`` they may be
    what changes it, more likely so if one side has several scales.
    """
    first, second = without.sizes, with_record.sizes
    p = rank_sum_p(first, second) if np.ptp(np.append(first, second)) > 0 else 1.0
    ratio, (low, high) = _size_ratio(first, second, risk)
    wrong = p < risk
    measured = f"with the record the noise is {ratio:.4g} times ({between(low, high, '.4g')}) as large"
    # randomness that the record adds makes the noise larger, never smaller
    causes = ("reads_dataset",) if ratio < 1 else ("reads_dataset", "record_redrawn")
    if wrong:
        deviation_without, deviation_with = math.sqrt(without.variance), math.sqrt(with_record.variance)
        deviations = f"deviation {deviation_without:.3g} without it, {deviation_with:.3g} with it"
        if low * deviation_without <= deviation_with <= high * deviation_without and not low <= 1 <= high:
            measured = f"{measured} ({deviations})"
        elif _alike_on_one_scale(first, second, risk):
            measured = f"the record changes the scale of the noise ({deviations})"
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


def _alike_on_one_scale(first: Array, second: Array, risk: float) -> bool:
    """Whether trials' sizes over their geometric means, or over their root mean squares, are alike by rank."""
    own = [(sizes[sizes > 0], math.sqrt(float(np.mean(sizes**2)))) for sizes in (first, second)]
    if any(not len(positive) for positive, _ in own):
        return False
    by_geometric_mean = [positive / math.exp(float(np.log(positive).mean())) for positive, _ in own]
    return any(rank_sum_p(*sides) >= risk for sides in (by_geometric_mean, [sizes / root for sizes, root in own]))


def _size_ratio(first: Array, second: Array, risk: float) -> tuple[float, tuple[float, float]]:
    """Ratio of the sides' geometric mean sizes of trials, and Welch's interval; trials without noise are left out."""
    logs = [np.log(sizes[sizes > 0]) for sizes in (first, second)]
    if min(map(len, logs)) < 2:
        ratio = 1.0 if not len(logs[0]) and not len(logs[1]) else math.inf if len(logs[1]) else 0.0
        return ratio, (0.0, math.inf)
    if min(float(own.std()) for own in logs) < 1e-9:
        ratio = math.exp(float(logs[1].mean() - logs[0].mean()))
        return ratio, (ratio, ratio)
    difference = float(logs[1].mean() - logs[0].mean())
    squares = [float(own.var(ddof=1)) / len(own) for own in logs]
    degrees = sum(squares) ** 2 / sum(own**2 / (len(log) - 1) for own, log in zip(squares, logs, strict=True))
    reach = float(student.isf(risk / 2, degrees)) * math.sqrt(sum(squares))
    return math.exp(difference), (math.exp(difference - reach), math.exp(difference + reach))


def depends_on_batch(
    without: Noise,
    with_record: Noise,
    *,
    deviation: float | None = None,
    empty: bool | None = None,
    risk: float,
) -> Diagnosis:
    """Whether the noise changes scale from trial to trial, so that squares of coordinates are large together.

    With ``y_j`` the square of coordinate j less its mean, ``(sum y)^2 - sum y^2`` has mean zero for independent
    coordinates of any law. If they were rotated it is at most the sum of their excess kurtoses, plus what coordinates
    of different scales contribute; a t test of its mean over all trials. Sums of products are skewed to the right,
    where a t test says 'wrong' too rarely. ``empty`` says whether trials of empty batches have no noise, as where each
    record brings its own noise; None if unknown.
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
    """Whether squared sizes of trials vary more than for normal noise with this covariance C, ``2 tr(C^2)``."""
    squares = np.sum(side.centred**2, axis=1)
    excess = (squares - squares.mean()) ** 2 - 2 * _squared_covariance(side.centred)
    return bool(excess.mean() > ERRORS * excess.std(ddof=1) / math.sqrt(len(excess)))


def _one_length(without: Noise, with_record: Noise) -> str:
    """Say that many releases of both sides have one length and none is longer, as never with fresh noise; else ""."""
    lengths = [np.linalg.norm(side.outputs.astype(np.float64), axis=1) for side in (without, with_record)]
    longest = max(float(own.max()) for own in lengths)
    shares = [float(np.mean(own > (1 - SAME_LENGTH) * longest)) for own in lengths]
    if min(shares) < PILE:
        return ""
    share = "all" if min(shares) == 1 else f"at least {math.floor(100 * min(shares))}% on each side"
    return f"; no release is longer than {longest:.4g}, and {share} have that length"


def _squares_together(side: Noise) -> Array:
    """Every trial's ``(sum y)^2 - sum y^2`` in units of the variance, less what a rotation can contribute."""
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
    """``2 sum C_ij^2`` over pairs of coordinates: what correlated normals add to sums of products of squares."""
    own = float(np.sum(np.mean(centred[:MOST_COMPARED] ** 2, axis=0) ** 2))
    return max(0.0, 2 * (_squared_covariance(centred) - own))


def _squared_covariance(centred: Array) -> float:
    """Estimate ``tr(C^2)`` by the mean squared product of two trials' rows, whatever the scales of trials."""
    products = centred[:MOST_COMPARED] @ centred[:MOST_COMPARED].T
    count = len(products)
    return (float(np.sum(products**2)) - float(np.sum(np.diag(products) ** 2))) / (count * (count - 1))


def _whole_divisors(without: Noise, with_record: Noise, deviation: float, risk: float) -> str:
    """Name the whole divisors that explain the noise of single trials, by intervals at ``risk`` together.

    ``width size^2 / (deviation / divisor)^2`` is chi-square; a number is named where it is the only one in an interval.
    """
    sizes, width = np.concatenate([without.sizes, with_record.sizes]), without.rest.shape[1]
    sizes = sizes[sizes > 0]
    return _listed_divisors(deviation / sizes, *_divisor_factors(width, risk / (2 * len(sizes))))


def _divisor_factors(width: int, tail: float) -> tuple[float, float]:
    """Factors on the estimated divisor of a trial between which the true one lies."""
    return math.sqrt(chi2.ppf(tail, width) / width), math.sqrt(chi2.isf(tail, width) / width)


def _listed_divisors(found: Array, low: float, high: float) -> str:
    """List the divisors of trials whose interval holds exactly one whole number; "" if there are none."""
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
