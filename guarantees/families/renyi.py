"""Curves that Renyi and zero-concentrated differential privacy promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import expit, ndtr

from guarantees.checks import Positive, checked, require
from guarantees.claim import Claim, unusual
from guarantees.laws.law import LossLaw
from guarantees.laws.profile import law_from_profile
from guarantees.numerics.array import Array
from guarantees.numerics.search import crossing
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import Relation

Conversion = Literal["exact", "profile"]
CONVERSIONS = ("exact", "profile")


@checked
def renyi(
    *,
    orders: Sequence[float],
    epsilons: Sequence[float],
    relation: Relation = "any",
    conversion: Conversion = "exact",
) -> Claim:
    """(t, epsilon(t))-Renyi DP at the given orders, in both directions.

    ``exact``: beta is the smallest value that satisfies
    ``ln((1-b)^t a^(1-t) + b^t (1-a)^(1-t)) / (t-1) <= epsilon(t)``, and the same with a and b exchanged, for
    EVERY order: the largest of the single orders' betas. [gomez2025, appendix A.6, which says the smallest]
    ``profile``: the looser closed form of the profile at each order. [canonne2020, proposition 12;
    gomez2025, appendix C.2]
    """
    t, eps = np.asarray(orders, float).reshape(-1), np.asarray(epsilons, float).reshape(-1)
    require("orders", t.size and np.all((t >= 0.5) & (t != 1)), ">= 1/2, not 1, at least one", orders)
    require("epsilons", eps.shape == t.shape and np.all(eps >= 0), "as many as orders, all >= 0", epsilons)
    require("conversion", conversion in CONVERSIONS, f"one of {CONVERSIONS}", conversion)
    if conversion == "profile":
        require("orders", np.all(t > 1), "> 1 for the profile's closed form", orders)
    return Claim(
        curve=TradeOff(_law(t, eps, conversion)),
        name="renyi",
        parameters={"orders": tuple(t.tolist()), "epsilons": tuple(eps.tolist()), "conversion": conversion}
        | unusual(relation, "any"),
        relation=relation,
        source="gomez2025, appendix A.6" if conversion == "exact" else "canonne2020, proposition 12",
    )


@checked
def zcdp(*, rho: Positive, relation: Relation = "any", conversion: Conversion = "exact") -> Claim:
    """rho-zCDP: ``(t, rho t)``-Renyi DP at every order t > 1, of which 250 are used.

    Any choice of orders gives a valid promise; more would change it little. [bun2016; gomez2025, C.3]
    """
    require("conversion", conversion in CONVERSIONS, f"one of {CONVERSIONS}", conversion)
    orders = 1 + np.geomspace(0.01, 2000.0, 250) / np.sqrt(rho)
    return Claim(
        curve=TradeOff(_law(orders, rho * orders, conversion)),
        name="zcdp",
        parameters={"rho": rho, "conversion": conversion} | unusual(relation, "any"),
        relation=relation,
        source="bun2016; gomez2025, appendix C.3",
    )


def profile_of_renyi(orders: Array, renyi_epsilons: Array, epsilons: Array) -> Array:
    """Delta at each epsilon: ``min_t exp((t-1)(epsilon(t) - eps)) (1-1/t)^t / (t-1)``, and never above 1.

    [canonne2020, proposition 12]
    """
    usable = (orders > 1) & np.isfinite(renyi_epsilons)
    t, e = orders[usable], renyi_epsilons[usable]
    logs = (t - 1) * (e - epsilons[:, None]) - np.log(t - 1) + t * np.log1p(-1 / t)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def _law(orders: Array, renyi_epsilons: Array, conversion: Conversion) -> LossLaw:
    if conversion == "profile":
        grid = np.append(0.0, np.geomspace(1e-4, 500.0, 4000))
        return law_from_profile(grid, profile_of_renyi(orders, renyi_epsilons, grid))
    return _exact_law(orders, renyi_epsilons)


def _exact_law(orders: Array, limits: Array, points: int = 600) -> LossLaw:
    """The curve as the upper envelope of its tangents: on or below the truth, touching it at many points.

    The stated error is the largest height of the truth over the envelope.
    """
    alpha = np.concatenate([np.geomspace(1e-300, 1e-16, 100), ndtr(np.linspace(-8.2, 0.0, points))])
    alpha = np.unique(np.minimum(alpha, 0.5))

    def excess(b: Array, a: Array) -> Array:
        return (_moments(a, b, orders)[1] - limits[:, None]).max(axis=(0, 1))

    b = crossing(excess, np.full(alpha.shape, -700.0), np.log1p(-alpha) - np.log(alpha), alpha)
    slope = _slopes(alpha, b, orders, limits)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        epsilon = np.log(slope)
        delta = expit(-b) - slope * alpha
    usable = np.isfinite(epsilon) & (epsilon > 0) & (delta >= 0) & (b > -699) & (epsilon < 700)
    a, beta, rise = alpha[usable], expit(b[usable]), slope[usable]
    width, chord = np.diff(a), -np.diff(beta) / np.diff(a)
    left, right = np.maximum(rise[:-1] - chord, 0.0), np.maximum(chord - rise[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The steeper slope may be near overflow: its share is taken before the product.
        height = np.nan_to_num(left / (left + right) * right * width)
    epsilon, first = np.unique(epsilon[usable], return_index=True)
    deltas = np.clip(delta[usable][first], 0.0, 1.0)
    return law_from_profile(epsilon, deltas, error=float(np.max(height, initial=1e-14)))


def _moments(alpha: Array, b: Array, orders: Array) -> tuple[list[tuple[Array, Array]], Array]:
    """Logarithms of the two terms of each constraint, and the divergence they give.

    Constraints: with the record against without, then back; axes: (constraint,) order, point. Beta is given
    by its logit b, because it may be far below what 1 - beta can show.
    """
    log_a, log_not_a = np.log(alpha), np.log1p(-alpha)
    log_b, log_not_b = -np.logaddexp(0.0, -b), -np.logaddexp(0.0, b)
    t = orders[:, None]
    terms = [
        (t * log_not_b + (1 - t) * log_a, t * log_b + (1 - t) * log_not_a),
        (t * log_not_a + (1 - t) * log_b, t * log_a + (1 - t) * log_not_b),
    ]
    return terms, np.stack([np.logaddexp(*pair) / (t - 1) for pair in terms])


def _slopes(alpha: Array, b: Array, orders: Array, limits: Array) -> Array:
    """``-dbeta/dalpha`` along whichever constraint binds at each point: the ratio of its two derivatives."""
    terms, divergence = _moments(alpha, b, orders)
    t = orders[:, None]
    (alarm, silence), (right, wrong) = (
        [np.exp(term - (t - 1) * total) for term in pair] for pair, total in zip(terms, divergence, strict=True)
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        beta, power = expit(b), expit(-b)
        forward = (1 - t) * (alarm / alpha - silence / (1 - alpha)) / (t * (silence / beta - alarm / power))
        backward = t * (wrong / alpha - right / (1 - alpha)) / ((1 - t) * (right / beta - wrong / power))
    binding = (divergence - limits[:, None]).reshape(-1, alpha.size).argmax(axis=0)
    return np.stack([forward, backward]).reshape(-1, alpha.size)[binding, np.arange(alpha.size)]
