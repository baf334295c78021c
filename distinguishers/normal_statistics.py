"""Statistics that ask whether a vector is a sample of independent standard normals: small means yes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from scipy import optimize, special, stats


def deviance(excess: jax.Array, count: int) -> jax.Array:
    """``n (x - ln(1 + x))``, x the mean square minus one: the two-sided chi-square test of the norm.

    For small x by its series, because in float32 the two terms cancel.
    """
    x = jnp.maximum(excess, -1.0 + 1e-7)
    series = x * x * (0.5 - x * (1 / 3 - x * (0.25 - x * (0.2 - x / 6))))
    return count * jnp.where(jnp.abs(x) < 0.02, series, x - jnp.log1p(x))


def kolmogorov_smirnov(z: jax.Array) -> jax.Array:
    """Largest distance between the empirical and the normal cumulative distribution. [kolmogorov1933]"""
    n = z.size
    u = ndtr(jnp.sort(z))
    steps = jnp.arange(n, dtype=jnp.float32)
    return jnp.maximum(jnp.max((steps + 1) / n - u), jnp.max(u - steps / n))


def anderson_darling(z: jax.Array) -> jax.Array:
    """``-n - mean_i (2i - 1)(ln Phi(z_(i)) + ln Phi(-z_(n+1-i)))``. [anderson1952]"""
    n = z.size
    ordered = jnp.sort(z)
    odd = 2 * jnp.arange(n, dtype=jnp.float32) + 1
    return -jnp.mean(odd * (log_ndtr(ordered) + log_ndtr(-ordered[::-1])) + n)


def cramer_von_mises(z: jax.Array) -> jax.Array:
    """``1/(12 n) + sum_i (Phi(z_(i)) - (2i - 1)/(2n))^2``. [anderson1952]"""
    n = z.size
    odd = 2 * jnp.arange(n, dtype=jnp.float32) + 1
    return 1 / (12 * n) + jnp.sum((ndtr(jnp.sort(z)) - odd / (2 * n)) ** 2)


def moments(z: jax.Array) -> jax.Array:
    """``n sum_k (mean He_k(z))^2 / k!`` over k = 1 .. 4: mean, variance, skewness and kurtosis at once.

    The moment test of [dagostino1973] standardises by the sample's own mean and variance, so it gives the same
    value under both hypotheses; with mean 0 and variance 1 known the moments of all four orders count.
    """
    hermite = (z, z * z - 1, z * (z * z - 3), z * z * (z * z - 6) + 3)
    return z.size * sum((jnp.mean(h) ** 2 / math.factorial(k) for k, h in enumerate(hermite, 1)), jnp.float32(0.0))


STATISTICS: Mapping[str, Callable[[jax.Array], jax.Array]] = MappingProxyType(
    {
        "chi_square": lambda z: deviance(jnp.mean(z * z - 1), z.size),
        "kolmogorov_smirnov": kolmogorov_smirnov,
        "anderson_darling": anderson_darling,
        "cramer_von_mises": cramer_von_mises,
        "moments": moments,
    }
)


def critical_value(test: str, count: int, level: float) -> float:
    """What the statistic of ``count`` standard normals exceeds with probability ``level``.

    Exact for chi_square and kolmogorov_smirnov; from the limiting law for the others (at 100 coordinates and
    level .05 Anderson-Darling and Cramer-von Mises have size .049, moments .063). It costs power, never validity.
    """
    if test == "chi_square":
        return _root(lambda c: _deviance_tail(c, count) - level, 1e-6, 500.0)
    if test == "kolmogorov_smirnov":
        return float(stats.kstwo.isf(level, count))
    if test == "moments":
        return float(stats.chi2.isf(level, 4))
    return quadratic_critical_value(test, level)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(optimize.root_scalar(function, bracket=(low, high), method="brentq").root)


def _deviance_tail(value: float, count: int) -> float:
    """P(n (x - ln(1 + x)) > value) for the mean square 1 + x of ``count`` standard normals."""
    argument = -math.exp(-1.0 - value / count)
    low, high = (-float(special.lambertw(argument, branch).real) for branch in (0, -1))
    return float(stats.chi2.cdf(count * low, count) + stats.chi2.sf(count * high, count))


def quadratic_critical_value(test: str, level: float) -> float:
    """Upper quantile of ``sum_j w_j X_j``, X_j independent chi-squares of one degree. [imhof1961, equation 3.2]

    The limits of the two quadratic statistics: w_j = 1/(pi j)^2 (Cramer-von Mises) and 1/(j (j+1))
    (Anderson-Darling), for which ``prod_j (1 - s w_j)`` is ``sin(r)/r``, r = sqrt s, and
    ``-cos(pi sqrt(1 + 4s) / 2) / (pi s)``. [anderson1952]
    """
    mean = 1.0 if test == "anderson_darling" else 1 / 6
    u = (np.arange(60_000) + 0.5) * 0.02 / mean
    s = 1j * u
    if test == "anderson_darling":
        product = -np.cos(math.pi / 2 * np.sqrt(1 + 4 * s)) / (math.pi * s)
    else:
        product = np.sin(np.sqrt(s)) / np.sqrt(s)
    angle, size = -np.unwrap(np.angle(product)) / 2, np.sqrt(np.abs(product))

    def tail(x: float) -> float:
        return 0.5 + float(np.sum(np.sin(angle - u * x / 2) / (u * size))) * 0.02 / mean / math.pi

    return _root(lambda x: tail(x) - level, mean / 50, 40 * mean)
