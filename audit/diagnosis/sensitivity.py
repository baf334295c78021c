"""How far the record moves the sum, against the noise; where to; and at which rate it seems to be taken."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array, Noise
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import chi2, student
from guarantees.numerics.rounding import between

CLOSE = 0.03
"""Relative error below which a scale is called as stated."""
LONGER = 0.2
"""Share by which a gradient exceeds the bound, and a movement is known, where the one is told from the other."""
NO_MEAN = 0.01
"""Smallest p-value at which noise is taken to have no mean of its own."""
ROUNDED = 1e-6
"""Share of the release's span below which what lies aside of a gradient is rounding."""
ROWS = ("rows_no_gradients",)
"""What else explains a movement aside from the gradient, where rows are taken for gradients."""
LARGEST_DIVISOR = 1e6
"""Beyond it there is no noise to speak of, whatever it is divided by."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """What the code was given."""

    clip: float
    noise_multiplier: float
    rate: float

    @property
    def deviation(self) -> float:
        """Of the noise on the sum."""
        return self.clip * self.noise_multiplier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shift:
    """How far apart the means of two sides are, and the standard error of that length."""

    length: float
    error: float


def shift(first: Array, second: Array) -> Shift:
    """Length of the difference of two means, whatever its direction.

    With ``d`` the difference found and ``S`` its covariance, ``|d|^2 - tr S`` has the mean of the true squared length
    and the variance ``4 d S d + 2 tr S^2`` at the true ``d``; the error of the length is that of its square over
    twice the length.
    """
    apart = second.mean(axis=0) - first.mean(axis=0)
    covariance = sum(np.atleast_2d(np.cov(side, rowvar=False)) / len(side) for side in (first, second))
    squares = float(np.sum(covariance**2))
    length = math.sqrt(max(float(apart @ apart) - float(np.trace(covariance)), 1e-300))
    # d as found has more along S than the true one, by tr S^2
    variance = max(4 * float(apart @ covariance @ apart) - 2 * squares, 2 * squares)
    return Shift(length=length, error=max(math.sqrt(variance) / (2 * length), 1e-300))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Movement:
    """The record's mean movement of the release, whole and along its clipped gradient, and the noise it hides in."""

    whole: Shift
    """In the span of all gradients, where a sum of them can move."""
    aside_p: float
    """Of 'nothing of it goes aside from the record's clipped gradient'."""
    mean: float
    """Along it, with its sign."""
    spread: float
    """Variance along it with the record, less that without."""
    noise: float
    noise_error: float
    along: float
    """Deviation along it without the record, batches included."""
    others: float
    """How far the other records move the mean along their own sum."""
    others_error: float
    """Infinite where the noise has a mean of its own, which is part of it."""
    degrees: int
    mean_rows: tuple[Array, Array]
    spread_rows: tuple[Array, Array]

    def p_value(self, slope: float, intercept: float) -> float:
        """Of ``intercept + spread = slope mean`` around the estimates, by the spread of every trial's share."""
        parts = [second - slope * first for first, second in zip(self.mean_rows, self.spread_rows, strict=True)]
        error = math.sqrt(sum(float(part.var(ddof=1)) / len(part) for part in parts))
        return 2 * float(special.ndtr(-abs(intercept) / max(error, 1e-300)))


def deviation(without: Noise, with_record: Noise) -> tuple[float, float]:
    """Of the noise of both sides, and its standard error."""
    squares = np.concatenate([side.sizes**2 for side in (without, with_record)])
    noise = math.sqrt((without.variance + with_record.variance) / 2)
    return noise, float(squares.std(ddof=1)) / math.sqrt(len(squares)) / max(2 * noise, 1e-300)


def movement(without: Noise, with_record: Noise, signal: Signal) -> Movement:
    """Both sides compared; every scale in the units of the release."""
    sides = (without, with_record)
    rows = [side.along - side.along.mean() for side in sides]
    spans = [side.outputs.astype(np.float64) @ signal.basis.T for side in sides]
    own = signal.basis @ signal.direction
    asides = [span - np.outer(span @ own, own) for span in spans]
    noise, noise_error = deviation(without, with_record)
    others = without.outputs @ (signal.others / (float(np.linalg.norm(signal.others)) or 1.0))
    return Movement(
        whole=shift(*spans),
        aside_p=apart(*asides) if _largest(asides) > ROUNDED * _largest(spans) else 1.0,
        mean=float(with_record.along.mean() - without.along.mean()),
        spread=float(rows[1].var(ddof=1) - rows[0].var(ddof=1)),
        noise=noise,
        noise_error=noise_error,
        along=float(rows[0].std(ddof=1)),
        others=float(others.mean()),
        others_error=max(float(others.std(ddof=1)) / math.sqrt(len(others)), 1e-300)
        if not _has_a_mean(without.beside)
        else math.inf,
        degrees=min(map(len, rows)) - 1,
        mean_rows=(-rows[0], rows[1]),
        spread_rows=(rows[0].var(ddof=1) - rows[0] ** 2, rows[1] ** 2 - rows[1].var(ddof=1)),
    )


