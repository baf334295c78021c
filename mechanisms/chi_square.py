"""One chi-square instead of millions of squared normals."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

from mechanisms.bits import Stream, blocks, positions, words
from mechanisms.noise import LARGEST_NORMAL, normal_pair, normals, polynomial

SUMMED = 32
"""Degrees of freedom up to which the normals are squared and added."""
DEGREE = 17
RANGE = LARGEST_NORMAL + 0.05
EXPANDED = 100_000
"""Degrees of freedom from which the Cornish-Fisher expansion is better than a computed quantile."""


def cube_root_excess(z: np.ndarray, degrees: int) -> np.ndarray:
    """``(Q(Phi(z)) / degrees)^(1/3) - 1`` with Q the chi-square quantile: nearly linear in z. [wilson1931]"""
    tail = special.ndtr(-np.abs(z))
    half = np.where(z < 0, special.gammaincinv(degrees / 2, tail), special.gammainccinv(degrees / 2, tail))
    ratio = half / (degrees / 2)
    return np.expm1(np.log(ratio) / 3)


@functools.lru_cache(maxsize=64)
def quantile_polynomial(degrees: int) -> tuple[float, ...]:
    """Coefficients, highest first, of the cube-root excess in z / RANGE, by interpolation at Chebyshev nodes."""
    nodes = chebyshev.chebpts1(4 * DEGREE)
    fitted = chebyshev.chebfit(nodes, cube_root_excess(nodes * RANGE, degrees), DEGREE)
    return tuple(float(c) for c in chebyshev.cheb2poly(fitted)[::-1])


def cornish_fisher(degrees: int) -> tuple[float, ...]:
    """Coefficients in z, highest first, of the quantile of ``X / degrees - 1``. [fisher1960]

    The first term left out is of order degrees^-2.5: beyond 1e5 degrees below 1e-8 of a standard deviation.
    """
    d = float(degrees)
    return (
        -6 / (405 * d**2),
        1 / (9 * math.sqrt(2) * d**1.5),
        2 / (3 * d) - 14 / (405 * d**2),
        math.sqrt(2 / d) - 7 / (9 * math.sqrt(2) * d**1.5),
        -2 / (3 * d) + 32 / (405 * d**2),
    )


def mean_square(key: jax.Array, degrees: int, *, scale: float = 1.0) -> jax.Array:
    """``scale * X / degrees`` for one chi-square X with a fixed number of degrees of freedom.

    Up to 32 degrees a sum of squares; beyond, the quantile function on the normal scale, whose cube root
    [wilson1931] is a polynomial of degree 17, and from 1e5 degrees its expansion. Errors are below 2e-6 of a
    standard deviation, before the one rounding of the result to float32.
    """
    if degrees <= SUMMED:
        drawn = normals(blocks(key, Stream.CHI_SQUARE, positions((-(-degrees // 4),))))
        squares = jnp.concatenate(drawn)[:degrees] ** 2
        return jnp.sum(squares) * (scale / degrees)
    z, _ = normal_pair(words(key, Stream.CHI_SQUARE, positions(())))
    if degrees >= EXPANDED:
        excess = polynomial(cornish_fisher(degrees), z)
    else:
        root = polynomial(quantile_polynomial(degrees), z / RANGE)
        excess = root * (3.0 + root * (3.0 + root))
    # scale * (1 + excess) rounded once: the mean square of 1.5 million coordinates varies in its third digit only
    high = float(np.float32(scale))
    return high + (jnp.float32(scale - high) + high * excess)


def chi_square(key: jax.Array, degrees: int) -> jax.Array:
    """One chi-square with a fixed number of degrees of freedom, as precise as ``mean_square``."""
    return mean_square(key, degrees, scale=float(degrees))
