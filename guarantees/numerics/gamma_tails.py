"""Tails of the gamma law that stay accurate for hundreds of millions of degrees of freedom."""

from __future__ import annotations

import numpy as np
from scipy.special import erfc, gammainc, gammaincc

from guarantees.numerics.array import Array

LARGE_SHAPE = 1e5
"""From here on two terms of the uniform expansion are good to about 1e-12."""
NEAR = 30.0
"""Arguments of erfc beyond which it is zero in float64, with room for the expansion."""

# Taylor coefficients in eta of the first two terms. [temme1979; didonato1986, appendix F]
_FIRST = (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600, -281 / 151559100)
_SECOND = (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860, -4.0187757201646091e-7, -1.8098550334489978e-5)


def gamma_tails(shape: float, x: Array) -> tuple[Array, Array]:
    """Both regularised incomplete gamma functions, (P(shape, x), Q(shape, x)).

    ``Q = erfc(eta sqrt(a/2))/2 + R``, ``P = erfc(-eta sqrt(a/2))/2 - R``,
    ``R = e^(-a eta^2/2)/sqrt(2 pi a) (c_0(eta) + c_1(eta)/a)``, ``eta^2/2 = x/a - 1 - ln(x/a)``.
    [temme1979, equation 1.7]

    scipy's own functions lose the lower tail beyond 4.5 standard deviations when the shape is large: 1e-6 of it
    at shape 1e6, 42% of it at 1.5e8 (against 30 digits).
    """
    x = np.maximum(np.asarray(x, float), 0.0)
    if shape < LARGE_SHAPE:
        return gammainc(shape, x), gammaincc(shape, x)
    excess = (x - shape) / shape
    below, above = np.where(excess < 0, 0.0, 1.0), np.where(excess < 0, 1.0, 0.0)
    # Outside, at 40 standard deviations and more, one tail is zero and the other one.
    near = np.abs(excess) < NEAR * np.sqrt(2 / shape)
    eta = _eta(excess[near])
    correction = np.exp(-0.5 * shape * eta**2) / np.sqrt(2 * np.pi * shape)
    correction *= np.polynomial.polynomial.polyval(eta, _FIRST) + np.polynomial.polynomial.polyval(eta, _SECOND) / shape
    root = eta * np.sqrt(0.5 * shape)
    below[near] = 0.5 * erfc(-root) - correction
    above[near] = 0.5 * erfc(root) + correction
    return np.clip(below, 0.0, 1.0), np.clip(above, 0.0, 1.0)


def _eta(excess: Array) -> Array:
    """``sign(m) sqrt(2 (m - ln(1 + m)))`` by its series, which does not cancel; terms below 1e-18 are left out."""
    largest = float(np.abs(excess).max(initial=1e-9))
    powers = np.arange(2, 4 + np.ceil(np.log(1e-18) / np.log(largest)))
    series = np.polynomial.polynomial.polyval(excess, 2 * (-1.0) ** powers / powers)
    return excess * np.sqrt(series)
