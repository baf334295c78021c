"""Mixtures over very many batch sizes that also divide: tabulated once on the host, read in programs.

A batch that divides changes the scale of an output and, along the line of the gradients, its place. Off the line only
the mean square counts, so a mixture is a function of two numbers: how large an output is, and how far along the line it
lies in deviations of the noise that this size suggests. In the first it has a hill for every batch; in the second it is
smooth. The score stays a fixed function of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from distinguishers.exact.tabulated import BEYOND, CELLS, FAINT, PIECE, cubics
from dpsgd_audit.later import jnp
from mechanisms.structure import pad_rows

if TYPE_CHECKING:
    import jax

SIZES = (2**12, 2**14, 2**16)
"""Cells of a table, padded: one program serves many mixtures."""
DEGREES = (3, 7, 15, 31)
"""Degrees of the polynomials along the line; the lowest whose error is below ``DROPPED`` is used."""
COMPUTED = (15, 31)
"""Degrees for which densities are computed: a lower polynomial is the beginning of a higher one."""
DROPPED = 1e-7
SIZES_READ = (-1 + 1e-6, 1e30)
"""Range of mean squares, minus one, that are distinguished."""
FEWEST = 16
"""Fewest coordinates off the line for which the size of an output shows the scale of the noise."""


class SizeLaw(NamedTuple):
    """The mixture over batches i of ``exp(level_i - slope_i * excess + pull_i * offset)``, on the host in float64.

    ``offset`` is the place along the line, ``excess`` the mean square of all coordinates around the line's origin, both
    in units of the reference noise, with what all laws share left out.
    """

    level: np.ndarray
    slope: np.ndarray
    pull: np.ndarray
    precision: np.ndarray


class SizeGaps(NamedTuple):
    """Log ratios of the densities of several pairs of laws; traced inside a program."""

    cubics: Any
    """Coefficients in every cell, shape (cells, 4, degree + 1, pairs), padded."""
    first: Any
    """Number of the leftmost cell."""
    last: Any
    """Number of the rightmost cell."""
    free: Any
    """Number of coordinates off the line."""
    origin: Any
    """Place on the line from which offsets are measured."""
    cells: Any
    """Number of cells in a unit of the log mean square."""
    reach: Any
    """Largest offset, in deviations of the noise, at which polynomials are valid."""

    def at(self, along: jax.Array, excess: jax.Array) -> jax.Array:
        """All log ratios at one output."""
        offset = along - jnp.float32(self.origin)
        # an output of zeros, or one that overflows, has a score too
        size = jnp.clip(excess + offset * offset / jnp.float32(self.free), *SIZES_READ)
        logarithm = jnp.log1p(size)
        place = logarithm * jnp.float32(self.cells)
        inside = jnp.clip(place, jnp.float32(self.first), jnp.float32(self.last) + 1.0)
        cell = jnp.clip(jnp.floor(inside).astype(jnp.int32), self.first, self.last)
        c0, c1, c2, c3 = jnp.asarray(self.cubics)[cell - self.first]
        t = inside - cell.astype(jnp.float32)
        value = c0 + t * (c1 + t * (c2 + t * c3)) + (place - inside) * (c1 + t * (2.0 * c2 + 3.0 * t * c3))
        return _series(value, offset * jnp.exp(-0.5 * logarithm) / jnp.float32(self.reach))


def _series(coefficients: jax.Array, at: jax.Array) -> jax.Array:
    """Evaluate a Chebyshev series by Clenshaw's recurrence, continued as a straight line beyond its ends."""
    x = jnp.clip(at, -1.0, 1.0)
    value, before = coefficients[-1], jnp.zeros_like(coefficients[-1])
    slope, slope_before = jnp.zeros_like(value), jnp.zeros_like(value)
    for own in coefficients[-2:0:-1]:
        slope, slope_before = 2.0 * value + 2.0 * x * slope - slope_before, slope
        value, before = own + 2.0 * x * value - before, value
    slope = value + x * slope - slope_before
    return coefficients[0] + x * value - before + (at - x) * slope


def size_law(log_weights: np.ndarray, component: Any, *, origin: float) -> SizeLaw:
    """The mixture of the laws N(mean_i, I / precision_i) along the line, with their densities off it."""
    off = component.means[:, 0] - origin
    pull = component.precision * off
    level = log_weights + component.constant - 0.5 * pull * off
    return SizeLaw(level, component.slope, pull, component.precision)


