"""Random shuffling against an adversary who has subtracted all other records: the pair of [vandijk2026; ertan2026]."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr

from guarantees.checks import Count, Positive, checked, require
from guarantees.claim import Claim, unusual
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import Certificate, LossLaw, Tails, invert
from guarantees.numerics.array import Array
from guarantees.shuffling.isolated_leaked import leaked_law
from guarantees.shuffling.lognormal_lattice import FARTHEST, Bracket, Window
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import Relation

OBSERVATION = (
    "every round's noisy sum minus the sum of all other records' clipped gradients (known to the adversary), "
    "projected on the record's gradient: N(0,1)^M without the record, one uniformly chosen coordinate shifted "
    "by 1/noise_multiplier with it"
)
SMALLEST = 1e-300
"""Smallest likelihood ratio that is followed."""


@dataclasses.dataclass(frozen=True)
class IsolatedShuffleLaw(LossLaw):
    """The loss ``ln L``, L the mean of ``rounds`` lognormals of mean 1, on windows computed on first use.

    Each window is a lattice law that dominates the truth, so every delta errs upwards; ``bracket`` brackets it.
    Ratios up to 1 are counted from below, larger ones from above, so that small tails keep their relative precision.
    """

    rounds: int
    noise_multiplier: float
    _windows: dict[tuple[bool, int], Window] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def deviation(self) -> float:
        """Standard deviation of L without the record."""
        return float(np.sqrt(np.expm1(min(1 / self.noise_multiplier**2, 600.0)) / self.rounds))

    @property
    def _width(self) -> float:
        """Distance from 1 that the nearest windows reach."""
        return min(12 * self.deviation, 1.0)

    def _points(self, place: int) -> int:
        # few rounds decide where the deviation is large: then a coarse lattice does
        if self.deviation > 3:
            return 2**17 if self.deviation < 1000 else 2**16
        points = 2**19 if self.rounds <= 10**4 else 2**20 if self.rounds <= 10**6 else 2**21
        # twelve deviations away next to nothing is left to resolve, and little at a ratio of hundreds
        return points // 8 if place and self._width < 1 else points // 4 if place > 2 else points

    @cached_property
    def _tops(self) -> Array:
        """Upper ends of the windows above 1."""
        width, growth = self._width, 4.0 if self._width < 1 else 8.0
        farthest = np.exp(min((FARTHEST + 0.5 / self.noise_multiplier) / self.noise_multiplier, 600.0))
        count = int(np.ceil(np.log(max(farthest / width, growth)) / np.log(growth))) + 1
        return 1 + width * growth ** np.arange(count)

    @cached_property
    def _bottoms(self) -> Array:
        """Lower ends of the windows below 1, downwards."""
        ends = []
        while (end := 1 - self._width * 4.0 ** len(ends)) >= 0.25:
            ends.append(end)
        last = ends[-1] if ends else 1.0
        return np.array([*ends, *(last / 8.0 ** np.arange(1, 340))])

    def _window(self, upper: bool, place: int) -> Window:
        if (upper, place) not in self._windows:
            narrow, spread = self._width < 1, self.deviation
            before = float(self._tops[place - 1]) if upper and place else 1.0
            if upper:
                low, high = (1 - 8 * spread if narrow else 0.0), float(self._tops[place])
                # nearer to 1, where the tile has most of its mass: round-off is relative to that
                target = before + min(3 * spread, (high - before) / 4)
            else:
                end = float(self._bottoms[place])
                high = float(self._bottoms[place - 1]) if place else 1.0
                low = end - 4 * spread if end >= 0.25 and end > 8 * spread else 0.0
                target = high - min(3 * spread, (high - end) / 4) if place else 1.0
            self._windows[upper, place] = Window(
                rounds=self.rounds,
                noise_multiplier=self.noise_multiplier,
                low=low,
                high=high,
                target=target,
                points=self._points(place),
                jumps_above=before if upper and place else None,
            )
        return self._windows[upper, place]

    def window(self, ratio: float) -> Window:
        """The window that resolves a likelihood ratio."""
        return self._groups(np.array([ratio]))[0][0]

    def _groups(self, ratio: Array) -> list[tuple[Window, bool, Array]]:
        """Windows, whether each lies above 1, and which of the ratios it resolves."""
        upper = ratio >= 1
        place = np.where(
            upper, np.searchsorted(self._tops, ratio), np.searchsorted(-self._bottoms, -ratio, side="right")
        )
        place = np.minimum(place, np.where(upper, len(self._tops), len(self._bottoms)) - 1)
        return [
            (self._window(above, int(one)), above, np.flatnonzero((upper == above) & (place == one)))
            for above in (False, True)
            for one in np.unique(place[upper == above])
        ]

    def _rates(self, ratio: Array) -> tuple[Array, Array]:
        """Rates without and with the record: at or below each ratio if it is below 1, else above it."""
        rates = np.zeros((2, len(ratio)))
        for window, upper, index in self._groups(ratio):
            rates[:, index] = window.above(ratio[index]) if upper else window.below(ratio[index])
        return rates[0], rates[1]

    @cached_property
    def _checked(self) -> float:
        """Disagreement of the two windows that meet at 1; refused if larger than their proven errors."""
        one = np.ones(1)
        lower, upper = self._window(False, 0), self._window(True, 0)
        below, above = lower.below(one)[0][0], upper.above(one)[0][0]
        parity = abs(float(lower.shortfall(one)[0] - upper.excess(one)[0]))
        allowed = lower.gap(1.0, 1.0) + upper.gap(1.0, 1.0) + 10 * (lower.roundoff(1.0) + upper.roundoff(1.0))
        coarse = 1e-9 + 4 * (lower.largest_mass + upper.largest_mass)
        if not (parity <= allowed and abs(below + above - 1) <= coarse):
            raise ArithmeticError(
                f"the lattice law of {self} contradicts itself: total variation by {parity:.1e} (allowed "
                f"{allowed:.1e}), mass by {below + above - 1:.1e} (allowed {coarse:.1e})."
            )
        return parity

    def tails(self, threshold: Array) -> Tails:
        """Tails as sums over lattice points: from below under ratio 1, from above over it; the rest by complement."""
        t = np.asarray(threshold, float)
        flat = np.atleast_1d(t).ravel()
        self._checked  # noqa: B018
        upper, top = flat >= 0, np.log(self._tops[-1])
        small = np.zeros((2, flat.size))
        inside = (flat > np.log(SMALLEST)) & (flat < top)
        small[:, inside] = self._rates(np.exp(flat[inside]))
        small[1, flat >= top] = self._single_round(flat[flat >= top])
        small = np.clip(small, 0.0, 1.0)
        without, with_record = small.reshape(2, *t.shape)
        upper = upper.reshape(t.shape)
        return Tails(
            without_above=np.where(upper, without, 1 - without),
            without_below=np.where(upper, 1 - without, without),
            with_above=np.where(upper, with_record, 1 - with_record),
            with_below=np.where(upper, 1 - with_record, with_record),
        )

    def _single_round(self, loss: Array) -> Array:
        """Delta of a single round, which is a bound: all that is known beyond the last window (below 1e-27)."""
        s = self.noise_multiplier
        z = s * np.minimum(loss, 1e5) + 0.5 / s
        return np.maximum(ndtr(1 / s - z) - np.exp(np.minimum(loss, 1e5) + log_ndtr(-z)), 0.0)

    @property
    def noise(self) -> float:
        """The smallest delta that is not lost in round-off: the part of ``error`` that is no lattice's.

        Each window has its own round-off, and those far from a ratio of 1 have little.
        """
        return self._smallest

    @cached_property
    def _smallest(self) -> float:
        found = 0.0
        for upper, ends in ((True, self._tops), (False, self._bottoms)):
            begin, lost = 1.0, 0.0
            for place, end in enumerate(ends.tolist()):
                window = self._window(upper, place)
                # of tails, hence below 1 of the shortfall over the ratio, which is the delta
                lost = window.roundoff(begin)
                left = float((window.excess if upper else window.shortfall)(np.array([end]))[0]) / min(end, 1.0)
                begin = end
                if left <= max(lost, 1e-20):
                    break
            found = max(found, lost)
        return found

    @property
    def error(self) -> float:
        """Bound of every delta's error: what the lattice may add, proven, and round-off, estimated."""
        return self._worst

    @cached_property
    def _worst(self) -> float:
        worst = self._checked
        for upper, ends in ((True, self._tops), (False, self._bottoms)):
            begin = 1.0
            for place, end in enumerate(ends):
                window = self._window(upper, place)
                delta = float((window.excess if upper else window.shortfall)(np.array([begin]))[0]) / min(begin, 1.0)
                if delta <= worst:
                    break
                parts = np.geomspace(begin, float(end), 4)
                gap = max(
                    window.gap(min(a, b), max(a, b)) / min(a, b, 1.0)
                    for a, b in zip(parts.tolist(), parts[1:].tolist(), strict=False)
                )
                worst = max(worst, min(gap + 2 * window.roundoff(begin), delta))
                begin = float(end)
        return worst

    def threshold(self, alpha: Array) -> Array:
        """Threshold by root search."""
        return invert(self.tails, alpha, start=min(1.0, 10 * self.deviation))

    @property
    def certificate(self) -> Certificate:
        """The proven sides: the curve is on or below the truth by construction, that of ``leaked`` on or above it."""
        return Certificate(
            proved="rounding each round onto a lattice keeps its mean, so every delta is at least the truth",
            estimated="FFT round-off and wrap-around",
            round_off=self.window(1.0).roundoff(1.0),
            safe=self,
            leaked=self._leaked,
        )

    @cached_property
    def _leaked(self) -> DiscreteLaw:
        return leaked_law(self._readings(True), self._readings(False))

    def _readings(self, upper: bool) -> Iterator[tuple[Window, float, float]]:
        """Windows on one side of 1, each with the ratios that it resolves, outwards."""
        begin = 1.0
        for place, end in enumerate((self._tops if upper else self._bottoms).tolist()):
            yield self._window(upper, place), begin, end
            begin = end

    def bracket(self, epsilon: float, *, reverse: bool = False) -> Bracket:
        """Bracket of ``delta(epsilon)``, with_given_without or (``reverse``) without_given_with.

        ``D(with||without) = E (L - h)^+`` at ``h = e^eps``; ``D(without||with) = e^eps E (e^-eps - L)^+``.
        """
        ratio = float(np.exp(-epsilon if reverse else epsilon))
        window, upper, _ = self._groups(np.array([ratio]))[0]
        at, scale = np.array([ratio]), 1 / ratio if reverse else 1.0
        value = float((window.excess(at) if upper else window.shortfall(at))[0]) * scale
        gap = window.gap(ratio, ratio) * scale
        return Bracket(
            lower=max(0.0, value - gap),
            upper=max(0.0, value),
            proved="rounding each round onto the lattice can only raise delta, by at most upper - lower",
            estimated=f"FFT round-off and wrap-around, about {2 * window.roundoff(ratio):.0e}",
        )


