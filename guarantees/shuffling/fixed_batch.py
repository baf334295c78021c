"""Shuffled fixed-size batches: numerics of the pair of [chua2024], a lower bound on what one shuffled epoch leaks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy.special import ndtri

from guarantees.checks import Count, Positive, checked, require
from guarantees.claim import Claim
from guarantees.laws.composition import composed_law
from guarantees.laws.consistency import InconsistentLawError, defect_of
from guarantees.laws.gaussian_and_laplace import GaussianLaw, gaussian_delta
from guarantees.laws.kept import kept
from guarantees.laws.law import Certificate, LossLaw, Tails, four
from guarantees.numerics.array import Array
from guarantees.shuffling.capped_lognormal_sums import CappedSum, Round
from guarantees.shuffling.fixed_batch_tails import Point, downward_tilt, tails_at
from guarantees.shuffling.lognormal_lattice import Bracket
from guarantees.shuffling.spline_law import SplineLaw
from guarantees.trade_off import TradeOff

T = TypeVar("T")
Rates = Callable[[Point], tuple[float, float]]
"""Function of a point that gives the rates above and below its threshold on one side."""
FARTHEST = 60.0
"""Losses beyond this are treated as never happening."""
CLOSE = 1e-4
"""How near, in normal quantiles, a threshold must come to its level; the curve's error is this squared."""


