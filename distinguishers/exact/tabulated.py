"""Mixtures of very many Gaussians along one line, tabulated once on the host and interpolated in programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsgd_audit.later import jnp
from mechanisms.structure import pad_rows

if TYPE_CHECKING:
    import jax

CELLS = 16
"""Cells in a deviation of the noise, a power of two: the place of a number in its cell is then exact in float32.

Between two Gaussians that far apart a cubic errs by at most 4e-7 (3 deviations), 6e-6 (6) and 5e-5 (10), by less than
4e-8 on average over the outputs; farther apart, where no output falls. The score stays a fixed function of the output.
"""
BEYOND = 12.0
"""Deviations past the outermost means up to which a gap is tabulated; beyond it is continued as a straight line."""
SIZES = (2**14, 2**15)
"""Cells of a table, padded: one program serves nearly all mixtures, as only the cells that are read cost time."""
PIECE = 64
"""Number of neighbouring cell ends whose sums use the same terms."""
FAINT = 45.0
"""Log of the share of a sum below which a term is left out, negated."""


class Law(NamedTuple):
    """The mixture over batches i of N(mean_i, 1 / precision), on the host in float64, and its density off the line."""

    log_weights: np.ndarray
    means: np.ndarray
    precision: float
    constant: float
    slope: float
    """ln density off the line = constant - slope * excess, up to a term common to all laws."""


class Gaps(NamedTuple):
    """Log ratios of the densities of several pairs of laws; traced inside a program."""

    cubics: Any
    """Coefficients in every cell, shape (cells, 4 * pairs), padded."""
    first: Any
    """Number of the leftmost cell, whose left end is ``first / CELLS``."""
    last: Any
    """Number of the rightmost cell."""
    constants: Any
    slopes: Any

    def at(self, along: jax.Array, excess: jax.Array) -> jax.Array:
        """All log ratios at one output."""
        place = along * jnp.float32(CELLS)
        inside = jnp.clip(place, jnp.float32(self.first), jnp.float32(self.last) + 1.0)
        cell = jnp.clip(jnp.floor(inside).astype(jnp.int32), self.first, self.last)
        c0, c1, c2, c3 = jnp.asarray(self.cubics)[cell - self.first].reshape(4, -1)
        t = inside - cell.astype(jnp.float32)
        value = c0 + t * (c1 + t * (c2 + t * c3))
        straight = (place - inside) * (c1 + t * (2.0 * c2 + 3.0 * t * c3))
        return value + straight + (jnp.asarray(self.constants) - jnp.asarray(self.slopes) * excess)


def tabulated(pairs: Sequence[tuple[Law, Law]]) -> Gaps | None:
    """Tabulate the log ratio of each pair of laws; None if a table would be too large."""
    laws = [law for pair in pairs for law in pair]
    ends = [(law.means.min(), law.means.max()) for law in laws]
    first = int(np.floor(CELLS * (min(low for low, _ in ends) - BEYOND)))
    last = int(np.ceil(CELLS * (max(high for _, high in ends) + BEYOND))) - 1
    cells = last + 1 - first
    size = next((size for size in SIZES if cells <= size), None)
    if size is None:
        return None
    nodes = np.arange(first, last + 2) / CELLS
    known: dict[int, tuple[np.ndarray, np.ndarray]] = {id(law): _log_density(law, nodes) for law in laws}
    columns = []
    for above, below in pairs:
        (value1, slope1), (value0, slope0) = known[id(above)], known[id(below)]
        columns.append(cubics(value1 - value0, (slope1 - slope0) / CELLS))
    return Gaps(
        cubics=pad_rows(_in_rows(columns), size),
        first=first,
        last=last,
        constants=np.array([above.constant - below.constant for above, below in pairs], np.float32),
        slopes=np.array([above.slope - below.slope for above, below in pairs], np.float32),
    )


def _in_rows(columns: list[np.ndarray]) -> np.ndarray:
    """Arrange (cells, 4) of every pair as one row a cell: first all constants, then all slopes, and so on."""
    return np.stack(columns, axis=2).reshape(len(columns[0]), -1).astype(np.float32)


def _log_density(law: Law, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log density of the mixture along the line, and its derivative."""
    value, slope = np.empty(len(at)), np.empty(len(at))
    order = np.argsort(law.means)
    means, log_weights = law.means[order], law.log_weights[order]

    def in_sight(place: float) -> np.ndarray:
        exponent = log_weights - 0.5 * law.precision * (place - means) ** 2
        return np.flatnonzero(exponent > exponent.max() - FAINT)

    for start in range(0, len(at), PIECE):
        here = slice(start, start + PIECE)
        # a term left of all that count at the left end loses to them further right, and so the other way round
        near = slice(in_sight(at[here][0])[0], in_sight(at[here][-1])[-1] + 1)
        off = at[here, None] - means[near]
        exponent = log_weights[near] - 0.5 * law.precision * off**2
        top = exponent.max(axis=1, keepdims=True)
        weight = np.exp(exponent - top)
        total = weight.sum(axis=1)
        value[here] = top[:, 0] + np.log(total)
        slope[here] = -law.precision * (weight * off).sum(axis=1) / total
    return value, slope


def cubics(value: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The cubic in every cell with the values and slopes of both its ends, shape (cells, 4, ...)."""
    rise, left, right = np.diff(value, axis=0), slope[:-1], slope[1:]
    return np.stack([value[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise], axis=1)
