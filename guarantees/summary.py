"""Numbers that sum up a trade-off curve: mu*, regret, epsilon at delta, and whether they are enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from numbers import Real
from typing import Annotated, Any, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from guarantees.checks import Rule, checked, require
from guarantees.laws.gaussian_and_laplace import gaussian_law
from guarantees.laws.hockey_stick import hockey_stick
from guarantees.laws.large_losses import FAR
from guarantees.laws.law import LossLaw, Reversed, Tails
from guarantees.numerics.array import Array
from guarantees.numerics.rounding import at_most, between
from guarantees.numerics.search import maximum

ALPHA_RANGE = (1e-6, 1 - 1e-6)

NEGLIGIBLE = 1e-3
"""A numerical error of at most this share of delta leaves epsilon as it was computed."""
CLOSE = 1e-2
"""Epsilon counts as known where the most and the least that it may be differ by at most this share."""

FAITHFUL_REGRET = 1e-2
"""Below this regret mu-GDP over-reports the best attack's advantage by at most two points. [gomez2025]"""


class Curve(Protocol):
    """What summaries need of a curve; trade-off curves and claims both have it."""

    @property
    def law(self) -> LossLaw:
        """The law of its privacy loss."""
        ...

    @property
    def error(self) -> float:
        """Stated absolute error of its rates."""
        ...

    @property
    def total_variation(self) -> float:
        """Largest ``1 - alpha - beta``."""
        ...

    def beta(self, alpha: Any) -> Any:
        """Smallest miss rate at each false-alarm rate."""
        ...

    def epsilon(self, delta: Any) -> Any:
        """Smallest epsilon at each delta."""
        ...

    def epsilon_range(self, delta: float) -> EpsilonRange:
        """What the numerical error leaves of epsilon at a delta."""
        ...

    def llr_threshold(self, alpha: Any) -> Any:
        """Threshold of the best test at each false-alarm rate."""
        ...


