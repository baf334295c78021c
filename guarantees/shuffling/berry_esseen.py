"""Closed forms for the 0/1 pair of shuffling: theorem 4.1 of [vandijk2026], its inversions, and its asymptotics."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import ndtr

from guarantees.checks import Positive, Share, checked, require
from guarantees.numerics.array import Array
from guarantees.numerics.search import first
from guarantees.shuffling.isolated import true_rounds_needed

BERRY_ESSEEN = 0.4748
"""Proven upper bound of the universal constant for identically distributed summands. [shevtsova2011]"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BerryEsseenBound:
    """``f(a) >= 1 - a - delta`` for the 0/1 pair, where the theorem's condition holds."""

    delta: float
    terms: tuple[float, ...]
    """The six summands of delta, in the theorem's order."""
    slack: float
    """Right side minus left side of the theorem's condition (1): the bound holds where it is >= 0."""

    @property
    def holds(self) -> bool:
        """Whether the theorem's condition is met."""
        return self.slack >= 0

    def epochs(self, epochs: int) -> float:
        """Delta of ``epochs`` independent epochs: ``1 - (1 - delta)^E``."""
        return float(-np.expm1(epochs * np.log1p(-self.delta))) if self.delta < 1 else 1.0


def _check(rounds: float, noise_multiplier: float) -> None:
    require("rounds", rounds >= 2, ">= 2", rounds)
    require("noise_multiplier", noise_multiplier > 0, "> 0", noise_multiplier)


def _coefficient(noise_multiplier: float) -> float:
    """Third moment over variance^(3/2), up to mu: ``e^(1/s^2) (1 + 4 e^(-3/s^2)) / (1 - e^(-1/s^2))^2``."""
    x = 1 / noise_multiplier**2
    return float(np.exp(x) * (1 + 4 * np.exp(-3 * x)) / np.expm1(-x) ** 2)


def _ceiling(noise_multiplier: float) -> float:
    """Right side of condition (1): ``1/2 - Phi(-(e^(1/s^2) - 1)/2)``."""
    return float(0.5 - ndtr(-np.expm1(1 / noise_multiplier**2) / 2))


@checked
def shuffle_mu(*, rounds: float, noise_multiplier: float, epochs: float = 1) -> float:
    """Asymptotic GDP parameter of shuffling, ``sqrt(E (e^(1/s^2) - 1) / (M - 1))``. [vandijk2026, theorem 5.2]

    A limit as the rounds grow at a fixed noise multiplier; no rate is proved.
    """
    _check(rounds, noise_multiplier)
    return float(np.sqrt(epochs * np.expm1(1 / noise_multiplier**2) / (rounds - 1)))


@checked
def poisson_mu(*, rounds: float, noise_multiplier: float, epochs: float = 1, symmetrised: bool = False) -> float:
    """Asymptotic GDP parameter of Poisson sampling at rate 1/M. [dong2022, corollary 5.4; bu2020]

    One direction: ``sqrt(E (e^(1/s^2) - 1) / M)``, the same limit as shuffling's. ``symmetrised=True`` gives the
    coefficient of the symmetrised curve, ``sqrt(2 E (e^(1/s^2) Phi(3/(2s)) + 3 Phi(-1/(2s)) - 2) / M)``, which
    [vandijk2026, figure 2] compares with shuffling's one-directional one.
    """
    _check(rounds, noise_multiplier)
    s = noise_multiplier
    one_way = np.expm1(1 / s**2)
    both = 2 * (np.exp(1 / s**2) * ndtr(1.5 / s) + 3 * ndtr(-0.5 / s) - 2)
    return float(np.sqrt(epochs * (both if symmetrised else one_way) / rounds))