def _has_a_mean(noise: Array) -> bool:
    """Whether coordinates that no record moves have another mean than zero."""
    squares = noise.mean(axis=0) ** 2 / np.maximum(noise.var(axis=0, ddof=1) / len(noise), 1e-300)
    return bool(chi2.sf(float(squares.sum()), len(squares)) < NO_MEAN)


def _largest(sides: Sequence[Array]) -> float:
    return max(float(np.abs(side).max(initial=0.0)) for side in sides)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """Which rate explains how the record moves mean and variance along its gradient.

    Taken with probability p, it moves the mean by ``m = p a`` and the variance by ``v = p (1 - p) a^2``: at the stated
    rate ``v = m^2 (1 - q) / q``; with noise as due, whatever the rate, ``v = m (a - m)`` with ``a = s L / (sigma C)``.
    """

    found: float
    """The rate, if the noise over the sensitivity is as due."""
    p_stated: float
    p_found: float

    @classmethod
    def of(cls, found: Movement, signal: Signal, stated: Stated) -> Rates:
        """Both hypotheses tested."""
        mean, odds = found.mean, (1 - stated.rate) / stated.rate
        due = found.noise * signal.length / stated.deviation
        return cls(
            found=mean / max(due, 1e-300),
            p_stated=found.p_value(2 * mean * odds, found.spread - mean**2 * odds),
            p_found=found.p_value(due - 2 * mean, found.spread - mean * (due - mean)),
        )

    def may_explain(self, rate: float, risk: float) -> bool:
        """Whether a larger rate is not ruled out."""
        return self.p_found >= risk and rate < self.found < 1 + CLOSE


def over_sensitivity(found: Movement, signal: Signal, stated: Stated, *, risk: float) -> Diagnosis:
    """Noise deviation over what the record moves, against noise multiplier times clip over its clipped length.

    A constant divisor is in both and drops out: ``m <= q L s / (sigma C)``, by a t test with the smaller degrees of
    freedom; m is how far the mean moves, in whatever direction, s the noise's deviation, L the length that is due.
    """
    slope = stated.rate * signal.length / stated.deviation
    due, moved = slope * found.noise, found.whole.length
    error = math.hypot(found.whole.error, slope * found.noise_error)
    p = float(student.sf((moved - due) / error, found.degrees))
    reach = float(student.isf(risk / 2, found.degrees)) * error
    wrong = p < risk
    ratio = due / max(moved, 1e-300)
    interval = _around(ratio, found, risk)
    measured, causes = "the noise over the sensitivity is no less than expected", ()
    if wrong:
        limits = between(*interval, ".2g")
        what, causes = _off(found, signal, stated, reach, risk)
        measured = f"noise over sensitivity is {ratio:.2f} of what is expected ({limits}); {what}"
        if _count_may_divide(found, signal, stated, reach, risk):
            causes = ("count_divides", *causes)
        rates = Rates.of(found, signal, stated)
        if signal.rounds > 1 and stated.rate < 1:
            causes = tuple(dict.fromkeys((*causes, "another_rate")))
        elif rates.may_explain(stated.rate, risk):
            measured += f", as also at a rate of {min(rates.found, 1.0):.2g} where {stated.rate:g} is stated"
            # the one first that explains better how the sum varies
            better = rates.p_found > rates.p_stated
            causes = tuple(dict.fromkeys(("another_rate", *causes) if better else (*causes, "another_rate")))
    return answer(
        "ratio",
        measured=measured,
        causes=causes,
        p_value=min(1.0, p),
        risk=risk,
        assumes=f"records are taken at rate {stated.rate:g}, whatever they are divided by, and move the sum in the "
        "span of all gradients; means are normal",
        estimate=ratio,
        interval=interval,
    )


def _around(ratio: float, found: Movement, risk: float) -> tuple[float, float]:
    """Limits of the noise over the movement: its inverse has the relative errors of both."""
    relative = math.hypot(found.whole.error / found.whole.length, found.noise_error / max(found.noise, 1e-300))
    reach = float(student.isf(risk / 2, found.degrees)) * relative
    return ratio / (1 + reach), ratio / (1 - reach) if reach < 1 else math.inf


