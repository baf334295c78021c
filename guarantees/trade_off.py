"""Trade-off curves: the smallest miss rate beta that any test of false-alarm rate alpha can have."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from guarantees import summary
from guarantees.checks import Count, checked, require
from guarantees.laws.adapter import as_law
from guarantees.laws.combined import MixtureLaw, SymmetrisedLaw
from guarantees.laws.composition import composed_law
from guarantees.laws.consistency import defect_of, honest_error
from guarantees.laws.hockey_stick import first_within, hockey_stick
from guarantees.laws.kept import kept
from guarantees.laws.large_losses import FAR
from guarantees.laws.law import Certificate, LossLaw, Reversed, Tails, reverse
from guarantees.laws.margins import delta_error, least_epsilon, most_epsilon
from guarantees.numerics.array import Array
from guarantees.summary import ALPHA_RANGE, NEGLIGIBLE, Breakpoints, Curve, Dominance, EpsilonRange
from guarantees.vocabulary import DIRECTIONS, Direction

Values = Any
"""A float where a scalar was given, an array of the same shape where an array was."""
MANY = 64
"""Thresholds from which tails may be worth keeping."""
SIDES = ("without_above", "without_below", "with_above", "with_below")


def _shaped(value: Array, like: Array) -> Values:
    return float(value.reshape(-1)[0]) if like.ndim == 0 else value.reshape(like.shape)


def _numbers(name: str, given: ArrayLike) -> Array:
    """The values as floats; refused unless each is a number (text and truth values are not)."""
    try:
        found = np.asarray(given)
        if found.dtype.kind == "O":
            found = np.asarray(found, float) if all(isinstance(one, Real) for one in found.flat) else found
    except (TypeError, ValueError, OverflowError):
        found = None
    numeric = found is not None and found.dtype.kind in "iuf" and not np.isnan(found).any()
    require(name, numeric, "a number or an array of numbers", given)
    return np.asarray(found, float)


def _some(name: str, given: ArrayLike) -> Array:
    """The values as floats; refused if there are none."""
    found = _numbers(name, given)
    require(name, found.size, "one number or more", given)
    return found


def _rates(name: str, given: ArrayLike) -> tuple[Array, Array]:
    """The rates as given and flattened; refused unless they lie in [0, 1]."""
    level = _numbers(name, given)
    if np.any(~((level >= 0) & (level <= 1))):
        raise ValueError(f"{name} must lie in [0, 1], got {given!r}.")
    return level, level.reshape(-1)


@dataclasses.dataclass(frozen=True)
class TradeOff:
    """The trade-off curve of a pair of neighbours, from the law of its privacy loss.

    H0 is 'without the record', H1 'with it'. Every number comes from a supporting line of the curve at some
    threshold t: ``f(a) >= beta(t) - exp(t) (a - alpha(t))`` with equality where the line touches, so an
    error in t costs only its square, atoms need no special case, and ``delta(t)`` is the line's intercept.
    [dong2022]
    """

    law: LossLaw
    """Any object with tails, thresholds and an error; ``as_law`` adds usual answers for the rest."""

    _defects: list[float] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)
    """Largest errors seen so far in the law's own identities."""

    _epsilons: dict[tuple[float, Direction], float] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Epsilons already searched for: an audit and its report ask for the same deltas many times."""

    def __post_init__(self):
        object.__setattr__(self, "law", as_law(self.law))

    @property
    def error(self) -> float:
        """Absolute error of this curve's rates: the law's stated error, or the observed one if that is larger."""
        self._remember()
        return self._honest(0.0)

    def _honest(self, defect: float) -> float:
        return honest_error(self.law.error, max([defect, *self._defects]), type(self.law).__name__)

    def _remember(self, defect: float = 0.0) -> None:
        """Check the law on first use, and the tails of every answer: refuse the law, or remember its error."""
        first = not self._defects
        defect = max(defect, self.law.defect()) if first else defect
        if first or defect > self._defects[-1]:
            self._honest(defect)
            self._defects.append(defect)

    def _examined(self, thresholds: Array) -> Tails:
        """Tails at these thresholds, after checking them."""
        tails = self._tails(thresholds)
        self._remember(defect_of(thresholds if self.law.is_pair else thresholds[:0], tails))
        return tails

    def _tails(self, thresholds: Array) -> Tails:
        """Tails of the law; those at many thresholds come from the cache if this process has one."""
        if len(thresholds) < MANY:
            return self.law.tails(thresholds)

        def are_rates(found: tuple[Array, ...]) -> bool:
            return all(rate.shape == thresholds.shape and bool(((rate >= 0) & (rate <= 1)).all()) for rate in found)

        found = kept("tails of a law", (self.law, thresholds), lambda: self._four(thresholds), holds=are_rates)
        return Tails(**dict(zip(SIDES, found, strict=True)))

    def _four(self, thresholds: Array) -> tuple[Array, ...]:
        tails = self.law.tails(thresholds)
        return tuple(np.asarray(getattr(tails, name), float) for name in SIDES)

    @property
    def reverse(self) -> TradeOff:
        """T(with, without): the inverse function of this curve."""
        return TradeOff(reverse(self.law))

    def errors(self, threshold: ArrayLike) -> tuple[Values, Values]:
        """False-alarm and miss rates of the likelihood-ratio test at a threshold."""
        t = _some("threshold", threshold)
        tails = self._examined(t.reshape(-1))
        # sums of a million masses may round above 1
        return _shaped(np.minimum(tails.without_above, 1.0), t), _shaped(np.minimum(tails.with_below, 1.0), t)

    def llr_threshold(self, alpha: ArrayLike) -> Values:
        """Threshold on the log-likelihood ratio of the best test at level ``alpha``."""
        level, flat = _rates("alpha", alpha)
        self._remember()
        return _shaped(np.asarray(self.law.threshold(flat)), level)

    def beta(self, alpha: ArrayLike) -> Values:
        """The curve itself: smallest miss rate at each false-alarm rate."""
        level, flat = _rates("alpha", alpha)
        require("alpha", flat.size, "one number or more", alpha)

        def compute() -> tuple[Array, float]:
            found = self._smallest_misses(flat)
            return found, max(self._defects, default=0.0)

        def can_be(found: tuple[Array, float]) -> bool:
            beta, defect = found
            return beta.shape == flat.shape and bool(((beta >= 0) & (beta <= 1 - flat)).all()) and defect >= 0

        beta, defect = kept("smallest miss rates of a curve", (self.law, flat), compute, holds=can_be)
        self._remember(defect)
        return _shaped(beta, level)

    def _smallest_misses(self, alpha: Array) -> Array:
        # A threshold of +inf means 'only what never happens without the record', not 'nothing at all'.
        t = np.clip(np.asarray(self.law.threshold(alpha)), -np.inf, FAR)
        tails = self._examined(t)
        missing = alpha - tails.without_above
        with np.errstate(over="ignore", invalid="ignore"):
            correction = np.where(missing == 0, 0.0, np.exp(t) * missing)
        correction = np.where(np.isfinite(correction), correction, 0.0)
        return np.clip(tails.with_below - correction, 0.0, 1.0 - alpha)

    def delta(self, epsilon: ArrayLike, direction: Direction = "both") -> Values:
        """The privacy profile: ``sup_S P(S) - exp(epsilon) Q(S)`` in one direction or the larger of both.

        ``with_given_without`` has P = with the record; ``without_given_with`` the other way round.
        """
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {DIRECTIONS}, got {direction!r}.")
        given = _some("epsilon", epsilon)
        flat = given.reshape(-1)
        value, defect = self._profile(flat, direction)
        self._remember(defect)
        return _shaped(value, given)

    def _profile(self, epsilon: Array, direction: Direction, *, examined: bool = True) -> tuple[Array, float]:
        """Delta at each epsilon, and the defect of the tails from which it was computed."""
        value, defect = np.zeros(epsilon.shape), 0.0
        for one, way in ((self.law, "with_given_without"), (Reversed(self.law), "without_given_with")):
            if direction in ("both", way):
                tails = one.tails(epsilon)
                value = np.maximum(value, hockey_stick(one, epsilon, tails))
                defect = max(defect, defect_of(epsilon if one.is_pair else epsilon[:0], tails)) if examined else 0.0
        return value, defect

    def epsilon(self, delta: ArrayLike, direction: Direction = "both") -> Values:
        """Smallest epsilon >= 0 with ``delta(epsilon) <= delta``; infinite if there is none.

        At delta 0 this is the largest loss itself, where the law knows it.
        """
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {DIRECTIONS}, got {direction!r}.")
        target, flat = _rates("delta", delta)
        require("delta", flat.size, "one number or more", delta)
        if target.ndim == 0:
            asked = (float(target), direction)
            if asked not in self._epsilons:
                self._epsilons[asked] = self._searched(flat, direction)
            return self._epsilons[asked]
        return _shaped(self._epsilon(flat, direction), target)

    def _searched(self, flat: Array, direction: Direction) -> float:
        """Epsilon at one delta, found by search or taken from the cache."""

        def search() -> tuple[float, float]:
            return float(self._epsilon(flat, direction)[0]), max(self._defects, default=0.0)

        epsilon, defect = kept(
            "epsilon of a curve",
            (self.law, flat, direction),
            search,
            holds=lambda found: all(isinstance(each, float) and each >= 0 for each in found),
        )
        self._remember(defect)
        return epsilon

    def _epsilon(self, flat: Array, direction: Direction) -> Array:
        floor = self.law.smallest_delta
        if np.any(flat < floor):
            raise ValueError(
                f"delta must be >= {floor:g} for this curve, got {float(flat.min())!r}: below it the accountant's "
                "numbers are rounding errors."
            )

        ways: tuple[Direction, ...] = ("with_given_without", "without_given_with")
        value = np.zeros(flat.shape)
        for way in ways if direction == "both" else (direction,):
            # One direction after the other: usually the second is within delta where the first is.
            value = np.maximum(value, self._first_within(value, flat, way))
        zero = (flat == 0) & (value > 0) & np.isfinite(value)
        if zero.any() and self.law.support is None:
            value[zero] = self._unless_rounding(direction, value[zero])
        self._remember(self._profile(np.minimum(value, FAR), direction)[1])
        return value

    def epsilon_range(self, delta: float) -> EpsilonRange:
        """Epsilon at a delta, with the range that the curve's numerical error leaves for it.

        A side that the certificate proves is read from the law that proves it, up to its rounding; any other from this
        curve, whose delta the stated error of both rates moves by ``(1 + e^epsilon) error``, as in a verdict. A closed
        form, and an error that moves delta by next to nothing, leave the number as is.
        """
        found, error, certificate = float(self.epsilon(delta)), self.error, self.certificate
        hidden = found == 0 and delta < error and not self.law.closed
        if hidden and (certificate is None or delta == 0):
            # tails that differ by less than they are rounded to, or losses that rounding makes zero
            return EpsilonRange(delta=delta, epsilon=found, at_least=0.0, at_most=np.inf, error=error)
        as_is = np.isinf(found) if delta == 0 else delta_error(found, error) <= NEGLIGIBLE * delta
        if certificate is None or as_is:
            return EpsilonRange(delta=delta, epsilon=found, at_least=found, at_most=found, error=error)

        def proven(law: LossLaw, at: float) -> float:
            # a law that is not trusted so far down promises nothing there
            trusted = (at > 0 or delta == 0) and at >= law.smallest_delta
            return float(TradeOff(law).epsilon(min(at, 1.0))) if trusted else np.inf

        below, above, off = certificate.leaked, certificate.safe, certificate.round_off
        low = least_epsilon(self, delta, error) if below is None else proven(below, delta + off)
        # rounding moves masses and no loss, so that the largest loss of the safe law bounds the true one
        room = delta - off if delta > 0 else 0.0
        high = most_epsilon(self, delta, error) if above is None else proven(above, room)
        return EpsilonRange(delta=delta, epsilon=found, at_least=min(low, found), at_most=max(high, found), error=error)

    def _first_within(self, start: Array, delta: Array, way: Direction) -> Array:
        """``start`` if one direction's profile is at most delta there, else the first epsilon at which it is."""

        def profile(eps: Array) -> Array:
            return self._profile(eps, way, examined=False)[0]

        value = np.where(profile(np.minimum(start, FAR)) <= delta, start, np.inf)
        beyond = np.isinf(value) & (profile(np.full(delta.shape, FAR)) <= delta)
        support = self.law.support
        if support is None:
            value[beyond] = first_within(profile, delta[beyond])
            return value
        largest = max(support[1] if way == "with_given_without" else -support[0], 0.0)
        searched = beyond & (delta > 0)
        value[searched] = first_within(profile, delta[searched])
        # at delta 0 no search is needed, and one that is right to fifteen digits may end beyond the largest loss
        return np.where(beyond, np.minimum(value, largest), value)

    def _unless_rounding(self, direction: Direction, found: Array) -> Array:
        """Epsilons found at delta 0, or infinity where the profile there underflows or is only rounding."""
        before = np.nextafter(found * (1 - 1e-12), 0)
        return np.where(self.delta(before, direction) <= max(1e-200, self.error), np.inf, found)

    @property
    def total_variation(self) -> float:
        """Largest ``1 - alpha - beta``: delta at epsilon 0, the advantage of the best attack."""
        return float(self.delta(0.0, "with_given_without"))

    @property
    def advantage(self) -> float:
        """Another name for total variation: best (true positives - false positives)."""
        return self.total_variation

    @property
    def separation(self) -> float:
        """Largest distance of the curve from the diagonal, ``TV / sqrt(2)`` for every curve. [ertan2026]"""
        return float(self.total_variation / np.sqrt(2.0))

    def symmetrise(self) -> TradeOff:
        """Largest symmetric curve below this one and its inverse: for a promise that holds both ways."""
        return TradeOff(SymmetrisedLaw(self.law))

    def mixture(self, *others: TradeOff, weights: Sequence[float]) -> TradeOff:
        """Curve of one of several pairs (the first is this curve's), drawn with these weights and revealed."""
        laws = (self.law, *(other.law for other in others))
        total = float(np.sum(weights))
        if len(weights) != len(laws) or min(weights) < 0 or abs(total - 1) > 1e-9:
            raise ValueError(f"weights must be {len(laws)} numbers >= 0 that sum to 1, got {weights!r}.")
        return TradeOff(MixtureLaw(laws=laws, weights=tuple(float(w) for w in weights)))

    @checked
    def compose(self, times: Count) -> TradeOff:
        """The curve of ``times`` independent outputs: closed form where the law has one, else certified."""
        return compose([(self, times)])

    def compose_with(self, *others: TradeOff) -> TradeOff:
        """The curve of one output of each of several mechanisms together."""
        for other in others:
            require("others", isinstance(other, TradeOff), "trade-off curves", other)
        return compose([(curve, 1) for curve in (self, *others)])

    @property
    def certificate(self) -> Certificate | None:
        """What is proved and what is estimated about a computed curve; None for closed forms."""
        return self.law.certificate

    def breakpoints(self, points: int = 200, *, alpha_range: tuple[float, float] = ALPHA_RANGE) -> Breakpoints:
        """Points of the curve: all of them where it is piecewise linear, else spread over both tails."""
        return summary.breakpoints(self, points=points, alpha_range=alpha_range)

    def dominance(self, other: Curve) -> Dominance:
        """Whether this curve is below the other anywhere, where most, and by how much."""
        return summary.dominance(self, other)

    def mu_star(self, alpha_range: tuple[float, float] = ALPHA_RANGE) -> float:
        """Smallest mu with mu-GDP below this curve at every alpha in the range, in both directions."""
        return summary.mu_star(self, alpha_range=alpha_range)

    def regret(self, other: Curve | None = None, *, alpha_range: tuple[float, float] = ALPHA_RANGE) -> float:
        """How much reporting ``other`` (default: mu_star-GDP) instead of this curve over-reports attacks."""
        return summary.regret(self, other, alpha_range=alpha_range)


