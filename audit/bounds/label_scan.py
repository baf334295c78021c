"""Epsilon from scores with no threshold fixed: guess the labels of the most extreme scores."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from audit.bounds.binomial import binomial_tail
from audit.bounds.clopper_pearson import require_risk
from audit.bounds.ranking import from_highest
from guarantees.checks import Delta, Share, checked, require
from guarantees.numerics.array import Array
from guarantees.numerics.distributions import binom
from guarantees.numerics.root import root

TOO_FEW = 5.0
"""Standard deviations by which the coin-flip trials drawn from fixed sides stay below what the sides hold."""
NEGLIGIBLE = 1e-15
"""Binomial mass of exposed labels that is left out of the sum; it is added to the tail."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelScan:
    """Lower bounds on epsilon that hold together with probability at least ``1 - risk``.

    ``with_given_without`` comes from the highest scores, ``without_given_with`` from the lowest.
    """

    with_given_without: float
    without_given_with: float
    guesses: tuple[int, ...]
    """Numbers k of labels guessed; each had an equal share of the risk in each direction."""
    correct_top: tuple[int, ...]
    correct_bottom: tuple[int, ...]
    trials: int
    delta: float
    risk: float
    seed: int
    """Ordered tied scores; fixed before looking at the labels."""

    @property
    def epsilon(self) -> float:
        """The larger of both directions."""
        return max(self.with_given_without, self.without_given_with)


@checked
def label_scan(
    scores: ArrayLike,
    with_record: ArrayLike,
    *,
    delta: Delta,
    risk: Share,
    guesses: Sequence[int] | None = None,
    top_share: float = 0.5,
    seed: int = 0,
) -> LabelScan:
    """Lower bounds on epsilon from trials that each took their side by a fair coin.

    Among the k highest scores b_k have the record. If ``P_with <= e^eps P_without + delta`` for every event, b_k is
    stochastically at most ``Bin(k, e^eps/(1 + e^eps)) + Bin(N, delta/2)``. Each k has an equal share of the risk; the
    lowest scores bound the other direction, and ``top_share`` divides the risk between both.
    [steinke2023; docs/validity.md, section 5]

    Holds when sides were drawn by independent fair coins (with sides of fixed size use ``as_coin_flips``) and
    ``guesses``, ``top_share`` and ``seed``, which orders tied scores at random, were fixed beforehand. Zero shows
    nothing.
    """
    values, labels = np.asarray(scores, float), np.asarray(with_record)
    require("scores", values.ndim == 1 and values.size > 0, "a non-empty vector", values.shape)
    require("scores", not np.any(np.isnan(values)), "free of NaN", "NaN")
    require("with_record", labels.shape == values.shape, f"of the shape {values.shape}", labels.shape)
    require("with_record", bool(np.all((labels == 0) | (labels == 1))), "0 or 1", "other values")
    require_risk(risk)
    require("top_share", 0 <= top_share <= 1, "in [0, 1]", top_share)
    trials = values.size
    ks = default_guesses(trials) if guesses is None else tuple(int(k) for k in guesses)
    require("guesses", all(1 <= k <= trials for k in ks) and len(ks) > 0, f"in 1..{trials}", ks)
    labels = labels.astype(bool)[from_highest(values, seed=seed)]
    top, bottom = correct_guesses(labels, ks), correct_guesses(~labels[::-1], ks)

    def best(correct: tuple[int, ...], share: float) -> float:
        if share == 0:
            return 0.0
        each = risk * share / len(ks)
        return max(bound_from_guesses(b, k, trials, delta=delta, risk=each) for b, k in zip(correct, ks, strict=True))

    return LabelScan(
        with_given_without=best(top, top_share),
        without_given_with=best(bottom, 1 - top_share),
        guesses=ks,
        correct_top=top,
        correct_bottom=bottom,
        trials=trials,
        delta=delta,
        risk=risk,
        seed=seed,
    )


def default_guesses(trials: int) -> tuple[int, ...]:
    """At most twelve numbers of guesses, evenly spread on a logarithmic scale from 64 to a quarter of the trials."""
    first, last = min(64, trials), max(trials // 4, 1)
    return tuple(int(k) for k in np.unique(np.geomspace(min(first, last), last, 12).round().astype(int)))


def correct_guesses(labels: Array, ks: Sequence[int]) -> tuple[int, ...]:
    """How many of the first k labels are true, for every k."""
    seen = np.cumsum(labels)
    return tuple(int(seen[k - 1]) for k in ks)


@functools.lru_cache(maxsize=64)
def _exposed(trials: int, delta: float) -> Array:
    """Mass of Bin(N, delta/2) from 0 up to where the rest is negligible, with the rest as a last entry."""
    most = 0 if delta == 0 else int(binom.isf(NEGLIGIBLE, trials, delta / 2)) + 1
    return np.append(binom.pmf(np.arange(most + 1), trials, delta / 2), binom.sf(most, trials, delta / 2))


def tail_probability(correct: int, guesses: int, trials: int, *, epsilon: float, delta: float) -> float:
    """``P{Bin(k, e^eps/(1 + e^eps)) + Bin(N, delta/2) >= correct}``."""
    mass = _exposed(trials, delta)
    short = correct - np.arange(len(mass))
    tail = binomial_tail(short - 1, guesses, expit(epsilon))
    tail[-1] = 1.0
    return min(1.0, float(np.sum(mass * tail)))


def bound_from_guesses(correct: int, guesses: int, trials: int, *, delta: float, risk: float) -> float:
    """Largest epsilon at which so many correct guesses would have probability at most ``risk``; 0 if none."""

    def excess(epsilon: float) -> float:
        tail = tail_probability(correct, guesses, trials, epsilon=epsilon, delta=delta)
        return math.log(max(tail, 1e-300)) - math.log(risk)

    if excess(0.0) >= 0:
        return 0.0
    # Guessing all k rightly has probability chance^k at least, so epsilon cannot exceed this.
    high = -math.log(math.expm1(-math.log(risk) / guesses)) + 1e-9
    if high <= 0 or excess(high) <= 0:
        return max(0.0, high - 2e-9)
    return max(0.0, root(excess, 0.0, high, absolute=1e-8) - 1e-8)


def as_coin_flips(rng: np.random.Generator, without: ArrayLike, with_record: ArrayLike) -> tuple[Array, Array]:
    """Turn scores of two sides of fixed size into coin-flip trials: scores and labels for ``label_scan``.

    The number 'with' among N trials is drawn as Bin(N, 1/2) and that many scores of each side are taken at random (the
    first ones would be the lowest, had the scores been sorted); N is chosen so that the sides suffice but for about
    one time in a million, and then no trial is returned at all (the caller has shown nothing). So the trials returned
    have exactly the law that ``label_scan`` needs, and an empty return cannot make a bound wrong.
    [docs/validity.md, section 5]
    """
    scores0, scores1 = rng.permutation(np.ravel(without)), rng.permutation(np.ravel(with_record))
    side = min(scores0.size, scores1.size)
    # Largest N with N/2 + TOO_FEW sqrt(N)/2 <= side
    root = (-TOO_FEW + math.sqrt(TOO_FEW**2 + 8 * side)) / 2
    trials = int(root**2)
    chosen = int(rng.binomial(trials, 0.5))
    if trials == 0 or chosen > scores1.size or trials - chosen > scores0.size:
        return np.zeros(0), np.zeros(0, bool)
    scores = np.concatenate([scores0[: trials - chosen], scores1[:chosen]])
    return scores, np.arange(trials) >= trials - chosen
