"""Curves promised by Renyi and zero-concentrated differential privacy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from guarantees.checks import Positive, checked, require
from guarantees.claim import Claim, unusual
from guarantees.families.renyi_curve import exact_law
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import Relation

LARGEST_ORDER = 4e13
"""Larger orders, infinity included, are replaced by this one; that weakens the promise by under 1e-14."""
LARGEST_PROMISE = 9000.0
"""Promises beyond this have almost no tangent that is not too steep, and say nothing."""
FOLLOWED_RHO = 1e-20
"""Smallest rho for which the strongest of the orders' promises is computed."""


@checked
def renyi(
    *,
    orders: Sequence[float],
    epsilons: Sequence[float],
    relation: Relation = "any",
) -> Claim:
    """(t, epsilon(t))-Renyi DP at the given orders, in both directions.

    Beta is the smallest value that satisfies ``ln((1-b)^t a^(1-t) + b^t (1-a)^(1-t)) / (t-1) <= epsilon(t)``, and the
    same with a and b exchanged, for EVERY order: the largest of the single orders' betas. [gomez2025, appendix A.6,
    which says the smallest]

    Promises nothing at other orders but what follows. A divergence never falls as its order grows: an epsilon above
    that of a larger order counts as that one. Nothing checks that a mechanism has these Renyi epsilons.

    Args:
      orders: t, each at least 1/2 and not 1. An infinite one is pure differential privacy.
      epsilons: Renyi epsilons, as many as orders, each at least 0, infinite where an order promises nothing; the
        smallest at most 9000 if it is finite.
      relation: which neighbours the promise is for.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range, or the two lists differ in length.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.renyi(orders=[2.0, 4.0, 8.0], epsilons=[0.1, 0.2, 0.4])
      >>> round(claim.epsilon(1e-5), 2)
      1.61
    """
    t, eps = np.asarray(orders, float).reshape(-1), np.asarray(epsilons, float).reshape(-1)
    require("orders", t.size and np.all((t >= 0.5) & (t != 1)), ">= 1/2, not 1, at least one", orders)
    require("epsilons", eps.shape == t.shape and np.all(eps >= 0), "as many as orders, all >= 0", epsilons)
    smallest = np.min(eps)
    followed = smallest <= LARGEST_PROMISE or np.isinf(smallest)
    require("the smallest of epsilons", followed, f"at most {LARGEST_PROMISE:g} (numerics), or infinite", smallest)
    follows = _implied(t, eps)
    finite = np.minimum(t, LARGEST_ORDER)
    falls = np.isfinite(eps) & (eps > 1.1 * follows)
    if falls.any():
        less = int(np.argmax(falls))
        warnings.warn(
            f"a Renyi epsilon never falls as its order grows, but order {t[less]:g} has {eps[less]:g} and a larger "
            f"order implies {follows[less]:g}, which is used instead; check whether a number is in the wrong place.",
            stacklevel=3,
        )
    return Claim(
        curve=TradeOff(exact_law(finite, follows, pure=bool(np.isinf(t[np.isfinite(eps)]).any()))),
        name="renyi",
        parameters={"orders": tuple(t.tolist()), "epsilons": tuple(eps.tolist())} | unusual(relation, "any"),
        relation=relation,
        unit="release",
        source="gomez2025, appendix A.6",
    )


@checked
def zcdp(*, rho: Positive, relation: Relation = "any") -> Claim:
    """rho-zCDP: ``(t, rho t)``-Renyi DP at every order t > 1, of which 250 are used. [bun2016; gomez2025, C.3]

    Any choice of orders gives a valid promise. All of them together would promise an epsilon that is smaller by some
    3e-4 of it, which is no part of ``epsilon_range``. The Gaussian mechanism, which has ``rho = 1 / (2 sigma^2)``,
    promises more than its zCDP alone, which does not show that: use ``gaussian`` for it.

    Args:
      rho: above 0 and at most 9000.
      relation: which neighbours the promise is for.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.zcdp(rho=0.5).epsilon(1e-5), 2)
      4.73
      >>> round(guarantees.gaussian(mu=1.0).epsilon(1e-5), 2)  # the Gaussian mechanism of this rho
      4.38
    """
    require("rho", rho <= LARGEST_PROMISE, f"at most {LARGEST_PROMISE:g} (numerics)", rho)
    orders = 1 + np.geomspace(0.01, 2000.0, 250) / np.sqrt(rho)
    if rho <= FOLLOWED_RHO:
        # the best orders are too large for floats, and a small one says that next to nothing leaks
        orders = np.array([1.01])
    return Claim(
        curve=TradeOff(exact_law(orders, rho * orders)),
        name="zcdp",
        parameters={"rho": rho} | unusual(relation, "any"),
        relation=relation,
        unit="release",
        source="bun2016; gomez2025, appendix C.3",
    )


def _implied(orders: Array, epsilons: Array) -> Array:
    """What each order effectively promises: the least of its own and all higher orders' promises."""
    order = np.argsort(orders)
    least = np.empty(epsilons.shape)
    least[order] = np.minimum.accumulate(epsilons[order][::-1])[::-1]
    return least


def profile_of_renyi(orders: Array, renyi_epsilons: Array, epsilons: Array) -> Array:
    """Delta at each epsilon: ``min_t exp((t-1)(epsilon(t) - eps)) (1-1/t)^t / (t-1)``, and never above 1.

    [canonne2020, proposition 12]
    """
    usable = (orders > 1) & np.isfinite(renyi_epsilons)
    t, e = orders[usable], renyi_epsilons[usable]
    logs = (t - 1) * (e - epsilons[:, None]) - np.log(t - 1) + t * np.log1p(-1 / t)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))