class ComputedCurve(TradeOff):
    """A curve whose law is computed when it is first asked for: who compares a claim's settings never waits for it."""

    def __init__(self, compute: Callable[[], LossLaw]):
        # as the fields of a frozen class
        vars(self).update(_compute=compute, _defects=[], _epsilons={})

    @functools.cached_property
    def law(self) -> LossLaw:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The law, from now on kept."""
        return vars(self)["_compute"]()


@checked
def compose(parts: Sequence[tuple[TradeOff, int]], *, tolerance: float = 1e-6, most_points: int = 2**20) -> TradeOff:
    """The curve of all outputs together, from each mechanism's curve and how often it runs.

    Closed forms where the laws have them, otherwise a lattice fine enough for ``tolerance`` or of ``most_points``; the
    curve returned is the one that leaks more, and its ``certificate`` says which sides are proved.
    [koskela2020; doroshenko2022]
    """
    require("parts", len(parts) > 0, "at least one pair (curve, count)", parts)
    laws = [(curve.law, times) for curve, times in parts]
    # the same object twice is composed as one law with two losses, two equal objects are not
    same = [min(j for j, (other, _) in enumerate(laws) if other is law) for law, _ in laws]
    law = kept(
        "composition",
        (laws, same, tolerance, most_points),
        lambda: composed_law(laws, tolerance=tolerance, most_points=most_points),
    )
    return TradeOff(law)
