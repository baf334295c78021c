"""Noise as a linear map of independent numbers: which numbers enter which coordinate, with which coefficient."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr

MOST_TERMS = 2**21
"""Most terms of a map that is followed, to limit memory."""
LARGEST_BLOCK = 1024
"""Most dependent coordinates whose covariance is decomposed."""
MOST_BLOCKS = 4096
"""Most groups of dependent coordinates."""
NONE = 1e-6
"""Share of the largest variance below which there is no noise in a direction."""
ROUNDING = 1e-4
"""Share of a length, measured along some direction, that is rounding."""
NEGLIGIBLE = 1e-5
"""Share of the largest deviation that is rounding along a direction without noise."""
UNREACHED = 1e-3
"""Share of a length that no noise reaches, up to which that is rounding."""
SMALLEST = 1e-6
"""Share of the largest deviation along a direction below which another direction's is rounding of coefficients."""
CONVERGED = 1e-9
MOST_STEPS = 5000


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """Every coordinate as a sum of independent numbers of variance 1 times coefficients, along the last axis.

    A complex coordinate has complex coefficients; its variance is that of both parts together.
    """

    numbers: Any
    """An array; None where they are not known or too many: then every coordinate has one of its own, and no other."""
    times: np.ndarray

    @functools.cached_property
    def alone(self) -> Terms:
        """The terms as if no two coordinates shared a number."""
        return self if self.numbers is None else Terms(None, np.sqrt(self.variance)[..., None])

    @functools.cached_property
    def variance(self) -> np.ndarray:
        """Variance of every coordinate."""
        if self.times.shape[-1] == 1:
            return np.square(np.abs(self.times[..., 0]))
        gathered = abs(self._matrix)
        return np.asarray(gathered.multiply(gathered).sum(axis=1)).reshape(self.times.shape[:-1])

    @property
    def plain(self) -> bool:
        """Whether no number enters two coordinates."""
        if self.numbers is None:
            return True
        if self.times.shape[-1] == 1 and np.all(np.diff(self.numbers[self.times != 0]) > 0):
            return True
        return bool(np.max(self._stands, initial=0) <= 1)

    @property
    def _stands(self) -> np.ndarray:
        """In how many coordinates each number enters."""
        return np.asarray(self._matrix.astype(bool).sum(axis=0)).ravel()

    @functools.cached_property
    def _matrix(self) -> Any:
        known = np.unique(self.numbers)
        return self.over(known.size, known)

    def over(self, width: int, known: np.ndarray | None = None) -> Any:
        """The map as a matrix of coordinates by numbers: all numbers up to a width, or the known ones, in order."""
        rows = np.repeat(np.arange(math.prod(self.times.shape[:-1])), self.times.shape[-1])
        columns = self.numbers.ravel() if known is None else np.searchsorted(known, self.numbers.ravel())
        shape = (math.prod(self.times.shape[:-1]), width)
        found = sparse.csr_matrix((self.times.ravel(), (rows, columns)), shape=shape)
        found.eliminate_zeros()
        return found

    @classmethod
    def of_matrix(cls, matrix: Any) -> Terms | None:
        """The terms of a matrix with one coordinate per row."""
        number = np.diff(matrix.indptr)
        most = int(np.max(number, initial=1))
        if most * matrix.shape[0] > MOST_TERMS:
            return None
        numbers, times = np.zeros((matrix.shape[0], most), np.int64), np.zeros((matrix.shape[0], most))
        filled = np.arange(most) < number[:, None]
        numbers[filled], times[filled] = matrix.indices, matrix.data
        return cls(numbers, times)

    def row(self, number: int) -> Terms:
        """The terms of one entry along the first axis."""
        return self.changed(lambda array: array[number])

    def scaled(self, by: Any) -> Any:
        """The terms times a number or an array; None if too large, which noise without numbers never is."""
        by = np.asarray(by)
        by = by.astype(np.result_type(by, np.float64), copy=False)
        shape = np.broadcast_shapes(self.times.shape[:-1], by.shape)
        grown = self.changed(lambda array: _grown(array, shape))
        return Terms(grown.numbers, grown.times * by[..., None]).bounded()

    def reshaped(self, shape: Sequence[int]) -> Terms:
        """The terms in another shape."""
        return self.changed(lambda array: array.reshape(*shape, array.shape[-1]))

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> Terms:
        """The terms after a change of their coordinates, or of the coordinates' order."""
        return Terms(None if self.numbers is None else change(self.numbers), change(self.times))

    def part(self, take: Callable[[np.ndarray], np.ndarray]) -> Terms | None:
        """The terms of the real or imaginary part; None if it is unknown which numbers enter it."""
        return None if self.numbers is None else Terms(self.numbers, take(self.times))

    def plus(self, other: Terms) -> Any:
        """The sum of two maps; None if it is too large."""
        if self.numbers is None or other.numbers is None:
            return Terms(None, np.sqrt(self.variance + other.variance)[..., None])
        shape = np.broadcast_shapes(self.times.shape[:-1], other.times.shape[:-1])
        parts = [(_grown(one.numbers, shape), _grown(one.times, shape)) for one in (self, other)]
        return Terms(*(np.concatenate(pair, axis=-1) for pair in zip(*parts, strict=True))).bounded()

    def summed(self, axes: Sequence[int]) -> Any:
        """The map summed over some axes; None if it is too large."""
        if self.numbers is None:
            return Terms(None, np.sqrt(np.sum(self.variance, axis=tuple(axes)))[..., None])
        last = self.times.ndim - 1
        kept = [axis for axis in range(last) if axis not in axes]
        order, shape = [*kept, *axes, last], [self.times.shape[axis] for axis in kept]
        arrays = (np.transpose(array, order).reshape(*shape, -1) for array in (self.numbers, self.times))
        return Terms(*arrays).bounded()

    def cumulated(self, axis: int, *, reverse: bool) -> Terms | None:
        """Cumulative sums along an axis, from its beginning or from its end."""
        size = self.times.shape[axis]
        if self.numbers is None or self.times.size * size > MOST_TERMS:
            return None
        before = np.tri(size).T if reverse else np.tri(size)
        by = np.expand_dims(before, [k for k in range(self.times.ndim + 1) if k not in (axis, axis + 1)])
        numbers, times = (np.expand_dims(array, axis) for array in (self.numbers, self.times))
        return Terms(np.broadcast_to(numbers, (by * times).shape), by * times).summed([axis + 1])

    def without(self, gone: np.ndarray) -> Terms | None:
        """The map without the terms that are gone, and without room for them; None if nothing is left."""
        left = (self.times != 0) & ~gone
        most = int(np.max(np.sum(left, axis=-1), initial=0))
        if not most:
            return None
        order = np.argsort(~left, axis=-1, kind="stable")[..., :most]
        kept = np.take_along_axis(left, order, -1)
        numbers, times = (np.take_along_axis(array, order, -1) for array in (self.numbers, self.times))
        return Terms(np.where(kept, numbers, 0), np.where(kept, times, 0.0))

    def covariance(self) -> Blocks | None:
        """Groups of dependent coordinates; None if there are too many."""
        matrix = self._matrix
        groups = _connected(sparse.bmat([[None, matrix], [matrix.T, None]]), matrix.shape[0])
        if len(groups) > MOST_BLOCKS or any(places.size > LARGEST_BLOCK for places in groups):
            return None
        found: list[Block] = []
        for places in groups:
            rows = matrix[places]
            rows = rows[:, np.unique(rows.indices)].toarray()
            products = rows @ rows.T
            products[np.abs(products) <= NONE * np.max(np.abs(products))] = 0.0
            # what turns noise leaves its coordinates independent
            parts = _connected(sparse.csr_matrix(products), places.size)
            found += [Block(places[part], products[np.ix_(part, part)]) for part in parts]
        return found

    def bounded(self) -> Terms | None:
        """The map, or None if it is too large to keep."""
        return self if self.numbers is None or self.times.size <= MOST_TERMS else None


