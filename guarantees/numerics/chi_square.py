"""Both tails of a chi-square law, from a table where there are very many of them."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from scipy.special import erf, erfc, gammainc, gammaincc

from guarantees.numerics.array import Array
from guarantees.numerics.gamma_tails import LARGE_SHAPE, gamma_tails
from guarantees.numerics.line_table import LineTable
from guarantees.numerics.root import root

TABULATED = 200.0
"""Degrees of freedom from which a table is used: below, the law's root at 0 and its long tail want many nodes."""
MANY = 4096
"""Fewer tails are not worth a table."""
STEP = 0.04
"""Step of the table in standard deviations of ln w: the interpolation then costs less than 1e-11 of any tail."""
LEAST = 1e-280
"""Smaller tails are 0. A delta at epsilon 600 still needs them: they are multiplied by e^epsilon."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
"""ln Gamma(a) beyond Stirling's formula, in powers ``a^-1, a^-3, ...``."""


def square_rounding(degrees: float) -> float:
    """How far a rate moves because |x|^2, about ``degrees`` with deviation ``sqrt(2 degrees)``, is rounded."""
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
    """The lower tail where ``small``, else the upper one."""
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