def _others_may_be(
    found: Movement, signal: Signal, stated: Stated, risk: float, *, times: float = 1.0, looser: bool = False
) -> bool:
    """Whether the other records' sum, so many times as large, may be what moves the mean; so where it tells nothing.

    Clipped as stated, or ``looser``.
    """
    size = float(np.linalg.norm(signal.others))
    if size == 0:
        return True
    low, high = (stated.rate * times * end for end in (signal.others_looser if looser else (size, size)))
    reach = float(student.isf(risk / 2, found.degrees)) * found.others_error + CLOSE * stated.rate * times * size
    return low - reach <= found.others <= high + reach


def _count_may_divide(found: Movement, signal: Signal, stated: Stated, reach: float, risk: float) -> bool:
    """Whether a mean over the records, whose number the record changes, may move so; the noise reads no number."""
    sizes = signal.records, signal.records_with
    if sizes[0] == sizes[1] or 0 in sizes or stated.rate < 1 or signal.rounds > 1:
        return False
    moved = float(np.linalg.norm((signal.others + signal.moves) / sizes[1] - signal.others / sizes[0]))
    near = abs(found.whole.length - moved) <= reach + CLOSE * moved
    return near and _others_may_be(found, signal, stated, risk, times=1 / sizes[0])


def beyond_the_scale(found: Diagnosis, scale: Diagnosis, signal: Signal) -> bool:
    """Whether noise over sensitivity is less than a divisor of the whole release explains, which the record changes.

    Such a divisor scales the other records' sum with the noise, and moves it: ``|r (others + moves) - others|`` is due
    where the noise with the record is r times as large.
    """
    if not (found.wrong and scale.wrong) or found.interval is None:
        return False
    scales = np.array([*(scale.interval or ()), scale.estimate or 1.0])
    moved = np.linalg.norm(np.outer(scales, signal.others + signal.moves) - signal.others, axis=1)
    explained = signal.length * np.sqrt((1 + scales**2) / 2) / np.maximum(moved, 1e-300)
    return bool(found.interval[1] < (1 - CLOSE) * float(explained.min()))


def _off(found: Movement, signal: Signal, stated: Stated, reach: float, risk: float) -> tuple[str, tuple[str, ...]]:
    """Which of the two is off, if nothing is divided, and why that may be.

    A record that moves the release as far as is due beside too little noise may also move a sum too far that has its
    noise and is divided. The other records tell the two apart, as far as looser clipping leaves their sum as it is; and
    whether the record alone moves the sum too far, or all of them do.
    """
    moved, length = found.whole.length, stated.rate * signal.length
    due = f"where {length:.3g} is expected"
    if stated.rate < 1:
        due = f"on average where {length:.3g} is expected at rate {stated.rate:g}"
    divisor = stated.deviation / max(found.noise, 1e-300)
    too_far, turned = _too_far(found, signal, stated, moved * divisor, reach / max(moved, 1e-300), risk)
    if abs(found.noise - stated.deviation) <= CLOSE * stated.deviation:
        what = f"the noise has its stated deviation of {stated.deviation:.3g}, but the record moves the sum by "
        what += f"{moved:.3g}{turned.format(found.mean)} {due}"
        alone = _others_may_be(found, signal, stated, risk, looser=True)
        if not _others_may_be(found, signal, stated, risk, times=moved / length):
            return what, too_far
        if alone:
            return what, (*too_far, "sum_scaled")
        return f"{what}; the other records move it as many times too far", ("sum_scaled", "counted_again")
    # along the gradient the noise is no larger than all that varies there
    square = found.degrees * (found.along / stated.deviation) ** 2
    less = ("less_noise",) if chi2.cdf(square, found.degrees) < risk else ("less_noise", "less_beside")
    undivided = _others_may_be(found, signal, stated, risk)
    by_it = _others_may_be(found, signal, stated, risk, times=1 / divisor, looser=True)
    # neither all of the other records' sum nor that over the noise's divisor: something else may scale it
    as_noise = _others_may_be(found, signal, stated, risk, times=1 / divisor)
    scaled = () if undivided or as_noise else ("sum_scaled",)
    if abs(moved - length) <= reach:
        what = f"the noise has deviation {found.noise:.3g} where {stated.deviation:.3g} is expected"
        if divisor > LARGEST_DIVISOR or not by_it:
            return what, (*less, *scaled)
        divided = f"the release is divided by {divisor:.3g} and the record moves the sum by {moved * divisor:.3g}"
        divided += f"{turned.format(found.mean * divisor)} {due}"
        return (f"{what}, or {divided}", (*less, *too_far)) if undivided else (divided, (*too_far, *scaled))
    average = "" if stated.rate == 1 else " on average"
    turned = turned.format(found.mean)
    what = (
        f"the noise has deviation {found.noise:.3g} where the record moves the release by {moved:.3g}{turned}"
        f"{average}; {stated.deviation:.3g} would be due where it moves it by {length:.3g}"
    )
    return what, (*scaled, "less_noise", "less_beside", *too_far)