def of_terms(move: Callable[[Sequence[np.ndarray | None]], Any], parts: Sequence[Terms | None]) -> Terms | None:
    """The result of an equation that moves entries, which are numbered for it; None, and number 0, is no noise."""
    shapes = [() if part is None else part.times.shape[:-1] for part in parts]
    ends = np.cumsum([0 if part is None else math.prod(shape) for part, shape in zip(parts, shapes, strict=True)])
    found = move(
        [
            None if part is None else np.arange(end - math.prod(shape), end, dtype=np.float64).reshape(shape) + 1
            for part, shape, end in zip(parts, shapes, ends, strict=True)
        ]
    )
    if found is None or not np.all(np.isfinite(found)):
        return None
    rows, places = [part for part in parts if part is not None], np.asarray(found).astype(np.int64)
    most = max(part.times.shape[-1] for part in rows)
    if any(part.numbers is None for part in rows):
        deviations = [np.zeros(1), *(np.sqrt(part.variance).ravel() for part in rows)]
        return Terms(None, np.concatenate(deviations)[places][..., None])
    if places.size * most > MOST_TERMS:
        return None
    kind = np.result_type(*(part.times for part in rows))
    numbers, times = np.zeros((ends[-1] + 1, most), np.int64), np.zeros((ends[-1] + 1, most), kind)
    filled = 1
    for part in rows:
        own = part.times.reshape(-1, part.times.shape[-1])
        into = (slice(filled, filled + len(own)), slice(own.shape[1]))
        numbers[into], times[into] = part.numbers.reshape(own.shape), own
        filled += len(own)
    return Terms(numbers[places], times[places])


