"""The binomial distribution function, accurate also for very many trials."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc

from guarantees.numerics.array import Array
from guarantees.numerics.search import first

WIDE = 64
"""A table with more than this many entries per wanted value is not built."""
CHUNK = 2_000_000


def binomial_cdf(errors: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> Array:
    """``P(Bin(trials, rate) <= errors)``; 0 for fewer than no errors.

    scipy.special.bdtr is wrong by .001 at 1e7 trials and by .1 at 1e8; the incomplete beta function is not.
    """
    k, n, p = np.broadcast_arrays(np.asarray(errors, float), np.asarray(trials, float), np.asarray(rate, float))
    inside = (k >= 0) & (k < n)
    found = np.where(k >= n, 1.0, 0.0)
    found[inside] = betaincc(k[inside] + 1, n[inside] - k[inside], p[inside])
    return found


def binomial_tail(errors: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> Array:
    """``P(Bin(trials, rate) > errors)``, without cancellation where it is small."""
    k, n, p = np.broadcast_arrays(np.asarray(errors, float), np.asarray(trials, float), np.asarray(rate, float))
    inside = (k >= 0) & (k < n)
    found = np.where(k >= n, 0.0, 1.0)
    found[inside] = betainc(k[inside] + 1, n[inside] - k[inside], p[inside])
    return found


def binomial_quantile(level: float, trials: int, rate: float) -> int:
    """Smallest number of errors with ``P(Bin(trials, rate) <= errors) >= level``."""
    return first(lambda errors: bool(binomial_cdf(errors, trials, rate) >= level), -1, trials)


def binomial_upper_quantile(level: float, trials: int, rate: float) -> int:
    """Smallest number of errors with ``P(Bin(trials, rate) > errors) <= level``."""
    return first(lambda errors: bool(binomial_tail(errors, trials, rate) <= level), -1, trials)


def binomial_cdf_table(errors: Array, trials: int, rates: Array) -> Array:
    """``P(Bin(trials, rate) <= errors)`` for every rate (rows) and every number of errors (columns).

    Ratios of neighbouring probabilities are multiplied up within 7.5 standard deviations and 30 counts of the mean and
    normalised: right to about 1e-12, and far cheaper than one incomplete beta function for each entry.
    """
    certain = np.asarray(rates) >= 1
    rates = np.clip(np.asarray(rates, float), 1e-300, 1 - 1e-16)
    reach = 7.5 * np.sqrt(trials * rates * (1 - rates)) + 30
    width = min(trials + 1, 2 * int(reach.max()) + 2)
    if width > WIDE * len(errors):
        return binomial_cdf(errors, trials, np.where(certain, 1.0, rates)[:, None])
    start = np.clip((trials * rates - reach).astype(np.int64), 0, trials + 1 - width)
    rows = max(1, CHUNK // width)
    parts = [
        _table(errors, trials, rates[at : at + rows], start[at : at + rows], width) for at in range(0, len(rates), rows)
    ]
    return np.where(certain[:, None], np.asarray(errors) >= trials, np.concatenate(parts))


def _table(errors: Array, trials: int, rates: Array, start: Array, width: int) -> Array:
    count = start[:, None] + np.arange(width)
    odds = (rates / (1 - rates))[:, None]
    with np.errstate(divide="ignore"):
        ratio = np.log((trials + 1 - count[:, 1:]) / count[:, 1:]) + np.log(odds)
    log_mass = np.concatenate([np.zeros((len(rates), 1)), np.cumsum(ratio, axis=1)], axis=1)
    below = np.cumsum(np.exp(log_mass - log_mass.max(axis=1, keepdims=True)), axis=1)
    below /= below[:, -1:]
    at = errors[None, :] - start[:, None]
    found = np.take_along_axis(below, np.clip(at, 0, width - 1), axis=1)
    return np.where(at < 0, 0.0, np.where(at >= width - 1, 1.0, found))
