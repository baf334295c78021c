"""Statistics of whether a vector is a sample of independent standard normals: a small value means yes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from scipy import special

from guarantees.numerics.distributions import chi2, kstwo
from guarantees.numerics.root import root


def deviance(excess: jax.Array, count: int) -> jax.Array:
    """The two-sided chi-square statistic of the norm, ``n (x - ln(1 + x))``, with x the mean square minus one.

    For small x by its series, because in float32 the two terms cancel.
    """
    x = jnp.maximum(excess, -1.0 + 1e-7)
    series = x * x * (0.5 - x * (1 / 3 - x * (0.25 - x * (0.2 - x / 6))))
    return count * jnp.where(jnp.abs(x) < 0.02, series, x - jnp.log1p(x))


def rising(z: jax.Array) -> jax.Array:
    """Sort a vector, as the integers that order floats alike, which XLA sorts four times as fast on a CPU."""
    bits = jax.lax.bitcast_convert_type(z, jnp.int32)
    ordered = jnp.sort(jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits))
    return jax.lax.bitcast_convert_type(jnp.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered), jnp.float32)


class Statistic(Protocol):
    """A statistic of normality, for one vector or for many that differ in few coordinates and in scale."""

    def __call__(self, z: jax.Array) -> jax.Array:
        """The statistic of one vector."""
        ...

    def beside(self, rest: jax.Array, scales: jax.Array, heads: jax.Array, which: np.ndarray) -> jax.Array:
        """The statistic of the vectors ``(heads[k], rest * scales[which[k]])``, shape (len(heads),)."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ordered:
    """A statistic of order: ``value`` of ``maps`` of the sorted vector."""

    maps: tuple[Callable[[jax.Array], jax.Array], ...]
    """Functions of a single coordinate."""
    value: Callable[..., jax.Array]
    """Function of the maps' values, in the order of the coordinates."""

    def __call__(self, z: jax.Array) -> jax.Array:
        """The statistic of one vector, by sorting it."""
        ordered = rising(z)
        return self.value(*(one(ordered) for one in self.maps))

    def beside(self, rest: jax.Array, scales: jax.Array, heads: jax.Array, which: np.ndarray) -> jax.Array:
        """The statistic of many vectors by one sort, as a scale keeps the order; equal to ``__call__``.

        In loops, because XLA would otherwise fuse the maps into their readers and compute them again for every head.
        """
        ordered = rising(rest)

        def read(scale: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
            return ordered * scale, [one(ordered * scale) for one in self.maps]

        scaled, mapped = jax.lax.map(read, scales)

        def of_one(given: tuple[jax.Array, jax.Array]) -> jax.Array:
            head, scale = jnp.sort(given[0]), given[1]
            places = [jnp.sum(scaled[scale] <= one) + index for index, one in enumerate(head)]
            return self.value(
                *(inserted(values[scale], places, one(head)) for values, one in zip(mapped, self.maps, strict=True))
            )

        return jax.lax.map(of_one, (heads, jnp.asarray(which)))


def inserted(values: jax.Array, places: Sequence[jax.Array], new: jax.Array) -> jax.Array:
    """Insert new values at increasing places of the longer vector."""
    for place, one in zip(places, new, strict=True):
        index = jnp.arange(len(values) + 1)
        shifted = jnp.where(index < place, jnp.pad(values, (0, 1)), jnp.pad(values, (1, 0)))
        values = jnp.where(index == place, one, shifted)
    return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Averaged:
    """A statistic of means: ``value`` of the number of coordinates and of the means of ``maps``."""

    maps: tuple[Callable[[jax.Array], jax.Array], ...]
    value: Callable[..., jax.Array]

    def __call__(self, z: jax.Array) -> jax.Array:
        """The statistic of one vector."""
        return self.value(z.size, *(jnp.mean(one(z)) for one in self.maps))

    def beside(self, rest: jax.Array, scales: jax.Array, heads: jax.Array, which: np.ndarray) -> jax.Array:
        """The statistic of many vectors by one sum over the rest for each scale; rounding differs from ``__call__``."""
        count = rest.size + heads.shape[1]
        sums = [jnp.sum(one(rest * scales[:, None]), axis=1) for one in self.maps]
        means = [
            (total[jnp.asarray(which)] + jnp.sum(one(heads), axis=1)) / count
            for total, one in zip(sums, self.maps, strict=True)
        ]
        return self.value(count, *means)


def _kolmogorov_smirnov(u: jax.Array) -> jax.Array:
    n = u.size
    steps = jnp.arange(n, dtype=jnp.float32)
    return jnp.maximum(jnp.max((steps + 1) / n - u), jnp.max(u - steps / n))


def _anderson_darling(below: jax.Array, above: jax.Array) -> jax.Array:
    n = below.size
    odd = 2 * jnp.arange(n, dtype=jnp.float32) + 1
    return -jnp.mean(odd * (below + above[::-1]) + n)


def _cramer_von_mises(u: jax.Array) -> jax.Array:
    n = u.size
    odd = 2 * jnp.arange(n, dtype=jnp.float32) + 1
    return 1 / (12 * n) + jnp.sum((u - odd / (2 * n)) ** 2)


def _moments(count: int, *means: jax.Array) -> jax.Array:
    return count * sum((mean**2 / math.factorial(k) for k, mean in enumerate(means, 1)), jnp.float32(0.0))


STATISTICS: Mapping[str, Statistic] = MappingProxyType(
    {
        "chi_square": Averaged(maps=(lambda z: z * z - 1,), value=lambda count, excess: deviance(excess, count)),
        "kolmogorov_smirnov": Ordered(maps=(ndtr,), value=_kolmogorov_smirnov),
        "anderson_darling": Ordered(maps=(log_ndtr, lambda z: log_ndtr(-z)), value=_anderson_darling),
        "cramer_von_mises": Ordered(maps=(ndtr,), value=_cramer_von_mises),
        "moments": Averaged(
            maps=(lambda z: z, lambda z: z * z - 1, lambda z: z * (z * z - 3), lambda z: z * z * (z * z - 6) + 3),
            value=_moments,
        ),
    }
)
"""Of n coordinates z, in rising order where they have an index i = 1 .. n:

- chi_square: ``n (x - ln(1 + x))``, x the mean square minus one;
- kolmogorov_smirnov: the largest distance between the empirical and the normal distribution [kolmogorov1933];
- anderson_darling: ``-n - mean_i (2i - 1)(ln Phi(z_(i)) + ln Phi(-z_(n+1-i)))`` [anderson1952];
- cramer_von_mises: ``1/(12 n) + sum_i (Phi(z_(i)) - (2i - 1)/(2n))^2`` [anderson1952];
- moments: ``n sum_k (mean He_k(z))^2 / k!`` over k = 1 .. 4: mean, variance, skewness and kurtosis at once. The moment
  test of [dagostino1973] standardises by the sample's own mean and variance, so it gives the same value under both
  hypotheses; with mean 0 and variance 1 known the moments of all four orders count.
"""


def critical_value(test: str, count: int, level: float) -> float:
    """Value that the statistic of ``count`` standard normals exceeds with probability ``level``.

    Exact for chi_square and kolmogorov_smirnov; from the limiting law for the others (at 100 coordinates and level .05
    Anderson-Darling and Cramer-von Mises have size .049, moments .063). The error costs power, never validity.
    """
    if test == "chi_square":
        return root(lambda c: _deviance_tail(c, count) - level, 1e-6, 500.0)
    if test == "kolmogorov_smirnov":
        return float(kstwo.isf(level, count))
    if test == "moments":
        return float(chi2.isf(level, 4))
    return quadratic_critical_value(test, level)


def _deviance_tail(value: float, count: int) -> float:
    """P(n (x - ln(1 + x)) > value) for the mean square 1 + x of ``count`` standard normals."""
    argument = -math.exp(-1.0 - value / count)
    low, high = (-float(special.lambertw(argument, branch).real) for branch in (0, -1))
    return float(chi2.cdf(count * low, count) + chi2.sf(count * high, count))


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

    return root(lambda x: tail(x) - level, mean / 50, 40 * mean)
