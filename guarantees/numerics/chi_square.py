"""Both tails of the gamma and of the chi-square law, accurate for hundreds of millions of degrees of freedom."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from scipy.special import erf, erfc, gammainc, gammaincc

from guarantees.numerics.array import Array
from guarantees.numerics.line_table import LineTable
from guarantees.numerics.root import root

TABULATED = 200.0
"""Degrees of freedom from which a table is used: below, the law's root at 0 and its long tail want many nodes."""
MANY = 4096
"""Number of tails from which a table is worth building."""
STEP = 0.04
"""Step of the table in standard deviations of ln w: the interpolation then costs less than 1e-11 of any tail."""
LEAST = 1e-280
"""Smallest tail that is not rounded to 0; a delta at epsilon 600 multiplies tails by e^epsilon and still needs it."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
"""ln Gamma(a) beyond Stirling's formula, in powers ``a^-1, a^-3, ...``."""
LARGE_SHAPE = 1e5
"""Shape from which two terms of the uniform expansion are good to about 1e-12."""
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


def square_rounding(degrees: float) -> float:
    """How far rounding |x|^2, about ``degrees`` with deviation ``sqrt(2 degrees)``, moves a rate."""
    return 2e-16 * math.sqrt(degrees)


def chi_square_tails(w: Array, degrees: float) -> tuple[Array, Array]:
    """(P(chi-square <= w), P(chi-square > w)); only the smaller is computed, the other is one minus it."""
    w = np.maximum(np.asarray(w, float), 0.0)
    if degrees == 1:
        root = np.sqrt(w / 2)
        return erf(root), erfc(root)
    small = w < degrees
    tail = _table(degrees)(w) if degrees >= TABULATED and w.size >= MANY else _smaller(w, small, degrees)
    return np.where(small, tail, 1 - tail), np.where(small, 1 - tail, tail)


def _smaller(w: Array, small: Array, degrees: float) -> Array:
    """The lower tail where ``small`` is true, else the upper one."""
    shape = degrees / 2
    if shape >= LARGE_SHAPE:
        below, above = gamma_tails(shape, w / 2)
        return np.where(small, below, above)
    tail = np.empty(w.shape)
    tail[small], tail[~small] = gammainc(shape, w[small] / 2), gammaincc(shape, w[~small] / 2)
    return tail


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    """ln of the lower tail below the mean and of the upper one above it, in ``y = ln(w / degrees)``."""

    degrees: float
    lower: LineTable
    upper: LineTable

    def __call__(self, w: Array) -> Array:
        """The smaller tail; 0 beyond the ends of the tables."""
        with np.errstate(divide="ignore"):
            y = np.log1p((w - self.degrees) / self.degrees)
        tail = np.zeros(w.shape)
        for table, inside in (
            (self.lower, (y < 0) & (y > self.lower.start)),
            (self.upper, (y >= 0) & (y < self.upper.nodes[-1])),
        ):
            tail[inside] = np.exp(table(y[inside]))
        return tail


@functools.lru_cache(maxsize=64)
def _table(degrees: float) -> _Table:
    shape = degrees / 2
    step = STEP / math.sqrt(shape)
    below, above = math.ceil(-_end(shape, lower=True) / step), math.ceil(_end(shape, lower=False) / step)
    lower, upper = step * np.arange(-below, 1), step * np.arange(above + 1)
    return _Table(
        degrees=degrees,
        lower=LineTable(start=float(lower[0]), step=step, values=_logarithms(shape, lower, lower=True)),
        upper=LineTable(start=0.0, step=step, values=_logarithms(shape, upper, lower=False)),
    )


def _end(shape: float, *, lower: bool) -> float:
    """The y at which ``a (e^y - 1 - y)``, which bounds -ln of the tail from below, is that of LEAST."""
    far = -math.log(LEAST) / shape
    between = (-far - 1.0, 0.0) if lower else (0.0, math.log1p(far + math.sqrt(2 * far)) + 1.0)
    return root(lambda y: math.expm1(y) - y - far, *between)


def _logarithms(shape: float, y: Array, *, lower: bool) -> Array:
    """ln of one tail at ``w = 2 a e^y`` with its first two derivatives in y.

    With ``r`` the density of y over the tail they are r and r (a - a e^y - r) below, -r and -r (a - a e^y + r) above.
    """
    x = shape * np.exp(y)
    if shape >= LARGE_SHAPE:
        tail = gamma_tails(shape, x)[0 if lower else 1]
    else:
        tail = gammainc(shape, x) if lower else gammaincc(shape, x)
    beyond = sum(term / shape ** (2 * power + 1) for power, term in enumerate(_STIRLING))
    # a (e^y - 1 - y) instead of a difference of large logarithms, by its series where even that cancels
    series = np.polynomial.polynomial.polyval(y, [0.0, 0.0, *(1 / math.factorial(k) for k in range(2, 15))])
    excess = np.where(np.abs(y) < 0.3, series, np.expm1(y) - y)
    density = math.sqrt(shape / (2 * math.pi)) * np.exp(-shape * excess - beyond)
    r, sign = density / tail, 1.0 if lower else -1.0
    # x was rounded: at 1e8 degrees by enough to be seen
    moved = ((x - shape) / shape - np.expm1(y)) * np.exp(-y)
    return np.stack([np.log(tail) - sign * r * moved, sign * r, sign * r * (shape * -np.expm1(y) - sign * r)])