def _too_far(
    found: Movement, signal: Signal, stated: Stated, moved: float, error: float, risk: float
) -> tuple[tuple[str, ...], str]:
    """Why the record may move the sum so far, up to a relative error, and what to say beside that length."""
    turned = ""
    if found.aside_p < risk:
        # no length of the record's own gradient explains this
        causes = (*ROWS[: signal.assumed], "moves_others", "not_clipped_alone", "counted_again")
        causes += ("another_rate",) if stated.rate < 1 else ()
        turned = " ({:.3g} along its own gradient)"
    else:
        causes = ("larger_bound", "not_clipped_alone", "counted_again")
        whole, longer = stated.rate * signal.unclipped, signal.unclipped > (1 + LONGER) * signal.length
        unclipped = longer and abs(moved - whole) <= (error + CLOSE) * whole and found.mean > 0
        causes = ("not_clipped", *causes) if unclipped else causes
        if unclipped and error < LONGER:
            turned = ", as its gradient does without clipping,"
        elif found.mean < 0:
            turned = " (against its own gradient)"
    if np.count_nonzero(signal.moves) > signal.rounds:
        # a gradient that has parts: clipped to the bound each, they are together longer; as a rule they turn it as well
        causes = (*causes, "clipped_apart")
    fit = _as_long(signal, stated, moved, error)
    return tuple(sorted(causes, key=lambda cause: (cause != "not_clipped", cause not in fit))), turned


def _as_long(signal: Signal, stated: Stated, moved: float, error: float) -> set[str]:
    """Which causes say how far the record moves the sum, and are right: whole copies, or parts clipped one by one."""
    due, reach = stated.rate * signal.length, (error + CLOSE) * moved
    copies = round(moved / due)
    lengths = {"counted_again": [copies * due] if copies > 1 and reach < due / 4 else []}
    lengths["clipped_apart"] = [stated.rate * float(np.linalg.norm(own)) for own in signal.by_parts.values()]
    return {cause for cause, own in lengths.items() if any(abs(moved - far) <= reach and far > due for far in own)}


def sampled(found: Movement, signal: Signal, stated: Stated, *, beyond: bool, risk: float) -> Diagnosis:
    """Whether a record that moves the mean too far is taken too often: the stated rate fails, and another would do."""
    rates = Rates.of(found, signal, stated)
    wrong = beyond and rates.p_stated < risk and rates.may_explain(stated.rate, risk)
    return answer(
        "rate",
        wrong=wrong,
        measured=f"the record moves the sum as if it were taken at rate {min(rates.found, 1.0):.2g} where "
        f"{stated.rate:g} is stated"
        if wrong
        else "another rate does not explain how the record moves the sum",
        causes=("another_rate", "weight_redrawn"),
        p_value=rates.p_stated if wrong else 1.0,
        risk=risk,
        assumes="records are taken independently; sums of many trials are normal",
        estimate=rates.found,
    )


def apart(first: Array, second: Array) -> float:
    """Of 'the means of both sides are equal': one half of the trials chooses a direction, the other is compared."""
    halves = [(side[::2], side[1::2]) for side in (first, second)]
    direction = halves[1][0].mean(axis=0) - halves[0][0].mean(axis=0)
    z, degrees = welch(*(side[1] @ direction for side in halves))
    return float(student.sf(z, degrees))


def welch(first: Array, second: Array) -> tuple[float, int]:
    """The t statistic of 'second is larger', and the smaller degrees of freedom; zero where nothing varies."""
    error = math.sqrt(sum(float(own.var(ddof=1)) / len(own) for own in (first, second)))
    difference = float(second.mean() - first.mean())
    scale = float(np.abs(np.append(first, second)).max())
    if abs(difference) <= 1e-9 * scale:
        return 0.0, 1
    return difference / max(error, 1e-9 * scale), min(len(first), len(second)) - 1
