"""The exact curve of Renyi epsilons: points where some order's promise is used up, joined by their tangents."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import expit

from guarantees.laws.discrete_law import DiscreteLaw, no_leak
from guarantees.laws.law import Certificate, LossLaw
from guarantees.laws.profile import law_from_profile
from guarantees.numerics.array import Array
from guarantees.numerics.search import crossing
from guarantees.trade_off import TradeOff

LARGEST_LOSS = 1e4
"""Tangents steeper than this, as a logarithm, are left out."""
SMALLEST_LEVEL = 1e4
"""Both error rates are followed down to the exponential of minus this."""
FOLLOWED = 1e-12
"""Smallest promise whose points are not blurred by rounding."""
NOTHING = 1e-28
"""Promises up to this move rates by at most 1e-14: no total variation exceeds the root of a Renyi epsilon, by Pinsker's
inequality above order 1, and down to 1/2 because a divergence of this order is at least the square of it."""
ROUND_OFF = 8e-15
"""Rounding error of a divergence and its effect on a point; total variation moves by half of it, relatively."""
UNDERFLOW = np.finfo(float).tiny
"""A delta above 0 that floats cannot show."""
ROUNDED = 1e-9
"""How far rounding may put a point beyond its neighbours, as a share of 1 and of its logit."""
NEAR = 0.1
"""Losses times ``t - 1`` up to which a moment is computed by its distance from 1."""
FINE = 1e-6
"""Points of an exact curve are added until no chord lies higher than this share of the total variation over the
tangents' envelope."""
FINE_SHARE = 1e-2
"""Points are also added until no chord lies higher than this share of delta, down to deltas of 1e-12."""
FIRST_POINTS, MOST_POINTS, ROUNDS = 200, 1500, 8


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Points:
    """Points of a curve from its upper left end down to where alpha = beta, with a tangent at each.

    Alpha and the slopes by logarithms, because the one may underflow and the others overflow; beta by its logit b.
    """

    log_alpha: Array
    b: Array
    epsilon: Array
    """Logarithm of the slope."""

    @property
    def delta(self) -> Array:
        """Where each tangent meets alpha = 0, from above."""
        return expit(-self.b) - np.exp(self.log_alpha + self.epsilon)

    def kept(self, which: Array) -> _Points:
        """The points selected by ``which``."""
        return _Points(log_alpha=self.log_alpha[which], b=self.b[which], epsilon=self.epsilon[which])

    def heights(self) -> Array:
        """Height of each chord over the crossing of its two tangents; the last entry is the one over the diagonal.

        Beyond the last point lies its mirror image, whose tangent has the reciprocal slope.
        """
        drop, step = np.diff(expit(-self.b)), np.diff(self.log_alpha)
        steep = np.exp(self.epsilon + self.log_alpha)
        left, right = steep[:-1] * np.expm1(np.minimum(step, 700.0)) - drop, drop + steep[1:] * np.expm1(-step)
        across = float(expit(self.b[-1]) - np.exp(self.log_alpha[-1]))
        left, right = (
            np.maximum(np.append(side, across * end), 0.0)
            for side, end in ((left, np.expm1(min(self.epsilon[-1], 700.0))), (right, -np.expm1(-self.epsilon[-1])))
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(left / (left + right) * right)


def exact_law(orders: Array, limits: Array, *, pure: bool = False) -> DiscreteLaw:
    """The curve as the upper envelope of its tangents: on or below the truth, touching it at many points.

    Points are added where the truth may lie furthest above. The chords between them lie on or above the truth. The
    stated error is the largest height of a chord over the envelope. Only ``pure`` promises, by an infinite order, bound
    the loss: finite orders leave every loss a delta above 0, though it may underflow.
    """
    if np.min(limits) <= NOTHING:
        return _next_to_nothing(float(np.sqrt(np.min(limits))))
    if np.min(limits) <= FOLLOWED:
        return _relaxed(orders, limits)
    points = _found(_first_levels(orders, limits), orders, limits)
    if not len(points.b):
        # nothing is promised: all may be revealed
        return DiscreteLaw(np.array([-np.inf, np.inf]), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    for _ in range(ROUNDS):
        # small deltas are to be known as well as large ones, hence heights in units of what is fine there
        most = max(FINE * points.delta[-1], 1e-300)
        fine = np.clip(FINE_SHARE * points.delta[:-1], 1e-14, most)
        pieces = _pieces(points.heights()[:-1] / fine, fine == most, MOST_POINTS - len(points.b))
        if pieces.max(initial=1) == 1:
            break
        left = np.repeat(np.arange(len(pieces)), pieces - 1)
        share = (np.arange(len(left)) - np.repeat(np.cumsum(pieces - 1) - (pieces - 1), pieces - 1) + 1) / pieces[left]
        new = points.log_alpha[left] + share * np.diff(points.log_alpha)[left]
        points = _joined(points, _found(new, orders, limits, between=(points.b[left + 1], points.b[left])))
    heights, last = points.heights(), float(np.max(points.delta[0] - _lost(orders, limits), initial=0.0))
    error = float(np.max(heights, initial=max(last, 1e-14)))
    error += ROUND_OFF / float(np.min(limits)) * float(points.delta[-1])
    epsilon, first = np.unique(points.epsilon, return_index=True)
    law = law_from_profile(epsilon, np.clip(points.delta[first], 0.0 if pure else UNDERFLOW, 1.0), error=error)
    certificate = Certificate(
        proved="the curve is the envelope of the promise's tangents, and the chords between them lie above it",
        estimated="rounding",
        round_off=1e-14,
        safe=law,
        leaked=_chords(points, _lost(orders, limits)),
    )
    return dataclasses.replace(law, certificate=certificate)


def _pieces(heights: Array, large: Array, room: int) -> Array:
    """Number of pieces into which to cut each chord; if room is short, chords at large deltas stay coarser."""
    while True:
        pieces = np.clip(np.ceil(np.sqrt(heights)), 1, 8).astype(int)
        if np.sum(pieces - 1) <= max(room, 0):
            return pieces
        heights = heights / np.where(large, 1.2, 1.01)


def _next_to_nothing(most: float) -> DiscreteLaw:
    """Bracket for a total variation of at most this: reveals everything with this probability, or leaks nothing."""
    sides = np.array([most, 1 - most, 0.0])
    law = DiscreteLaw(np.array([-np.inf, 0.0, np.inf]), sides, sides[::-1], error=most)
    certificate = Certificate(
        proved="total variation is at most the root of a Renyi epsilon",
        estimated="rounding",
        round_off=0.0,
        safe=law,
        leaked=no_leak(),
    )
    return dataclasses.replace(law, certificate=certificate)


@dataclasses.dataclass(frozen=True, eq=False)
class _RelaxedLaw(DiscreteLaw):
    """A weaker promise than the one made; its composition is computed from the original one."""

    promised: tuple[Array, Array] = ()  # pyright: ignore[reportAssignmentType]

    def compose(self, times: int) -> LossLaw:
        """Composition of the original Renyi epsilons, which add up; the relaxed ones would add up to far more."""
        orders, limits = self.promised
        return exact_law(orders, times * limits)


def _relaxed(orders: Array, limits: Array) -> DiscreteLaw:
    """Law of a promise so small that rounding would blur it: that of a weaker one, and perhaps no leak at all."""
    law = exact_law(orders, np.maximum(limits, 1.001 * FOLLOWED))
    return _RelaxedLaw(
        law.atoms,
        law.without,
        law.with_record,
        error=law.error + TradeOff(law).total_variation,
        certificate=None if law.certificate is None else dataclasses.replace(law.certificate, leaked=no_leak()),
        promised=(orders, limits),
    )


def _first_levels(orders: Array, limits: Array) -> Array:
    """Logarithms of the first alphas, from alpha = beta down to where nothing is left, denser towards the latter."""

    def excess(u: Array, _: Array) -> Array:
        return (_divergences(u, u - _log_complement(u), orders) - limits[:, None]).max(axis=(0, 1))

    middle = crossing(excess, np.array([1e-6 - SMALLEST_LEVEL]), np.array([np.log(0.5)]), np.zeros(1))[0]
    return np.unique(middle - np.geomspace(1e-9, SMALLEST_LEVEL + middle, FIRST_POINTS))


def _found(log_alpha: Array, orders: Array, limits: Array, *, between: tuple[Array, Array] | None = None) -> _Points:
    """The points of the curve at these alphas, where it has a tangent steeper than 1; ``between`` those of neighbours.

    Beta falls where alpha grows.
    """

    def excess(b: Array, a: Array) -> Array:
        return (_divergences(a, b, orders) - limits[:, None]).max(axis=(0, 1))

    low, high = np.full(log_alpha.shape, -SMALLEST_LEVEL), _log_complement(log_alpha) - log_alpha
    if between is not None:
        # neighbours are rounded too
        low, high = (
            np.clip(b + end * (1 + np.abs(b)), low, high) for b, end in zip(between, (-ROUNDED, ROUNDED), strict=True)
        )
    b = crossing(excess, low, high, log_alpha)
    points = _Points(log_alpha=log_alpha, b=b, epsilon=_log_slopes(log_alpha, b, orders, limits))
    usable = (
        np.isfinite(points.epsilon) & (points.epsilon > 0) & (points.epsilon < LARGEST_LOSS) & (b > 1 - SMALLEST_LEVEL)
    )
    usable[usable] = points.kept(usable).delta >= 0
    return points.kept(usable)


def _joined(first: _Points, second: _Points) -> _Points:
    both = [
        np.concatenate(pair)
        for pair in ((first.log_alpha, second.log_alpha), (first.b, second.b), (first.epsilon, second.epsilon))
    ]
    log_alpha, at = np.unique(both[0], return_index=True)
    return _Points(log_alpha=log_alpha, b=both[1][at], epsilon=both[2][at])


def _lost(orders: Array, limits: Array) -> float:
    """``1 - f(0)``, what a test without false alarms may catch: 0 if an order above 1 is promised."""
    if np.any((orders > 1) & np.isfinite(limits)):
        return 0.0
    finite = np.isfinite(limits)
    return float(-np.expm1(-np.min(np.minimum(1.0, 1 / orders[finite] - 1) * limits[finite])))


def _chords(points: _Points, lost: float) -> DiscreteLaw:
    """The pair whose curve joins the points, and their mirror images, by straight lines."""
    # so near to the end of the curve a chord would be all rounding
    points = points.kept(expit(-points.b) > lost * (1 + 1e-9))
    while True:
        caught = np.append(lost, expit(-points.b))
        with_record, step = np.diff(caught), np.diff(points.log_alpha)
        log_without = np.append(points.log_alpha[0], points.log_alpha[1:] + np.log(-np.expm1(-step)))
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(with_record) - log_without
        # rounding may bend a chord the wrong way: without its point the next one lies higher still
        wrong = ~((losses > 0) & np.isfinite(losses))
        wrong = wrong if wrong.any() else np.append(np.inf, losses[:-1]) <= losses
        if not wrong.any():
            break
        points = points.kept(~wrong)
    without, middle = np.exp(log_without), float(expit(points.b[-1]) - np.exp(points.log_alpha[-1]))
    ends = np.array([np.inf]), np.array([lost])
    return DiscreteLaw(
        np.concatenate([-ends[0], -losses, [0.0], losses[::-1], ends[0]]),
        np.concatenate([ends[1], with_record, [middle], without[::-1], [0.0]]),
        np.concatenate([[0.0], without, [middle], with_record[::-1], ends[1]]),
    )


def _log_complement(log_rate: Array) -> Array:
    """``ln(1 - a)`` from ln a."""
    return np.log1p(-np.exp(log_rate))


def _losses(log_alpha: Array, b: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Logarithms of alpha, 1 - alpha, beta and 1 - beta, and the losses ln((1-beta)/alpha) and ln(beta/(1-alpha)).

    Alpha is given by its logarithm and beta by its logit b, because they may be far below what 1 - beta can show.
    """
    log_not_a, log_b, log_not_b = _log_complement(log_alpha), -np.logaddexp(0.0, -b), -np.logaddexp(0.0, b)
    return log_alpha, log_not_a, log_b, log_not_b, log_not_b - log_alpha, log_b - log_not_a


def _divergences(log_alpha: Array, b: Array, orders: Array) -> Array:
    """Renyi divergences of the test at each point, in both directions; axes: constraint, order, point."""
    log_a, log_not_a, log_b, log_not_b, up, down = _losses(log_alpha, b)
    t = orders[:, None]
    near = np.abs(t - 1) * np.maximum(np.abs(up), np.abs(down)) <= NEAR
    # most orders are near at all points or at none, and need one of two ways
    some, others = near.any(axis=1), ~near.all(axis=1)

    def logarithm(first: tuple[Array, Array], second: tuple[Array, Array]) -> Array:
        """Logarithm of the mean of exp((t - 1) loss); near 1 from the difference to 1, which rounding does not hide."""
        found = np.zeros(near.shape)
        rate = t[others] - 1
        found[others] = np.logaddexp(first[0] + rate * first[1], second[0] + rate * second[1])
        rate = t[some] - 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            by = sum(np.exp(weight) * np.expm1(rate * loss) for weight, loss in (first, second))
            found[some] = np.where(near[some], np.log1p(by), found[some])
        return found

    there = logarithm((log_not_b, up), (log_b, down))
    back = logarithm((log_not_a, -down), (log_a, -up))
    return np.stack([there, back]) / (t - 1)


def _log_slopes(log_alpha: Array, b: Array, orders: Array, limits: Array) -> Array:
    """``ln(-dbeta/dalpha)`` along whichever constraint binds at each point: the ratio of its two derivatives."""
    excess = _divergences(log_alpha, b, orders) - limits[:, None]
    way, which = np.divmod(excess.reshape(-1, b.size).argmax(axis=0), len(orders))
    t = orders[which]
    *_, up, down = _losses(log_alpha, b)
    apart = up - down
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = np.log(-np.expm1(-t * apart) / t) - _log_expm1_over(1 - t, apart)
    return np.where(way == 0, up + ratio, down - ratio)


def _log_expm1_over(rate: Array, length: Array) -> Array:
    """``ln((e^(rate length) - 1) / rate)``, which for a large product is next to linear."""
    far = rate * length > 500
    close = np.log(np.expm1(np.where(far, 0.0, rate * length)) / rate)
    return np.where(far, rate * length - np.log(np.abs(rate)), close)