def tabulated_sizes(pairs: Sequence[tuple[SizeLaw, SizeLaw]], *, free: int, origin: float) -> SizeGaps | None:
    """Tabulate the log ratio of each pair of laws; None if a table would be too large or too rough."""
    if free < FEWEST:
        return None
    deviation = np.sqrt(2.0 / free)
    laws = [law for pair in pairs for law in pair]
    ends = [-np.log(law.precision[[np.argmax(law.precision), np.argmin(law.precision)]]) for law in laws]
    first = int(np.floor(CELLS * (min(low for low, _ in ends) / deviation - BEYOND)))
    last = int(np.ceil(CELLS * (max(high for _, high in ends) / deviation + BEYOND))) - 1
    size = next((size for size in SIZES if last + 1 - first <= size), None)
    if size is None:
        return None
    shifts = [np.abs(law.pull / np.sqrt(law.precision)).max() for law in laws]
    reach = BEYOND + max(shifts)
    nodes = np.arange(first, last + 2) * (deviation / CELLS)
    series = next(filter(None, (_series_of(pairs, nodes, reach, degree) for degree in COMPUTED)), None)
    if series is None:
        return None
    columns = np.stack([cubics(value, slope * (deviation / CELLS)) for value, slope in series], axis=-1)
    return SizeGaps(
        cubics=pad_rows(columns.astype(np.float32), size),
        first=first,
        last=last,
        free=float(free),
        origin=origin,
        cells=CELLS / deviation,
        reach=reach,
    )


def _series_of(
    pairs: Sequence[tuple[SizeLaw, SizeLaw]], nodes: np.ndarray, reach: float, highest: int
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Chebyshev coefficients of every pair's log ratio and its derivative; None if the degree is too low."""
    points = chebyshev.chebpts1(highest + 1)
    inverse = np.linalg.inv(chebyshev.chebvander(points, highest)).T
    laws = {id(law): law for pair in pairs for law in pair}
    known = {name: _log_density(law, nodes, points * reach) for name, law in laws.items()}
    series = [
        tuple((up - down) @ inverse for up, down in zip(known[id(above)], known[id(below)], strict=True))
        for above, below in pairs
    ]
    lowest = [degree for degree in DEGREES if degree <= highest]
    degree = next((own for own in lowest if all(_dropped(value, own) < DROPPED for value, _ in series)), None)
    return None if degree is None else [(value[:, : degree + 1], slope[:, : degree + 1]) for value, slope in series]


def _dropped(series: np.ndarray, degree: int) -> float:
    """Bound on the error of dropping terms above a degree, estimated for the highest by its last two terms."""
    left_out = series[:, degree + 1 :] if degree + 1 < series.shape[1] else series[:, -2:]
    return float(np.abs(left_out).sum(axis=1).max())


def _log_density(law: SizeLaw, at: np.ndarray, apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log density at every log mean square and every offset, and its derivative by the former."""
    value, slope = np.empty((len(at), len(apart))), np.empty((len(at), len(apart)))
    order = np.argsort(law.precision)
    level, inverse, pull = law.level[order], law.slope[order], law.pull[order]

    def exponents(place: np.ndarray, near: slice) -> np.ndarray:
        along = apart[:, None] * np.exp(0.5 * place)[:, None, None]
        return level[near] - inverse[near] * np.expm1(place)[:, None, None] + pull[near] * along

    def in_sight(place: float) -> np.ndarray:
        found = exponents(np.array([place]), slice(None))[0]
        return np.flatnonzero((found > found.max(axis=1, keepdims=True) - FAINT).any(axis=0))

    for start in range(0, len(at), PIECE):
        here = at[start : start + PIECE]
        seen = np.concatenate([in_sight(here[0]), in_sight(here[-1])])
        near = slice(seen.min(), seen.max() + 1)
        found = exponents(here, near)
        top = found.max(axis=2, keepdims=True)
        weight = np.exp(found - top)
        total = weight.sum(axis=2)
        value[start : start + PIECE] = top[..., 0] + np.log(total)
        each = inverse[near] * np.exp(here)[:, None, None]
        along = 0.5 * apart[:, None] * np.exp(0.5 * here)[:, None, None] * pull[near]
        slope[start : start + PIECE] = (weight * (along - each)).sum(axis=2) / total
    return value, slope