def _connected(graph: Any, first: int) -> list[np.ndarray]:
    """Connected groups of the first nodes of a graph, without single nodes."""
    _, groups = sparse.csgraph.connected_components(graph, directed=False)
    groups = groups[:first]
    several = np.flatnonzero(np.bincount(groups)[groups] > 1)
    order = several[np.argsort(groups[several], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if order.size else []


def total(parts: Sequence[Terms | None]) -> Terms | None:
    """The sum of all maps; None if one of them is unknown."""
    found = parts[0]
    for part in parts[1:]:
        found = None if found is None or part is None else found.plus(part)
    return found


def together(one: Terms, other: Terms, factor: float = 1.0) -> Terms:
    """One map plus ``factor`` times another; coordinate by coordinate if the sum is too large."""
    times = other.scaled(factor) or other.alone.scaled(factor)
    return one.plus(times) or one.alone.plus(times.alone)


def side_by_side(parts: Sequence[Terms | None], shape: Sequence[int]) -> Terms | None:
    """Maps of one shape, stacked along a new first axis; None counts as no noise."""
    most = max(part.times.shape[-1] for part in parts if part is not None)
    if len(parts) * math.prod(shape) * most > MOST_TERMS:
        return None
    numbers, times = np.zeros((len(parts), *shape, most), np.int64), np.zeros((len(parts), *shape, most))
    for row, part in enumerate(parts):
        if part is not None:
            own = (row, ..., slice(part.times.shape[-1]))
            numbers[own], times[own] = part.numbers, part.times
    return Terms(numbers, times)


def independent(first: int, shape: Sequence[int], variance: Any) -> Terms | None:
    """New independent numbers, one for every coordinate."""
    size = math.prod(shape)
    if size > MOST_TERMS:
        return None
    numbers = np.arange(first, first + size).reshape(*shape, 1)
    return Terms(numbers, np.sqrt(np.broadcast_to(variance, shape)).reshape(*shape, 1).astype(np.float64))


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A group of dependent coordinates."""

    places: np.ndarray
    covariance: np.ndarray

    @functools.cached_property
    def along(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances along independent directions, 0 without noise, and those directions."""
        variances, directions = np.linalg.eigh(self.covariance)
        return np.where(variances <= NONE * variances[-1], 0.0, variances), directions

    def apart(self, moved: np.ndarray) -> np.ndarray:
        """Squares of a movement's length along each direction, in units of the noise."""
        variances, directions = self.along
        along = np.abs(directions.T @ moved.ravel()[self.places])
        along[along <= ROUNDING * np.linalg.norm(along)] = 0.0
        along[(variances == 0) & (along <= NEGLIGIBLE * np.sqrt(variances[-1]))] = 0.0
        return _over(np.square(along), variances)


Blocks = Sequence[Block]


def lacking(blocks: Blocks) -> int:
    """Directions without any noise."""
    return sum(int(np.sum(block.along[0] == 0)) for block in blocks)


def bare(moved: np.ndarray, blocks: Blocks) -> Blocks:
    """The blocks in which something moves along a direction without noise."""
    known = blocks if np.all(np.isfinite(moved)) else ()
    return [block for block in known if np.any(np.isinf(block.apart(moved)))]


def apart(moved: np.ndarray, variance: np.ndarray, blocks: Blocks) -> float:
    """Squared length of a movement in units of the noise."""
    single = _over(np.square(moved).ravel(), np.broadcast_to(variance, moved.shape).ravel())
    for block in blocks if np.all(np.isfinite(moved)) else ():
        single[block.places] = block.apart(moved)
    return float(np.sum(single))


def least_change(matrix: Any, moved: np.ndarray, rounding: float = 0.0) -> float | None:
    """The length of the least change of the numbers that moves the rows so far; infinite where none does.

    The rows may have moved by as much as the ``rounding`` more or less.
    """
    length = float(np.linalg.norm(moved))
    if not length:
        return 0.0
    found = lsqr(matrix, moved, atol=SMALLEST, btol=max(CONVERGED, rounding / length), conlim=0, iter_lim=MOST_STEPS)
    change, stopped, left = found[0], found[1], found[3]
    if stopped not in (1, 2) or not math.isfinite(left):
        return None
    if left <= max(UNREACHED * length, rounding):
        return float(np.linalg.norm(change))
    # 2: nothing comes nearer; 1: so long a change that its own rounding hides the rest
    return math.inf if stopped == 2 else None


def _over(squares: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Squares over variances; a zero movement without noise counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares == 0, 0.0, squares / variances)


def _grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(array, (*shape, array.shape[-1]))