@checked
def shuffle_berry_esseen(*, rounds: float, noise_multiplier: float) -> BerryEsseenBound:
    """Theorem 4.1: a proven delta with ``f(a) >= 1 - a - delta`` for the 0/1 pair. [vandijk2026, theorem 4.1]

    Six terms: ``2B c mu + mu/sqrt(2 pi) + {...} mu^2 + mu^3/(4 sqrt(2 e pi)) + mu^4/(32 sqrt(2 e pi))`` and the
    tail term; valid where ``holds``. Its proof calls f symmetric (lemma D.1), which it is not; the bound is true
    all the same, and hundreds of times too large. Says nothing about fixed batches, which leak more.

    Args:
      rounds: batches in one epoch, at least 2; need not be an integer.
      noise_multiplier: standard deviation of the noise over the clipping norm, above 0.

    Returns:
      The bound: ``delta``, its six ``terms``, whether it ``holds``; ``epochs(n)`` is the delta of n epochs.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> bound = guarantees.shuffle_berry_esseen(rounds=10**6, noise_multiplier=1.0)
      >>> round(bound.delta, 4), bound.holds
      (0.0107, True)
    """
    _check(rounds, noise_multiplier)
    x, mu = 1 / noise_multiplier**2, shuffle_mu(rounds=rounds, noise_multiplier=noise_multiplier)
    berry = BERRY_ESSEEN * _coefficient(noise_multiplier) * mu
    root, log_rounds = np.sqrt(2 * np.e * np.pi), np.log(rounds)
    tail = 2.88 * np.sqrt(log_rounds) - 2.41 / np.sqrt(log_rounds)
    terms = (
        2 * berry,
        mu / np.sqrt(2 * np.pi),
        (1 / (4 * np.sqrt(2 * np.pi)) + (1 - np.exp(x) / np.expm1(-x)) / (2 * root)) * mu**2,
        mu**3 / (4 * root),
        mu**4 / (32 * root),
        4.52 / tail * rounds ** (-25 / 24) if tail > 0 else np.inf,
    )
    delta = float(sum(terms))
    return BerryEsseenBound(
        delta=delta,
        terms=tuple(float(t) for t in terms),
        slack=_ceiling(noise_multiplier) - delta - float(berry),
    )


@checked
def rounds_needed(*, delta: Share, noise_multiplier: Positive, exact: str | bool = "theorem") -> float:
    """Rounds that make ``f(a) >= 1 - a - delta`` for the 0/1 pair, in three readings. [vandijk2026, table 1]

    Says nothing about fixed batches, which leak more.

    Args:
      delta: the total variation that is allowed, in (0, 1).
      noise_multiplier: standard deviation of the noise over the clipping norm, above 0 and finite.
      exact: ``False`` or ``"closed_form"``: inequality (3), the two leading terms inverted (a real number); ``True`` or
        ``"theorem"``: the smallest M at which all six terms of theorem 4.1 and its condition (1) hold; ``"truth"``: the
        smallest M, up to 1e8, whose total variation, computed, is at most delta.

    Returns:
      The number of rounds in one epoch.

    Raises:
      ValueError: an argument is out of range, or no number of rounds is enough at this noise multiplier.

    Examples:
      >>> import guarantees
      >>> guarantees.rounds_needed(delta=0.01, noise_multiplier=1.0)
      1140369
    """
    meanings = {False: "closed_form", True: "theorem"}
    meaning = meanings[exact] if isinstance(exact, bool) else exact
    names = ("closed_form", "theorem", "truth")
    require("exact", meaning in names, f"True, False or one of {names}", exact)
    if meaning == "closed_form":
        lead = 2 * BERRY_ESSEEN * _coefficient(noise_multiplier) + 1 / np.sqrt(2 * np.pi)
        return float(1 + (lead / delta) ** 2 * np.expm1(1 / noise_multiplier**2))
    if meaning == "truth":
        return true_rounds_needed(delta=delta, noise_multiplier=noise_multiplier)
    return _theorem_rounds(delta, noise_multiplier)


def _theorem_rounds(delta: float, noise_multiplier: float) -> int:
    """Smallest number of rounds by bisection: from M = 4 on, delta and the condition improve with the rounds."""

    def enough(rounds: int) -> bool:
        bound = shuffle_berry_esseen(rounds=rounds, noise_multiplier=noise_multiplier)
        return bound.delta <= delta and bound.holds

    low, high = 3, 4
    while not enough(high):
        require("delta", high < 2**200, "reachable by theorem 4.1 at this noise_multiplier", delta)
        low, high = high, 2 * high
    return first(enough, low, high)


@checked
def edgeworth_cdf(x: Array, *, rounds: int, noise_multiplier: float) -> Array:
    """``Phi(p_n(x))``, an approximation of P(standardised mean of n lognormals <= x). [vandijk2026, theorem 5.1]

    ``p_n(x) = x + c(1-x^2) + d(3x-x^3) + c^2(4x^3-7x)``, ``c = skewness/(6 sqrt n)``, ``d = excess kurtosis/(24 n)``.
    Right to o(1/n) for |x| = o(n^(1/16)) as n grows; no bound on the error is known.
    """
    _check(rounds, noise_multiplier)
    w = np.exp(1 / noise_multiplier**2)
    skewness = (w + 2) * np.sqrt(w - 1)
    kurtosis = w**4 + 2 * w**3 + 3 * w**2 - 6
    c, d = skewness / (6 * np.sqrt(rounds)), kurtosis / (24 * rounds)
    x = np.asarray(x, float)
    return ndtr(x + c * (1 - x**2) + d * (3 * x - x**3) + c**2 * (4 * x**3 - 7 * x))