@dataclasses.dataclass(frozen=True, eq=False)
class FixedBatchLaw(LossLaw):
    """``ln P_S/Q_S`` with ``P_S`` the mean of N(2 e_t, s^2 I) and ``Q_S`` that of N(e_t, s^2 I) over t.

    Each threshold is computed once, when first asked for (0.05 to 0.5 s), and kept.
    """

    rounds: int
    noise_multiplier: float
    error: float = 1e-7
    """Estimated error: each threshold's own estimate is compared with it, and refused beyond."""
    _points: dict[float, Point] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def certificate(self) -> Certificate:
        """An estimate only; ``fixed_batch_bracket`` proves single deltas."""
        return Certificate(
            proved="nothing by itself; fixed_batch_bracket encloses any one delta",
            estimated="contour integrals that keep their identity, and lattices; quadrature agrees to about 1e-8",
            round_off=self.error,
        )

    @property
    def support(self) -> tuple[float, float]:
        """The unbounded range of losses, although only some are computed."""
        return -np.inf, np.inf

    def point(self, threshold: float) -> Point:
        """Tails at one threshold, cached."""
        if abs(threshold) > FARTHEST:
            above = 0.0 if threshold > 0 else 1.0
            return Point(
                without_above=above, without_below=1 - above, with_above=above, with_below=1 - above, error=0.0
            )
        if threshold not in self._points:
            found = tails_at(rounds=self.rounds, mu=1 / self.noise_multiplier, threshold=threshold)
            if not found.error <= self.error:
                raise InconsistentLawError(
                    f"the loss of fixed batches (rounds {self.rounds}, noise_multiplier {self.noise_multiplier:g}) is "
                    f"known only to {found.error:.1e} at {threshold:g}, not to {self.error:.0e}; "
                    "fixed_batch_bracket encloses a single delta there."
                )
            self._points[threshold] = found
        return self._points[threshold]

    def largest_error(self) -> float:
        """Largest estimated error among the thresholds computed; at most ``error``."""
        return max((point.error for point in self._points.values()), default=self.error)

    def tails(self, threshold: Array) -> Tails:
        """Tails by one contour integral or lattice per threshold."""
        t = np.asarray(threshold, float)
        points = (self.point(float(value)) for value in t.ravel())
        return four(lambda *rates: np.array(rates, float).reshape(t.shape), *points)

    @cached_property
    def _spline(self) -> SplineLaw:
        return SplineLaw(self, spacing=0.25, probes=8)

    def walked(self, way: tuple[float, ...], walk: Callable[[], T]) -> T:
        """The walk's result; where laws are cached, its thresholds are known from an earlier process."""
        known = kept("points of fixed batches", (self, way), lambda: self._visited(walk), holds=_are_points)
        self._points.update({float(threshold): Point(*map(float, point)) for threshold, *point in known})
        return walk()

    def _visited(self, walk: Callable[[], Any]) -> Array:
        """All thresholds that the walk visits, with tails and error, one row each."""
        before = dict(self._points)
        self._points.clear()
        walk()
        rows = np.array([(threshold, *dataclasses.astuple(point)) for threshold, point in self._points.items()])
        self._points.update(before)
        return rows

    @property
    def tabled(self) -> LossLaw:
        """A spline through some seventy thresholds, compared with the law at eight others."""
        return self._spline

    def compose(self, times: int) -> LossLaw:
        """Law of independently shuffled epochs, from a spline: composition needs a hundred thousand thresholds."""
        return self if times == 1 else composed_law([(SplineLaw(self), times)])

    def threshold(self, alpha: Array) -> Array:
        """Threshold at a level, by secant steps in normal quantiles between known thresholds."""
        return self._search(np.asarray(alpha, float), lambda p: (p.without_above, p.without_below))

    def reversed_threshold(self, alpha: Array) -> Array:
        """Threshold of the exchanged pair: on the negated loss."""
        found = self._search(1 - np.asarray(alpha, float), lambda p: (p.with_above, p.with_below))
        return -found

    def _search(self, alpha: Array, rates: Rates) -> Array:
        found = np.where(alpha <= 0, np.inf, -np.inf)
        inside = (alpha > 0) & (alpha < 1)
        for index in np.argwhere(inside):
            found[tuple(index)] = self._one(float(alpha[tuple(index)]), rates)
        return found

    def _one(self, alpha: float, rates: Rates) -> float:
        """Threshold whose rate above is about ``alpha``: through the nearest known ones, sometimes by halving."""

        def quantile(threshold: float) -> float:
            above, below = rates(self.point(threshold))
            return float(np.clip(-ndtri(above) if above < 0.5 else ndtri(below), -40, 40))

        goal, (low, high) = float(-ndtri(alpha)), self._start(quantile, float(-ndtri(alpha)))
        for step in range(60):
            guess = (low + high) / 2 if step % 4 == 3 else self._between(quantile, goal)
            middle = float(np.clip(guess, low + 0.02 * (high - low), high - 0.02 * (high - low)))
            value = quantile(middle)
            if abs(value - goal) < CLOSE or high - low < 1e-10:
                return middle
            low, high = (middle, high) if value < goal else (low, middle)
        return high

    def _between(self, quantile: Callable[[float], float], goal: float) -> float:
        """Threshold at a quantile, by a polynomial through the five nearest known ones."""
        known = {round(quantile(t), 6): t for t in self._points}
        nearest = sorted(known, key=lambda value: abs(value - goal))[:5]
        weights = [np.prod([(goal - b) / (a - b) for b in nearest if b != a]) for a in nearest]
        return float(np.dot(weights, [known[value] for value in nearest]))

    def _start(self, quantile: Callable[[float], float], goal: float) -> tuple[float, float]:
        """Known thresholds on both sides of the goal, found by stepping outwards if necessary."""
        known = sorted(self._points) or [0.0]
        below = [t for t in known if quantile(t) <= goal]
        above = [t for t in known if quantile(t) > goal]
        low, high, step = max(below, default=known[0]), min(above, default=known[-1]), 0.1
        while not below and quantile(low) > goal and low > -FARTHEST:
            low, high, step = max(low - step, -FARTHEST), low, 2 * step
        while not above and quantile(high) <= goal and high < FARTHEST:
            low, high, step = high, min(high + step, FARTHEST), 2 * step
        return low, high


def _are_points(rows: Array) -> bool:
    """Whether rows can be thresholds with tails: probabilities that sum to 1 and fall as a pair's do."""
    if rows.ndim != 2 or rows.shape[1] != 6 or not np.isfinite(rows).all():
        return False
    t, above0, below0, above1, below1, error = rows.T
    tails = Tails(without_above=above0, without_below=below0, with_above=above1, with_below=below1)
    return defect_of(t, tails) <= 4 * float(error.max())