def _single_epoch(rounds: int, noise_multiplier: float) -> IsolatedShuffleLaw:
    require("rounds", isinstance(rounds, int | np.integer) and rounds >= 1, "an integer >= 1", rounds)
    require("rounds", rounds <= 10**8, "at most 1e8 (the asymptotic mu is exact to 1e-8 beyond)", rounds)
    require("noise_multiplier", noise_multiplier >= 0.1, ">= 0.1 (below, everything is revealed)", noise_multiplier)
    return IsolatedShuffleLaw(int(rounds), float(noise_multiplier))


@checked
def isolated_shuffle(*, rounds: int, noise_multiplier: float, epochs: Count = 1) -> Claim:
    """Exact numerics of shuffling for one record with all others subtracted. [vandijk2026, section 3; ertan2026]

    H0: N(0,1)^M; H1: one uniform coordinate shifted by 1/sigma; ``L = mean exp(x_j/sigma - 1/(2 sigma^2))``;
    ``TV = E0 (1 - L)^+``. The curve errs towards less privacy, by at most ``error``.

    This observation model is NOT fixed-batch shuffled DP-SGD: there the other records betray where the record is
    not, and ``fixed_batch_shuffle`` leaks more.

    Args:
      rounds: M, batches in one epoch, from 1 to 1e8.
      noise_multiplier: sigma, standard deviation of the noise over the clipping norm, at least 0.1.
      epochs: epochs, each reshuffled independently, at least 1.

    Returns:
      The claim, for zero_out neighbours. Answers take some seconds.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.isolated_shuffle(rounds=10, noise_multiplier=1.0)
      >>> round(claim.law.bracket(0.5).upper, 4)  # delta at epsilon 0.5, with a proven bracket
      0.0269
    """
    single = _single_epoch(rounds, noise_multiplier)
    curve = TradeOff(GaussianLaw(mu=1 / noise_multiplier) if rounds == 1 else single)
    return Claim(
        curve=curve.compose(int(epochs)),
        name="isolated_shuffle",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "epochs": epochs},
        relation="zero_out",
        unit="epoch" if epochs == 1 else "training",
        steps=int(rounds) * int(epochs),
        observation=OBSERVATION,
        source="vandijk2026, section 3 and appendix B; ertan2026, proposition 4.3",
    )


