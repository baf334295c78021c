"""Random shuffling seen by an adversary who has subtracted everybody else: the 0/1 pair of [vandijk2026; ertan2026]."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr

from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.laws.law import Certificate, LossLaw, SimpleLaw, Tails, invert
from guarantees.laws.textbook import GaussianLaw
from guarantees.numerics.array import Array
from guarantees.shuffling.epochs import compose_epochs
from guarantees.shuffling.lognormal_lattice import Bracket, Window
from guarantees.trade_off import TradeOff

OBSERVATION = (
    "every round's noisy sum minus the sum of all other records' clipped gradients (known to the adversary), "
    "projected on the record's gradient: N(0,1)^M without the record, one uniformly chosen coordinate shifted "
    "by 1/noise_multiplier with it"
)


@dataclasses.dataclass(frozen=True)
class IsolatedShuffleLaw(SimpleLaw):
    """The loss ``ln L``, L the mean of ``rounds`` lognormals of mean 1, on windows computed when first asked for.

    Each window is a lattice law that dominates the truth, so every delta errs upwards; ``bracket`` brackets
    it.
    """

    rounds: int
    noise_multiplier: float
    _windows: dict[int, Window] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def deviation(self) -> float:
        """Standard deviation of L without the record."""
        return float(np.sqrt(np.expm1(1 / self.noise_multiplier**2) / self.rounds))

    @property
    def error(self) -> float:
        """Width of the proven bracket of total variation; wider windows (large losses) have wider ones."""
        return self.window(1.0).gap(1.0) + self.roundoff

    def _rungs(self, ratio: Array) -> Array:
        """Which window resolves each ratio: widths grow fourfold away from 1, tops shrink eightfold towards 0."""
        reach = min(10 * self.deviation, 1.0)
        distance = np.maximum(np.abs(ratio - 1), 1e-300)
        rung = np.maximum(0.0, np.ceil(np.log2(distance * 1.02 / reach) / 2))
        if reach == 1.0:
            rung = np.where(ratio < 0.25, np.ceil(np.log2(np.maximum(ratio, 1e-300)) / 3) - 1, rung)
        return rung.astype(int)

    def _window(self, rung: int) -> Window:
        if rung not in self._windows:
            reach = min(10 * self.deviation, 1.0) * 4.0**rung
            edges = (max(0.0, 1 - reach), 1 + reach) if rung >= 0 else (0.0, 2 * 8.0 ** (rung + 1))
            self._windows[rung] = Window(self.rounds, self.noise_multiplier, *edges)
        return self._windows[rung]

    def window(self, ratio: float) -> Window:
        """The window that resolves a likelihood ratio."""
        return self._window(int(self._rungs(np.array(ratio))))

    def _groups(self, ratio: Array) -> list[tuple[Window, Array]]:
        rungs = self._rungs(ratio)
        return [(self._window(int(rung)), np.flatnonzero(rungs == rung)) for rung in np.unique(rungs)]

    def shortfall(self, ratio: Array) -> Array:
        """``E (ratio - L)^+`` without the record: never below the truth but for round-off."""
        value = np.zeros(len(ratio))
        for window, index in self._groups(ratio):
            value[index] = window.shortfall(ratio[index])
        return value

    @property
    def _top(self) -> float:
        """A loss that L exceeds with probability below 1e-16 even with the record: no round is that large."""
        far = max(1 / self.noise_multiplier + 9.0, 11.0)
        return (far - 0.5 / self.noise_multiplier) / self.noise_multiplier

    @cached_property
    def resolved(self) -> float:
        """Largest loss at which round-off stays below 3% of delta, in steps of 1/2.

        Beyond it the law is coarsened into mass at infinite loss, which only raises delta; and never above the
        delta of a single round, which dominates.
        """
        loss = 3.0
        while loss < self._top:
            ratio = np.exp(loss + 0.5)
            delta = 1 - ratio + float(self.shortfall(np.array([ratio]))[0])
            if self.roundoff * ratio > 0.03 * delta:
                break
            loss += 0.5
        return loss

    @property
    def roundoff(self) -> float:
        """Estimated absolute round-off of a tail: up to 2e-12 was seen at few rounds; it grows with the rounds."""
        return 2e-12 * max(1.0, self.rounds / 3000)

    def tails(self, threshold: Array) -> Tails:
        """Sums over the lattice points below; what lies above follows from the totals."""
        t = np.asarray(threshold, float)
        flat = np.atleast_1d(t).ravel()
        below = np.zeros((2, flat.size))
        below[:, flat >= self._top] = 1.0
        inside = (flat > -80.0) & (flat < self._top)
        beyond = inside & (flat > 3.0) & (flat > (self.resolved if np.any(inside & (flat > 3.0)) else 0.0))
        losses = np.where(beyond, self.resolved if beyond.any() else 0.0, flat)[inside]
        for window, index in self._groups(np.exp(losses)):
            below[:, np.flatnonzero(inside)[index]] = window.below(np.exp(losses[index]))
        if beyond.any():
            below[:, beyond] = np.stack([np.ones(beyond.sum()), 1 - self._far_delta(flat[beyond])])
        without, with_record = np.clip(below, 0.0, 1.0).reshape(2, *t.shape)
        return Tails(
            without_above=1 - without,
            without_below=without,
            with_above=1 - with_record,
            with_below=with_record,
        )

    def reach(self) -> tuple[float, float]:
        """Losses below and above which next to nothing happens in one epoch, or nothing is resolved."""
        step = min(0.5, 2 * self.deviation)
        low, high = -step, step
        while low > -60 and float(self.shortfall(np.exp([low]))[0]) > 1e-14:
            low -= step
        while high < min(self._top, 3.0 if self.deviation < 0.3 else self.resolved):
            ratio = np.exp([high])
            if 1 - ratio[0] + float(self.shortfall(ratio)[0]) < self.roundoff:
                break
            high += step
        return low, high

    def _far_delta(self, loss: Array) -> Array:
        """Upper bound of delta beyond the resolved losses: the last resolved one, or that of a single round."""
        ratio = np.exp(self.resolved)
        last = 1 - ratio + float(self.shortfall(np.array([ratio]))[0])
        z = self.noise_multiplier * loss + 0.5 / self.noise_multiplier
        single = ndtr(1 / self.noise_multiplier - z) - np.exp(loss + log_ndtr(-z))
        return np.clip(single, 0.0, last)

    def compose(self, times: int) -> LossLaw:
        """Independently reshuffled epochs."""
        return self if times == 1 else compose_epochs(self, times)

    def threshold(self, alpha: Array) -> Array:
        """By root search."""
        return invert(self.tails, alpha, start=min(1.0, 10 * self.deviation))

    @property
    def certificate(self) -> Certificate:
        """The curve is on or below the truth by construction; how far is told by ``bracket``."""
        return Certificate(
            proved="rounding each round onto a lattice keeps its mean, so every delta is at least the truth",
            estimated="FFT round-off and wrap-around",
            round_off=self.roundoff,
            safe=self,
        )

    def bracket(self, epsilon: float, *, reverse: bool = False) -> Bracket:
        """Bracket of ``delta(epsilon)``, with_given_without or (``reverse``) without_given_with.

        ``D(with||without) = 1 - h + E (h - L)^+`` at ``h = e^eps``; ``D(without||with) = e^eps E (e^-eps - L)^+``.
        """
        ratio = np.exp(-epsilon if reverse else epsilon)
        window = self.window(float(ratio))
        shortfall, gap = float(window.shortfall(ratio)), window.gap(float(ratio))
        upper, scale = (shortfall / ratio, 1 / ratio) if reverse else (1 - ratio + shortfall, 1.0)
        return Bracket(
            lower=max(0.0, upper - scale * gap),
            upper=max(0.0, upper),
            proved="rounding each round onto the lattice can only raise delta, by at most upper - lower",
            estimated=f"FFT round-off and wrap-around, about {scale * self.roundoff:.0e}",
        )


def _single_epoch(rounds: int, noise_multiplier: float) -> IsolatedShuffleLaw:
    require("rounds", isinstance(rounds, int | np.integer) and rounds >= 1, "an integer >= 1", rounds)
    require("rounds", rounds <= 10**8, "at most 1e8 (the asymptotic mu is exact to 1e-8 beyond)", rounds)
    require("noise_multiplier", noise_multiplier >= 0.1, ">= 0.1 (below, everything is revealed)", noise_multiplier)
    return IsolatedShuffleLaw(int(rounds), float(noise_multiplier))


def isolated_shuffle(*, rounds: int, noise_multiplier: float, epochs: int = 1) -> Claim:
    """Shuffling for one record with all others subtracted, by exact numerics. [vandijk2026, section 3; ertan2026]

    H0: N(0,1)^M; H1: one uniform coordinate shifted by 1/sigma; ``L = mean exp(x_j/sigma - 1/(2 sigma^2))``;
    ``TV = E0 (1 - L)^+``. Epochs are reshuffled independently. The curve errs towards less privacy, by at most
    ``error``.

    This observation model is NOT fixed-batch shuffled DP-SGD: there the other records betray where the record is
    not, and ``fixed_batch_shuffle`` leaks more.
    """
    single = _single_epoch(rounds, noise_multiplier)
    require("epochs", isinstance(epochs, int | np.integer) and epochs >= 1, "an integer >= 1", epochs)
    gaussian = GaussianLaw(mu=float(np.sqrt(epochs)) / noise_multiplier)
    law = gaussian if rounds == 1 else single.compose(int(epochs))
    return Claim(
        curve=TradeOff(law),
        name="isolated_shuffle",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "epochs": epochs},
        relation="zero_out",
        unit="epoch" if epochs == 1 else "training",
        observation=OBSERVATION,
        source="vandijk2026, section 3 and appendix B; ertan2026, proposition 4.3",
    )


def isolated_bracket(*, rounds: int, noise_multiplier: float, epsilon: float, reverse: bool = False) -> Bracket:
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
        return float(finer.shortfall(np.array(1.0)))

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
