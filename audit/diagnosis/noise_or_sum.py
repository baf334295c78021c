"""Whether there is enough noise for how far the record moves the sum and, if not, which of the two is off."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.explained_means import Explained, clipped_sum, mean_of_the_batch, others_at_bound
from audit.diagnosis.sensitivity import CLOSE, ROWS, Movement, Rates, Stated
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import chi2, student
from guarantees.numerics.rounding import between

LONGER = 0.2
"""Relative excess of a gradient over the bound, and relative error of a movement, for which clipping shows."""
LARGEST_DIVISOR = 1e6
"""Divisor above which there is practically no noise."""
COPIES = 2.0
"""Standard errors within which the record moves the sum like a whole number of copies."""
TOO_LITTLE_NOISE = ("less_noise", "less_beside")
"""Causes that lie in the noise."""


def noise_over_sensitivity(
    movement: Movement, signal: Signal, stated: Stated, *, skewness: float = 0.0, risk: float
) -> Diagnosis:
    """Whether the noise is too small for how far the record moves the sum, given clip and noise multiplier.

    A constant divisor is in both and cancels: ``m <= q L s / (sigma C)``, by a t test with the smaller degrees of
    freedom; m is how far the mean moves, in any direction, s the noise's deviation, L the length that the record may
    move the sum. Noise that is known to have a ``skewness``, if not 0, may have lost a side.
    """
    movement = movement if stated.divisor is None else movement.times(stated.divisor)
    movement_per_noise = stated.rate * signal.length / stated.deviation
    expected, length = movement_per_noise * movement.noise, movement.whole.length
    error = math.hypot(movement.whole.error, movement_per_noise * movement.noise_error)
    p = float(student.sf((length - expected) / error, movement.degrees))
    reach = float(student.isf(risk / 2, movement.degrees)) * error
    wrong = p < risk
    ratio = expected / max(length, 1e-300)
    interval = _ratio_interval(ratio, movement, risk)
    measured, causes = "the noise over the sensitivity is no less than expected", ()
    if wrong:
        limits = between(*interval, ".2g")
        deviating, causes = _Comparison(
            found=movement, signal=signal, stated=stated, reach=reach, risk=risk
        ).explanation()
        times = f"times the stated divisor of {stated.divisor:g}, " if stated.divisor not in (None, 1) else ""
        measured = f"noise over sensitivity is {ratio:.2g} of what is expected ({limits}); {times}{deviating}"
        rates = Rates.of(movement, signal, stated)
        if signal.rounds > 1 and stated.rate < 1:
            causes = tuple(dict.fromkeys((*causes, "another_rate")))
        elif (stated.divisor is None or not set(causes) <= set(TOO_LITTLE_NOISE)) and rates.may_explain(
            stated.rate, risk
        ):
            measured += (
                f" (a sampling rate of {min(rates.found, 1.0):.2g} instead of {stated.rate:g} would look the same)"
            )
            # the cause that explains the variance of the sum better comes first
            better = rates.p_found > rates.p_stated
            causes = tuple(dict.fromkeys(("another_rate", *causes) if better else (*causes, "another_rate")))
        if skewness:
            measured += f"; the noise has skewness {skewness:.2g}, and normal noise has none"
            causes = ("one_sided", *causes)
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


def _ratio_interval(ratio: float, found: Movement, risk: float) -> tuple[float, float]:
    """Confidence limits of noise over movement, whose inverse has the relative errors of both."""
    relative = math.hypot(found.whole.error / found.whole.length, found.noise_error / max(found.noise, 1e-300))
    reach = float(student.isf(risk / 2, found.degrees)) * relative
    return ratio / (1 + reach), ratio / (1 - reach) if reach < 1 else math.inf


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Comparison:
    """Noise, the record's movement and the other records' mean, compared under each possible explanation.

    A divisor scales all three. So the one that is off is the one that contradicts the other two: if the record and the
    others move the release by the same factor, the noise, or everything except the noise; if the noise and the others
    agree, the record.
    """

    found: Movement
    signal: Signal
    stated: Stated
    reach: float
    """Half width of the confidence interval of the record's movement beside the noise."""
    risk: float

    @property
    def due(self) -> float:
        """How far the record may move the mean."""
        return self.stated.rate * self.signal.length

    @property
    def divisor(self) -> float:
        """Divisor of the release if the noise is as stated."""
        return self.stated.deviation / max(self.found.noise, 1e-300)

    @property
    def moved(self) -> float:
        """How far the record moves the undivided sum if the noise is as stated."""
        return self.found.whole.length * self.divisor

    @property
    def error(self) -> float:
        """Relative half width of the interval of that movement."""
        return self.reach / max(self.found.whole.length, 1e-300)

    def explanation(self) -> tuple[str, tuple[str, ...]]:
        """Say which of noise and movement is off, with the possible causes, the likeliest first."""
        found, stated, length = self.found, self.stated, self.due
        moved, divisor = found.whole.length, self.divisor
        expected = f"where {length:.3g} is expected"
        if stated.rate < 1:
            expected = f"on average where {length:.3g} is expected at rate {stated.rate:g}"
        too_far, direction = self._too_far()
        same_factor = self._same_factor()
        if abs(found.noise - stated.deviation) <= CLOSE * stated.deviation:
            measured = f"the noise has its stated deviation of {stated.deviation:.3g}, but the record moves the sum by "
            measured += f"{moved:.3g}{direction.format(found.mean)} {expected}"
            if not same_factor:
                return measured, self._first(too_far)
            if self._others_may_be(looser=True):
                return measured, self._first((*too_far, "sum_scaled"))
            copies = ("counted_again", "sum_scaled") if self._copies() else ("sum_scaled", "counted_again")
            return f"{measured}; the other records move it as many times too far", copies
        divided = f"the release is divided by {divisor:.3g} and the record moves the sum by {self.moved:.3g}"
        divided += f"{direction.format(found.mean * divisor)} {expected}"
        undivided, divided_like_noise = self._others_may_be(), self._others_may_be(times=1 / divisor)
        clipped_looser = self._others_may_be(times=1 / divisor, looser=True)
        # if the others' sum is neither undivided nor divided like the noise, something else may scale it
        scaled = () if undivided or divided_like_noise else ("sum_scaled",)
        if abs(moved - length) <= self.reach:
            measured = f"the noise has deviation {found.noise:.3g} where {stated.deviation:.3g} is expected"
            if divisor > LARGEST_DIVISOR or not clipped_looser:
                return measured, self._first((*self._noise_causes(1.0), *scaled))
            if undivided and stated.divisor is not None:
                return measured, self._noise_causes(1.0)
            if undivided or not divided_like_noise:
                return f"{measured}, or {divided}", self._first((*self._noise_causes(1.0), *too_far, *scaled))
            return divided, self._first(too_far)
        if (
            divisor <= LARGEST_DIVISOR
            and clipped_looser
            and ((divided_like_noise and not same_factor) or self._is_unclipped(too_far))
        ):
            return divided, self._first((*too_far, *(self._noise_causes(moved / length) if same_factor else scaled)))
        measured = f"the noise has deviation {found.noise:.3g} where the record moves the release by {moved:.3g}"
        measured += (
            f"{direction.format(found.mean)}{'' if stated.rate == 1 else ' on average'}; {stated.deviation:.3g} would "
        )
        measured += f"be due where it moves it by {length:.3g}"
        if not same_factor:
            return measured, self._first((*scaled, *TOO_LITTLE_NOISE, *too_far))
        little, *beside = self._noise_causes(moved / length)
        fit = tuple(cause for cause in self._fitting() if cause in too_far)
        return measured, self._first((little, *fit, "sum_scaled", *beside, *too_far))

    def _noise_causes(self, scale: float) -> tuple[str, ...]:
        """Causes of too little noise at this scale; only one, if all that varies along the gradient is too little."""
        square = self.found.degrees * (self.found.along / (scale * self.stated.deviation)) ** 2
        return TOO_LITTLE_NOISE[:1] if chi2.cdf(square, self.found.degrees) < self.risk else TOO_LITTLE_NOISE

    def _first(self, causes: tuple[str, ...]) -> tuple[str, ...]:
        """Put first the causes that explain both how far the record and how far the others move the mean.

        Where the others move the release by the same factor as the record, something simpler explains that.
        """
        signal, stated, leading = self.signal, self.stated, list[str]()
        if self._is_unclipped(causes) or signal.rounds > 1:
            return causes
        if stated.rate == 1:
            changes = signal.records != signal.records_with
            leading += ["count_divides"] * (changes and self._may_be(mean_of_the_batch(signal, stated)))
        elif not self._same_factor():
            leading += ["sum_scaled"] * self._may_be(mean_of_the_batch(signal, stated))
            leading += ["sum_clipped"] * self._may_be(clipped_sum(signal, stated), self.divisor)
        return tuple(dict.fromkeys((*leading, *causes)))

    def _is_unclipped(self, causes: tuple[str, ...]) -> bool:
        """Whether the movement is known well to be that of the unclipped gradient."""
        return "not_clipped" in causes and self.error < LONGER

    def _may_be(self, explained: Explained | None, divisor: float = 1.0) -> bool:
        """Whether the record and the others move the mean as this explanation says."""
        if explained is None or not np.any(self.signal.others):
            return False
        moved = explained.moved / divisor
        near = abs(self.found.whole.length - moved) <= self.reach + CLOSE * moved
        return near and self._others_between(explained.others / divisor, explained.others / divisor)

    def _others_may_be(self, *, times: float = 1.0, looser: bool = False) -> bool:
        """Whether the others' sum, times this factor, may be what moves the mean; True where they have no sum.

        The others are clipped as stated or, if ``looser``, less.
        """
        size = float(np.linalg.norm(self.signal.others))
        if size == 0:
            return True
        low, high = (self.stated.rate * times * end for end in (self.signal.others_looser if looser else (size, size)))
        return self._others_between(low, high, spare=CLOSE * self.stated.rate * times * size)

    def _same_factor(self) -> bool:
        """Whether the others may move the release by the same factor, over what is expected, as the record does."""
        size = self.found.whole.length / self.due * self.stated.rate * float(np.linalg.norm(self.signal.others))
        return not size or self._others_between(size, size, error=self.error * size)

    def _others_between(self, low: float, high: float, *, spare: float | None = None, error: float = 0.0) -> bool:
        """Whether the measured movement by the others lies between these lengths, within its error."""
        reach = math.hypot(float(student.isf(self.risk / 2, self.found.degrees)) * self.found.others_error, error)
        reach += CLOSE * abs(high) if spare is None else spare
        return low - reach <= self.found.others <= high + reach

    def _too_far(self) -> tuple[tuple[str, ...], str]:
        """Causes of a movement that is too long, the likeliest first, and words about its direction.

        Parts of a gradient that are clipped separately are together longer than the bound, and go at least as far along
        the gradient: this cause comes early if the gradient has parts and exceeds the bound.
        """
        direction, movement, signal = "", self.found, self.signal
        longer = signal.unclipped > (1 + LONGER) * signal.length
        has_parts = np.count_nonzero(signal.moves) > signal.rounds
        reaches_gradient = movement.mean * self.divisor >= (1 - self.error - CLOSE) * self.due
        by_parts = ("clipped_apart",) if has_parts and longer and reaches_gradient else ()
        if movement.aside_p < self.risk:
            # the movement is not along the record's gradient, whatever its length
            others = "moves_others" if self.stated.rate == 1 else "moves_batches"
            causes = (*ROWS[: signal.assumed], *by_parts, others, "not_clipped_alone", "counted_again")
            causes += ("another_rate",) if self.stated.rate < 1 else ()
            direction = " ({:.3g} along its own gradient)"
        else:
            causes = ("larger_bound", *by_parts, "not_clipped_alone", "counted_again")
            unclipped_length = self.stated.rate * signal.unclipped
            unclipped = (
                longer
                and abs(self.moved - unclipped_length) <= (self.error + CLOSE) * unclipped_length
                and movement.mean > 0
            )
            causes = ("not_clipped", *causes) if unclipped else causes
            if self._is_unclipped(causes):
                direction = ", as its gradient does without clipping,"
            elif movement.mean < 0:
                direction = " (against its own gradient)"
        if has_parts and not by_parts:
            causes = (*causes, "clipped_apart")
        order = ("not_clipped", *self._fitting())
        first = tuple(cause for cause in order if cause in causes)
        return (*first, *(cause for cause in causes if cause not in first)), direction

    def _copies(self) -> bool:
        """Whether the record moves the sum like a whole number of copies of it, and like no other number."""
        copies, reach = round(self.moved / self.due), COPIES * self.found.whole.error * self.divisor
        reach += CLOSE * self.moved
        return copies > 1 and reach < self.due / 4 and abs(self.moved - copies * self.due) <= reach

    def _as_far(self, length: float) -> bool:
        """Whether the record may move the sum by this length, which is more than it may."""
        return abs(self.moved - length) <= (self.error + CLOSE) * self.moved and length > self.due

    def _fitting(self) -> tuple[str, ...]:
        """Causes that predict the measured movement: copies, another bound, parts clipped separately."""
        bound, scale = self.stated.clip * self.moved / self.due, self.stated.rate / self.divisor
        ends = [bound * (1 + sign * min(self.error, 1.0)) for sign in (-1, 1)]
        others = [scale * others_at_bound(self.signal, self.stated, max(end, self.stated.clip)) for end in ends]
        # another bound shows only in other records whose gradients exceed the stated one
        another_bound = not self._others_may_be(times=1 / self.divisor) and self._others_between(*others)
        parts = [self.stated.rate * float(np.linalg.norm(part)) for part in self.signal.by_parts.values()]
        explained = {
            "counted_again": self._copies(),
            "larger_bound": another_bound,
            "clipped_apart": any(map(self._as_far, parts)),
        }
        return tuple(cause for cause, fits_movement in explained.items() if fits_movement)