@checked
def isolated_bracket(*, rounds: int, noise_multiplier: Positive, epsilon: float, reverse: bool = False) -> Bracket:
    """Proven bracket of one delta of ``isolated_shuffle`` for one epoch (``reverse``: without_given_with)."""
    require("epsilon", 0 <= epsilon <= 60, "in [0, 60]", epsilon)
    return _single_epoch(rounds, noise_multiplier).bracket(epsilon, reverse=reverse)


def true_rounds_needed(*, delta: float, noise_multiplier: float) -> int:
    """Smallest number of rounds with total variation at most ``delta`` for the 0/1 pair.

    Total variation decreases in the rounds (one more round is a garbling); it is searched along its asymptotic
    slope, ``TV ~ rounds^(-1/2)``. Errs upwards by the lattice's error.
    """

    def variation(rounds: int) -> float:
        window = _single_epoch(rounds, noise_multiplier).window(1.0)
        finer = dataclasses.replace(window, points=2**21 if rounds > 10**4 else window.points)
        return float(finer.excess(np.ones(1))[0])

    low, high = 1, 10**8
    guess = int(np.clip(np.expm1(1 / noise_multiplier**2) / (2 * np.pi * delta**2), 2, high - 1))
    while high - low > 1:
        value = variation(guess)
        low, high = (low, guess) if value <= delta else (guess, high)
        step = guess * ((value / delta) ** 2 - 1)
        # one beyond the predicted root, so that the bracket closes from both sides
        guess = int(np.clip(np.floor(guess + step + (1 if value > delta else -1)), low + 1, max(high - 1, low + 1)))
    require("delta", high < 10**8, "reached within 1e8 rounds at this noise_multiplier", delta)
    return high