AnyCurve = Annotated[Curve, Rule("a trade-off curve or a claim", lambda value: hasattr(value, "law"))]
"""A curve, as a parameter."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Breakpoints:
    """Points of a curve, by increasing alpha, with the threshold of the test at each."""

    alpha: Array
    beta: Array
    threshold: Array
    exact: bool
    """Whether the curve is piecewise linear between exactly these points."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dominance:
    """Where one curve lies furthest below another."""

    below: bool
    """Whether it does so by more than the two curves' stated errors."""
    deficit: float
    alpha: float
    beta: float
    other_beta: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonRange:
    """Epsilon at one delta as computed, and the range that the curve's numerical error leaves for it."""

    delta: float
    epsilon: float
    at_least: float
    at_most: float
    """Infinite where the error may be all of delta: then nothing is promised at this delta."""
    error: float
    """The stated numerical error of the curve."""

    @property
    def known(self) -> bool:
        """Whether the numerical error is too small to matter."""
        return self.at_least == self.at_most or self.at_most - self.at_least <= CLOSE * self.at_least

    @property
    def promised(self) -> float:
        """Epsilon to hold a mechanism to: the computed one if it is known, else the upper end of the range."""
        return self.epsilon if self.known else self.at_most

    @property
    def claimed(self) -> float | None:
        """Epsilon to print as claimed: the upper end of the range if the error exceeds delta or matters otherwise.

        None where that leaves nothing known from above.
        """
        if self.known and (self.error <= self.delta or self.at_least == self.at_most):
            return self.epsilon
        return None if np.isinf(self.at_most) else self.at_most

    @property
    def says(self) -> str:
        """Epsilon as text, with the reason if it is not known and a note if it rests on certified curves alone."""
        if self.known and (self.error <= self.delta or self.at_least == self.at_most):
            return at_most(self.epsilon, ".4g")
        why = f"numerical error {self.error:.1g} at delta {self.delta:g}"
        if np.isinf(self.at_most):
            times = " times 1 + e^epsilon" if self.error <= self.delta else ""
            return f"not known: numerical error {self.error:.1g}{times} exceeds delta {self.delta:g}"
        if self.known:
            own = f"the curve's own numerical error {self.error:.1g} exceeds delta {self.delta:g}"
            why = f"certified from both sides: {own}"
        return f"{between(self.at_least, self.at_most, '.4g')} ({why})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """What to report about a curve. A mu means little without the range of alpha it was computed on."""

    mu_star: float
    alpha_range: tuple[float, float]
    regret: float
    faithful: bool
    recommendation: str
    epsilons: tuple[tuple[float, float], ...]
    """Pairs (delta, epsilon as computed)."""
    ranges: tuple[EpsilonRange, ...]
    """The same with what the numerical error leaves of each."""
    total_variation: float
    separation: float
    error: float


def _require_range(alpha_range: tuple[float, float]) -> None:
    some = isinstance(alpha_range, Sequence | np.ndarray) and len(alpha_range) == 2
    increasing = (
        some and all(isinstance(end, Real) for end in alpha_range) and 0 <= alpha_range[0] < alpha_range[1] <= 1
    )
    require("alpha_range", increasing, "an increasing pair in [0, 1]", alpha_range)


def _gaussian_mu(tails: Tails) -> Array:
    """The mu of the Gaussian curve through each point, ``-Phi^-1(alpha) - Phi^-1(beta)``; -inf at the corners."""
    with np.errstate(invalid="ignore"):
        null = np.where(tails.without_above < 0.5, -ndtri(tails.without_above), ndtri(tails.without_below))
        other = np.where(tails.with_below < 0.5, -ndtri(tails.with_below), ndtri(tails.with_above))
        mu = null + other
    return np.where(np.isnan(mu), -np.inf, mu)


def _smaller_rate(tails: Tails) -> Array:
    return np.minimum(tails.without_above, tails.with_below)


def _point_at(law: LossLaw, alpha: float) -> Tails:
    """The point of the curve at a level, with all four rates accurate."""
    level = np.array([alpha])
    t = np.clip(np.asarray(law.threshold(level)), -np.inf, FAR)
    tails = law.tails(t)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.exp(t) * (level - tails.without_above)
    moved = np.where(np.isfinite(moved), moved, 0.0)
    return Tails(
        without_above=level,
        without_below=1 - level,
        with_above=np.clip(tails.with_above + moved, 0, 1),
        with_below=np.clip(tails.with_below - moved, 0, 1),
    )


@checked
def mu_star(curve: AnyCurve, *, alpha_range: tuple[float, float] = ALPHA_RANGE) -> float:
    """Smallest mu such that the curve lies on or above mu-GDP wherever alpha (or beta) is in the range.

    ``mu* = max -Phi^-1(alpha) - Phi^-1(beta)`` over the breakpoints and the ends of the range; a smooth curve
    is searched, not gridded. [gomez2025, proposition C.1 and equation 21]

    Outside the range nothing is promised: any mass at infinite loss makes mu infinite on [0, 1]. Of a curve
    that is not to be trusted below some delta, points with a rate below twice that delta are left out.
    """
    _require_range(alpha_range)
    low, high = alpha_range
    law, back = curve.law, Reversed(curve.law)
    floor = 2 * back.smallest_delta
    ends = [_point_at(side, end) for side in (law, back) for end in alpha_range]
    best = max((float(_gaussian_mu(e)[0]) for e in ends if _smaller_rate(e)[0] >= floor), default=0.0)

    def within(tails: Tails) -> Array:
        inside = (tails.without_above >= low) & (tails.without_above <= high)
        inside |= (tails.with_below >= low) & (tails.with_below <= high)
        return np.where(inside & (_smaller_rate(tails) >= floor), _gaussian_mu(tails), -np.inf)

    vertices = law.vertices
    if vertices is not None:
        return max(0.0, best, float(within(vertices).max()))
    table = law.tabled
    _, found = maximum(lambda t: within(table.tails(t)), _thresholds(table, alpha_range))
    return max(0.0, best, found)


def _thresholds(law: LossLaw, alpha_range: tuple[float, float]) -> Array:
    """Thresholds between those at which alpha or beta leave the range, denser towards 0 on both sides."""
    levels = np.clip([alpha_range[1], alpha_range[0]], 1e-300, 1 - 1e-16)
    ends = np.concatenate([law.threshold(levels), -Reversed(law).threshold(levels)])
    low, high = np.nanmin(ends[np.isfinite(ends)], initial=0.0), np.nanmax(ends[np.isfinite(ends)], initial=0.0)
    steps = np.linspace(0.0, 1.0, 65)
    powers = np.geomspace(1e-5, 1.0, 48)
    return np.concatenate([low + (high - low) * steps, low * powers, high * powers])


@checked
def regret(curve: AnyCurve, other: AnyCurve | None = None, *, alpha_range: tuple[float, float] = ALPHA_RANGE) -> float:
    """Smallest k with ``f(a + k) - k <= g(a)`` for all a: how far reporting g instead of f is off.

    ``k = sup_eps (delta_g(eps) - delta_f(eps)) / (1 + e^eps)`` over both directions: exact at the atoms of a
    piecewise linear f, because the numerator is convex in ``e^eps`` between them; otherwise searched.
    [gomez2025, definition C.3] By default g is mu*-GDP with mu* on the given range.
    """
    mine = curve.law
    theirs = gaussian_law(mu_star(curve, alpha_range=alpha_range)) if other is None else other.law
    return _regret(mine, theirs)


def _regret(mine: LossLaw, theirs: LossLaw) -> float:
    largest, mine = 0.0, mine.tabled
    for f, g in ((mine, theirs), (Reversed(mine), Reversed(theirs))):

        def gain(epsilon: Array, f: LossLaw = f, g: LossLaw = g) -> Array:
            return (hockey_stick(g, epsilon) - hockey_stick(f, epsilon)) / (1 + np.exp(epsilon))

        atoms = f.losses
        if atoms is not None:
            at = atoms[np.isfinite(atoms)]
            # Beyond epsilon 50 the quotient is below 2e-22.
            found = float(np.max(gain(np.concatenate([np.zeros(1), at[(at > 0) & (at < 50)]]))))
        else:
            _, found = maximum(gain, np.concatenate([np.zeros(1), np.geomspace(1e-8, 50.0, 200)]))
        largest = max(largest, found)
    return largest


@checked
def dominance(curve: AnyCurve, other: AnyCurve) -> Dominance:
    """Whether one curve is below another anywhere, where most, and by how much.

    Exact at the breakpoints of a piecewise linear curve (``other`` is convex between them); else searched.
    """
    vertices = curve.law.vertices
    if vertices is not None:
        levels = np.clip(vertices.without_above, 0.0, 1.0)
        gaps = other.beta(levels) - vertices.with_below
        alpha = float(levels[int(np.argmax(gaps))])
    else:

        def gap(threshold: Array) -> Array:
            tails = curve.law.tails(threshold)
            return other.beta(np.clip(tails.without_above, 0.0, 1.0)) - tails.with_below

        t, _ = maximum(gap, _thresholds(curve.law, (1e-12, 1 - 1e-12)))
        alpha = float(np.clip(curve.law.tails(np.array([t])).without_above[0], 0.0, 1.0))
    mine, theirs = curve.beta(alpha), other.beta(alpha)
    deficit = max(0.0, theirs - mine)
    below = deficit > max(curve.error + other.error, 1e-15)
    return Dominance(below=below, deficit=deficit, alpha=alpha, beta=mine, other_beta=theirs)


@checked
def breakpoints(curve: AnyCurve, *, points: int = 200, alpha_range: tuple[float, float] = ALPHA_RANGE) -> Breakpoints:
    """All breakpoints of a piecewise linear curve; points evenly spread in ``Phi^-1(alpha)`` of a smooth one."""
    _require_range(alpha_range)
    require("points", points >= 2, ">= 2", points)
    vertices = curve.law.vertices
    if vertices is not None:
        alpha, beta = vertices.without_above[::-1], vertices.with_below[::-1]
        return Breakpoints(alpha=alpha, beta=beta, threshold=curve.llr_threshold(alpha), exact=True)
    low, high = np.clip(alpha_range, 1e-300, 1 - 1e-16)
    alpha = np.clip(ndtr(np.linspace(ndtri(low), ndtri(high), points)), *alpha_range)
    return Breakpoints(alpha=alpha, beta=curve.beta(alpha), threshold=curve.llr_threshold(alpha), exact=False)


@checked
def summarise(
    curve: AnyCurve,
    *,
    deltas: Sequence[float] = (1e-9, 1e-6, 1e-5),
    alpha_range: tuple[float, float] = ALPHA_RANGE,
) -> Summary:
    """mu* on its range, regret, epsilon at each delta, and whether mu-GDP says enough. [gomez2025, section 4]"""
    mu = mu_star(curve, alpha_range=alpha_range)
    off = _regret(curve.law, gaussian_law(mu))
    ranges = tuple(curve.epsilon_range(float(d)) for d in deltas)
    faithful = bool(np.isfinite(mu) and off < FAITHFUL_REGRET)
    shown = f"mu {at_most(mu, '.4g')} (alpha in [{alpha_range[0]:g}, 1 - {1 - alpha_range[1]:.3g}])"
    return Summary(
        mu_star=mu,
        alpha_range=alpha_range,
        regret=off,
        faithful=faithful,
        recommendation=(
            f"mu-GDP is a faithful summary: {shown}, regret {off:.2g} < {FAITHFUL_REGRET:g}"
            if faithful
            else f"Report epsilon at several deltas instead of {shown}"
            + (f": regret {off:.2g} >= {FAITHFUL_REGRET:g}" if np.isfinite(mu) else ": no finite mu holds there")
        ),
        epsilons=tuple((found.delta, found.epsilon) for found in ranges),
        ranges=ranges,
        total_variation=curve.total_variation,
        separation=float(curve.total_variation / np.sqrt(2.0)),
        error=curve.error,
    )