@checked
def fixed_batch_shuffle(*, rounds: Count, noise_multiplier: float) -> Claim:
    """A lower bound on what one epoch of shuffled fixed-size batches leaks. [chua2024, equations 1 and 2]

    Data set: every other record at -1, the record at +1 ('with') or zeroed out ('without'); the batches without it
    sum to -b and betray where it is. A lower bound on the leak, and not the worst case that [conjecture 3.2] takes it
    for: adaptive queries leak more (``adaptive_shuffle``). NOT a guarantee: for that, ``fixed_batch_upper``.

    Args:
      rounds: batches in one epoch, at least 1.
      noise_multiplier: standard deviation of the noise over the clipping norm, at least 0.2.

    Returns:
      The claim, for one epoch and zero_out neighbours.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.fixed_batch_shuffle(rounds=2, noise_multiplier=1.0).delta(1.0), 4)
      0.1172
    """
    require("noise_multiplier", noise_multiplier >= 0.2, ">= 0.2 (numerics)", noise_multiplier)
    law = FixedBatchLaw(int(rounds), float(noise_multiplier))
    return Claim(
        curve=TradeOff(law if rounds > 1 else GaussianLaw(mu=1 / noise_multiplier)),
        name="fixed_batch_shuffle",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier},
        relation="zero_out",
        unit="epoch",
        steps=int(rounds),
        observation="all batch sums of one shuffled epoch with noise, all other records opposite: a leak at least",
        source="chua2024, equations 1 and 2",
    )


@checked
def fixed_batch_bracket(*, rounds: int, noise_multiplier: Positive, epsilon: float, reverse: bool = False) -> Bracket:
    """Proven bracket of one delta of ``fixed_batch_shuffle`` (``reverse``: without_given_with).

    ``D(Q||P) = e^(-mu^2/2) tau E[S^-]/T`` at ``tau = e^(1.5 mu^2 - eps)``; D(P||Q) by ``E S^+ = E S + E S^-``. Rounding
    ``r^2 - r`` onto a lattice with its mean kept can only raise ``E S^-``; by how much at most: the smaller of
    ``dx sqrt(T)/4`` and ``w P(|S| <= w)`` plus Hoeffding's tail beyond ``w = 4 dx sqrt T``. At large epsilons, where
    rounding hides the difference, only the delta of a shown round is left as the upper end.
    """
    require("rounds", rounds >= 2, ">= 2", rounds)
    require("epsilon", 0 <= epsilon <= 30, "in [0, 30]", epsilon)
    mu = 1 / noise_multiplier
    loss = -epsilon if reverse else epsilon
    round = Round(mu, 1.5 * mu**2 + loss)
    first, second = rounds * np.exp(-(mu**2) - loss), rounds * np.exp(-(mu**2) - 2 * loss)
    low = -min(rounds / 4, max(first - second, 0.0) + 12 * np.sqrt(rounds * np.exp(-2 * loss - mu**2)) + 0.5)
    cap = (1 + np.sqrt(1 - 4 * low)) / 2
    law = CappedSum(round, rounds, cap, low, -2 * low + 1, 2**19, downward_tilt(rounds, mu, loss, low), sharpen=False)
    while law.log_moment > FARTHEST and law.tilt < 20 / low:
        law = dataclasses.replace(law, tilt=law.tilt / 2)
    masses = law.masses()
    shortfall = float(masses @ np.maximum(-law.sums, 0.0))
    reach = 4.01 * law.step * np.sqrt(rounds)
    near = float(masses[np.abs(law.sums) <= reach].sum())
    gap = min(law.step * np.sqrt(rounds) / 4, reach * near + 9 * law.step * np.sqrt(rounds) * np.exp(-32.0))
    scale = float(np.exp(mu**2 + loss if reverse else mu**2 + 2 * loss) / rounds)
    found = float(scale * (shortfall if reverse else second - first + shortfall))
    # of the power, of the means that the lattice keeps, and of the transform, which the tilt multiplies
    rounding = 1e-13 * (1 + rounds) * first + 4e-16 * rounds * law.step
    rounding = float(scale * (rounding - 1e-16 * low * np.exp(min(law.log_moment, 600.0))))
    return Bracket(
        lower=max(0.0, float(found - scale * gap - rounding)),
        upper=float(min(max(found, 0.0) + rounding, gaussian_delta(epsilon, mu))),
        proved="rounding each round onto the lattice can only raise delta, by at most upper - lower; and showing the "
        "record's round can only raise it too",
        estimated=f"FFT round-off, wrap-around and sums below the lattice, about {rounding:.0e}, which is included",
    )