@checked
def balls_and_bins(*, rounds: int, noise_multiplier: float, epochs: int = 1, relation: Relation = "zero_out") -> Claim:
    """Each record in one uniformly drawn batch per epoch, independently of the others. [chua2025]

    Where a record lies tells nothing about the others, so the 0/1 pair of ``isolated_shuffle`` dominates whatever
    the others do, and the promise holds for zero-out and add/remove neighbours. It does NOT hold for batches of
    fixed size, however shuffled.

    Args:
      rounds: batches in one epoch, from 1 to 1e8.
      noise_multiplier: standard deviation of the noise over the clipping norm, at least 0.1.
      epochs: how often all records are assigned again, at least 1.
      relation: which neighbours the promise is for; it is proved for ``"zero_out"`` and ``"add_remove"`` only.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.balls_and_bins(rounds=1, noise_multiplier=2.0, epochs=4)
      >>> round(claim.epsilon(1e-5), 2)  # one batch an epoch hides nothing: four times 0.5-GDP is 1-GDP
      4.38
    """
    isolated = isolated_shuffle(rounds=rounds, noise_multiplier=noise_multiplier, epochs=epochs)
    return dataclasses.replace(
        isolated,
        name="balls_and_bins",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "epochs": epochs}
        | unusual(relation, "zero_out"),
        relation=relation,
        observation="all noisy batch sums, every record's batch drawn independently and uniformly each epoch",
        source="chua2025",
    )
