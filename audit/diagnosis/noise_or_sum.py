"""Whether there is enough noise for how far the record moves the sum, and which of the two is off if there is not."""

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
"""Share by which a gradient exceeds the bound, and a movement is known, where the one is told from the other."""
LARGEST_DIVISOR = 1e6
"""Beyond it there is no noise to speak of, whatever it is divided by."""
COPIES = 2.0
"""Standard errors within which the record moves the sum like so many copies."""
OF_NOISE = ("less_noise", "less_beside")


def noise_over_sensitivity(found: Movement, signal: Signal, stated: Stated, *, risk: float) -> Diagnosis:
    """Noise deviation over what the record moves, against noise multiplier times clip over its clipped length.

    A constant divisor is in both and drops out: ``m <= q L s / (sigma C)``, by a t test with the smaller degrees of
    freedom; m is how far the mean moves, in whatever direction, s the noise's deviation, L the length that is due.
    """
    found = found if stated.divisor is None else found.times(stated.divisor)
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
        what, causes = _Compared(found=found, signal=signal, stated=stated, reach=reach, risk=risk).off()
        times = f"times the stated divisor of {stated.divisor:g}, " if stated.divisor not in (None, 1) else ""
        measured = f"noise over sensitivity is {ratio:.2g} of what is expected ({limits}); {times}{what}"
        rates = Rates.of(found, signal, stated)
        if signal.rounds > 1 and stated.rate < 1:
            causes = tuple(dict.fromkeys((*causes, "another_rate")))
        elif (stated.divisor is None or not set(causes) <= set(OF_NOISE)) and rates.may_explain(stated.rate, risk):
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Compared:
    """Noise, the record's movement and the other records' mean, beside what each explanation makes of them.

    A divisor is in all three. So what is off is the one that the other two contradict: where the record and the others
    move the release alike, the noise, or all sums beside it; where the noise and the others agree, the record.
    """

    found: Movement
    signal: Signal
    stated: Stated
    reach: float
    """Of the record's movement, beside the noise."""
    risk: float

    @property
    def due(self) -> float:
        """How far the record may move the mean."""
        return self.stated.rate * self.signal.length

    @property
    def divisor(self) -> float:
        """Of the release, if the noise is as stated."""
        return self.stated.deviation / max(self.found.noise, 1e-300)

    @property
    def moved(self) -> float:
        """The sum, by the record, if the noise is as stated."""
        return self.found.whole.length * self.divisor

    @property
    def error(self) -> float:
        """The relative one of that."""
        return self.reach / max(self.found.whole.length, 1e-300)

    def off(self) -> tuple[str, tuple[str, ...]]:
        """Which of the two is off, and why that may be, the likeliest cause first."""
        found, stated, length = self.found, self.stated, self.due
        moved, divisor = found.whole.length, self.divisor
        due = f"where {length:.3g} is expected"
        if stated.rate < 1:
            due = f"on average where {length:.3g} is expected at rate {stated.rate:g}"
        too_far, turned = self._too_far()
        alike = self._alike()
        if abs(found.noise - stated.deviation) <= CLOSE * stated.deviation:
            what = f"the noise has its stated deviation of {stated.deviation:.3g}, but the record moves the sum by "
            what += f"{moved:.3g}{turned.format(found.mean)} {due}"
            if not alike:
                return what, self._first(too_far)
            if self._others_may_be(looser=True):
                return what, self._first((*too_far, "sum_scaled"))
            copies = ("counted_again", "sum_scaled") if self._copies() else ("sum_scaled", "counted_again")
            return f"{what}; the other records move it as many times too far", copies
        divided = f"the release is divided by {divisor:.3g} and the record moves the sum by {self.moved:.3g}"
        divided += f"{turned.format(found.mean * divisor)} {due}"
        undivided, as_noise = self._others_may_be(), self._others_may_be(times=1 / divisor)
        by_it = self._others_may_be(times=1 / divisor, looser=True)
        # neither all of the other records' sum nor that over the noise's divisor: something else may scale it
        scaled = () if undivided or as_noise else ("sum_scaled",)
        if abs(moved - length) <= self.reach:
            what = f"the noise has deviation {found.noise:.3g} where {stated.deviation:.3g} is expected"
            if divisor > LARGEST_DIVISOR or not by_it:
                return what, self._first((*self._less(1.0), *scaled))
            if undivided and stated.divisor is not None:
                return what, self._less(1.0)
            if undivided or not as_noise:
                return f"{what}, or {divided}", self._first((*self._less(1.0), *too_far, *scaled))
            return divided, self._first(too_far)
        if divisor <= LARGEST_DIVISOR and by_it and ((as_noise and not alike) or self._is_unclipped(too_far)):
            return divided, self._first((*too_far, *(self._less(moved / length) if alike else scaled)))
        what = f"the noise has deviation {found.noise:.3g} where the record moves the release by {moved:.3g}"
        what += f"{turned.format(found.mean)}{'' if stated.rate == 1 else ' on average'}; {stated.deviation:.3g} would "
        what += f"be due where it moves it by {length:.3g}"
        if not alike:
            return what, self._first((*scaled, *OF_NOISE, *too_far))
        little, *beside = self._less(moved / length)
        fit = tuple(own for own in self._fitting() if own in too_far)
        return what, self._first((little, *fit, "sum_scaled", *beside, *too_far))

    def _less(self, scale: float) -> tuple[str, ...]:
        """Too little noise, of a release at this scale; along the gradient it is no more than all that varies there."""
        square = self.found.degrees * (self.found.along / (scale * self.stated.deviation)) ** 2
        return OF_NOISE[:1] if chi2.cdf(square, self.found.degrees) < self.risk else OF_NOISE

    def _first(self, causes: tuple[str, ...]) -> tuple[str, ...]:
        """The causes, behind one that says how far the record and the others move the sum, and is right in both.

        Where the others move the release as the record does, something that is simpler explains that.
        """
        signal, stated, first = self.signal, self.stated, list[str]()
        if self._is_unclipped(causes) or signal.rounds > 1:
            return causes
        if stated.rate == 1:
            changes = signal.records != signal.records_with
            first += ["count_divides"] * (changes and self._may_be(mean_of_the_batch(signal, stated)))
        elif not self._alike():
            first += ["sum_scaled"] * self._may_be(mean_of_the_batch(signal, stated))
            first += ["sum_clipped"] * self._may_be(clipped_sum(signal, stated), self.divisor)
        return tuple(dict.fromkeys((*first, *causes)))

    def _is_unclipped(self, causes: tuple[str, ...]) -> bool:
        """Whether it is known well that the record moves the sum as far as its unclipped gradient does."""
        return "not_clipped" in causes and self.error < LONGER

    def _may_be(self, explained: Explained | None, divisor: float = 1.0) -> bool:
        """Whether both the record and the others move the mean so."""
        if explained is None or not np.any(self.signal.others):
            return False
        moved = explained.moved / divisor
        near = abs(self.found.whole.length - moved) <= self.reach + CLOSE * moved
        return near and self._others_between(explained.others / divisor, explained.others / divisor)

    def _others_may_be(self, *, times: float = 1.0, looser: bool = False) -> bool:
        """Whether the others' sum, so many times as large, may be what moves the mean; so where it tells nothing.

        Clipped as stated, or ``looser``.
        """
        size = float(np.linalg.norm(self.signal.others))
        if size == 0:
            return True
        low, high = (self.stated.rate * times * end for end in (self.signal.others_looser if looser else (size, size)))
        return self._others_between(low, high, spare=CLOSE * self.stated.rate * times * size)

    def _alike(self) -> bool:
        """Whether the others may move the release as many times too far, or too little, as the record does."""
        size = self.found.whole.length / self.due * self.stated.rate * float(np.linalg.norm(self.signal.others))
        return not size or self._others_between(size, size, error=self.error * size)

    def _others_between(self, low: float, high: float, *, spare: float | None = None, error: float = 0.0) -> bool:
        reach = math.hypot(float(student.isf(self.risk / 2, self.found.degrees)) * self.found.others_error, error)
        reach += CLOSE * abs(high) if spare is None else spare
        return low - reach <= self.found.others <= high + reach

    def _too_far(self) -> tuple[tuple[str, ...], str]:
        """Why the record may move the sum so far, the likeliest first, and what to say beside that length.

        Parts of a gradient that are clipped by themselves are together longer than the bound, and go along the gradient
        as far as it or farther: so they come early, if it has parts and is longer than the bound.
        """
        turned, found, signal = "", self.found, self.signal
        longer, has_parts = (
            signal.unclipped > (1 + LONGER) * signal.length,
            np.count_nonzero(signal.moves) > signal.rounds,
        )
        ahead = found.mean * self.divisor >= (1 - self.error - CLOSE) * self.due
        apart = ("clipped_apart",) if has_parts and longer and ahead else ()
        if found.aside_p < self.risk:
            # no length of the record's own gradient explains this
            others = "moves_others" if self.stated.rate == 1 else "moves_batches"
            causes = (*ROWS[: signal.assumed], *apart, others, "not_clipped_alone", "counted_again")
            causes += ("another_rate",) if self.stated.rate < 1 else ()
            turned = " ({:.3g} along its own gradient)"
        else:
            causes = ("larger_bound", *apart, "not_clipped_alone", "counted_again")
            whole = self.stated.rate * signal.unclipped
            unclipped = longer and abs(self.moved - whole) <= (self.error + CLOSE) * whole and found.mean > 0
            causes = ("not_clipped", *causes) if unclipped else causes
            if self._is_unclipped(causes):
                turned = ", as its gradient does without clipping,"
            elif found.mean < 0:
                turned = " (against its own gradient)"
        if has_parts and not apart:
            causes = (*causes, "clipped_apart")
        order = ("not_clipped", *self._fitting())
        return (*(own for own in order if own in causes), *(own for own in causes if own not in order)), turned

    def _copies(self) -> bool:
        """Whether the record moves the sum like a whole number of copies, which are told from one less or more."""
        copies, reach = round(self.moved / self.due), COPIES * self.found.whole.error * self.divisor
        reach += CLOSE * self.moved
        return copies > 1 and reach < self.due / 4 and abs(self.moved - copies * self.due) <= reach

    def _as_far(self, far: float) -> bool:
        return abs(self.moved - far) <= (self.error + CLOSE) * self.moved and far > self.due

    def _fitting(self) -> tuple[str, ...]:
        """Which causes say how far the sum is moved, and are right: copies, another bound, parts clipped one by one."""
        bound, scale = self.stated.clip * self.moved / self.due, self.stated.rate / self.divisor
        ends = [bound * (1 + sign * min(self.error, 1.0)) for sign in (-1, 1)]
        others = [scale * others_at_bound(self.signal, self.stated, max(end, self.stated.clip)) for end in ends]
        # only others that are longer than the stated bound show another one
        shows = not self._others_may_be(times=1 / self.divisor) and self._others_between(*others)
        parts = [self.stated.rate * float(np.linalg.norm(own)) for own in self.signal.by_parts.values()]
        fits = {
            "counted_again": self._copies(),
            "larger_bound": shows,
            "clipped_apart": any(map(self._as_far, parts)),
        }
        return tuple(cause for cause, right in fits.items() if right)
