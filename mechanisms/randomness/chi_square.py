"""One chi-square instead of millions of squared normals."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

from dpsgd_audit.later import jax, jnp
from mechanisms.randomness.bits import Stream, blocks, positions, words
from mechanisms.randomness.noise import LARGEST_NORMAL, normal_pair, normals, polynomial
from mechanisms.structure import structured

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


@structured(numbers=("scale", "remainder", "coefficients"), structure=("summed", "cubed"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeanSquare:
    """``scale * X / degrees`` for one chi-square X, as a function of the key.

    Up to 32 degrees a sum of squares; beyond, the quantile function on the normal scale, whose cube root
    [wilson1931] is a polynomial of degree 17, and from 1e5 degrees its expansion. Errors are below 2e-6 of a
    standard deviation, before the one rounding of the result to float32.
    """

    scale: float
    """Over the degrees where squares are summed; else the nearest float32."""
    remainder: float
    """What the float32 leaves of the scale."""
    coefficients: tuple[float, ...]
    summed: int
    """Squares that are summed; 0 where a quantile is computed."""
    cubed: bool

    def __call__(self, key: jax.Array) -> jax.Array:
        """The draw of one key."""
        if self.summed:
            drawn = normals(blocks(key, Stream.CHI_SQUARE, positions((-(-self.summed // 4),))))
            return jnp.sum(jnp.concatenate(drawn)[: self.summed] ** 2) * self.scale
        z, _ = normal_pair(words(key, Stream.CHI_SQUARE, positions(())))
        if self.cubed:
            root = polynomial(self.coefficients, z / RANGE)
            excess = root * (3.0 + root * (3.0 + root))
        else:
            excess = polynomial(self.coefficients, z)
        # scale * (1 + excess) rounded once: the mean square of 1.5 million coordinates varies in its third digit only
        return self.scale + (self.remainder + self.scale * excess)


def mean_square_law(degrees: int, *, scale: float = 1.0) -> MeanSquare:
    """The mean square of ``degrees`` normals of variance ``scale``: its numbers found once, in float64."""
    if degrees <= SUMMED:
        return MeanSquare(scale=scale / degrees, remainder=0.0, coefficients=(), summed=degrees, cubed=False)
    high = float(np.float32(scale))
    cubed = degrees < EXPANDED
    coefficients = quantile_polynomial(degrees) if cubed else cornish_fisher(degrees)
    return MeanSquare(scale=high, remainder=scale - high, coefficients=coefficients, summed=0, cubed=cubed)
