"""What the two sides of a pair can put into a batch, counted on the host in float64."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from dpsgd_audit.later import is_array
from guarantees.numerics.batch_sizes import batch_sizes
from mechanisms.pairs.neighbours import GradientTable, Neighbours

NEGLIGIBLE = -50.0
"""Log probability, relative to the likeliest, below which batch sizes are left out: some ten standard deviations."""
TERMS = 2**14
"""Most distinct batches that one score sums over."""
WORK = 2**22
"""Most batches held on the host while equal ones are merged."""
DENSE_WORK = 2e9
"""Multiplications above which the span of given arrays is not computed."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two gradient datasets, as what they share and the records in which they differ."""

    shared: np.ndarray
    """Distinct common gradients in span coordinates, shape (groups, rank)."""
    counts: tuple[int, ...]
    removed: np.ndarray | None
    """The record that only the dataset "without" has (zero_out, substitution), shape (rank,)."""
    added: np.ndarray | None
    """The record that only the dataset "with" has, shape (rank,)."""
    dimension: int
    basis: np.ndarray | None
    group: int = 1
    """Number of differing records on each side."""

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return self.shared.shape[1]

    @property
    def records_without(self) -> int:
        """Size of the dataset without the record."""
        return sum(self.counts) + self.group * (self.removed is not None)

    @property
    def records_with(self) -> int:
        """Size of the dataset with the record."""
        return sum(self.counts) + self.group * (self.added is not None)

    def clipped(self, clip: float) -> Pair:
        """Every gradient clipped to length ``clip``."""

        def shorten(rows: np.ndarray | None) -> np.ndarray | None:
            if rows is None:
                return None
            lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
            return rows / np.maximum(1.0, lengths / clip)

        shared = shorten(self.shared)
        assert shared is not None
        return dataclasses.replace(self, shared=shared, removed=shorten(self.removed), added=shorten(self.added))

    def difference(self) -> np.ndarray:
        """Sum of all gradients with the record minus the sum without it, in span coordinates."""
        total = np.zeros(self.rank)
        total += 0.0 if self.added is None else self.added
        return self.group * (total - (0.0 if self.removed is None else self.removed))


def read_pair(neighbours: Neighbours) -> Pair:
    """Split a pair of gradient datasets into common and differing records."""
    without, with_record = _tables(neighbours.without, neighbours.with_record)
    if without.basis is not with_record.basis and not _equal_bases(without, with_record):
        raise ValueError("the two gradient tables must be written in the same basis; build both from one span.")
    first, second = _multiset(without), _multiset(with_record)
    shared = first & second
    left, right = first - shared, second - shared
    group = neighbours.group
    if len(left) > 1 or len(right) > 1 or not {left.total(), right.total()} <= {0, group}:
        said = "one record" if group == 1 else f"{group} records that are alike"
        raise ValueError(
            f"the datasets must differ in {said}, got {left.total()} that only the first has and "
            f"{right.total()} that only the second has."
        )
    rows = [np.frombuffer(row) for row in shared]
    return Pair(
        shared=np.array(rows).reshape(len(rows), without.rank),
        counts=tuple(shared.values()),
        removed=next((np.frombuffer(row) for row in left), None),
        added=next((np.frombuffer(row) for row in right), None),
        dimension=without.dimension,
        basis=without.basis,
        group=group,
    )


def _equal_bases(first: GradientTable, second: GradientTable) -> bool:
    """Whether two tables have one basis."""
    if first.basis is None or second.basis is None:
        return False
    return np.array_equal(first.basis, second.basis)


def _multiset(table: GradientTable) -> collections.Counter[bytes]:
    """Count equal rows, as bytes; adding zero makes -0.0 and 0.0 equal."""
    counted: collections.Counter[bytes] = collections.Counter()
    for row, count in zip(np.asarray(table.rows, np.float64) + 0.0, table.counts, strict=True):
        counted[row.tobytes()] += count
    return counted


def _tables(without: Any, with_record: Any) -> tuple[GradientTable, GradientTable]:
    """Tables of both sides; arrays (records, dimension) are written in coordinates of their common span."""
    if isinstance(without, GradientTable) and isinstance(with_record, GradientTable):
        return without, with_record
    arrays = []
    for name, dataset in (("without", without), ("with_record", with_record)):
        if not is_array(dataset) or dataset.ndim != 2:
            raise ValueError(
                f"{name} must be a GradientTable or an array of gradients (records, dimension), "
                f"got {type(dataset).__name__}."
            )
        arrays.append(np.asarray(dataset, np.float64))
    both = np.vstack(arrays)
    if both.size * min(both.shape) > DENSE_WORK:
        raise ValueError(
            f"finding the span of {both.shape[0]} gradients of {both.shape[1]} coordinates is too much work; "
            "give fewer records, or a GradientTable."
        )
    _, sizes, directions = np.linalg.svd(both, full_matrices=False)
    basis = directions[sizes > max(sizes[0], 1e-300) * 1e-6][: len(both)]

    def table(rows: np.ndarray) -> GradientTable:
        # Rounded to a hair of the largest entry, so that equal records stay equal after the rotation.
        return GradientTable(
            rows=_snap(rows @ basis.T, sizes[0]), counts=(1,) * len(rows), dimension=rows.shape[1], basis=basis
        )

    return table(arrays[0]), table(arrays[1])


def _snap(rows: np.ndarray, size: float) -> np.ndarray:
    """Round coordinates to a grid of 2^-40 of the largest length."""
    grid = 2.0 ** (math.frexp(max(float(size), 1e-300))[1] - 40)
    return np.round(rows / grid) * grid


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """The distinct Poisson batches of the common records: sum, size and probability of each."""

    sums: np.ndarray
    sizes: np.ndarray
    log_weights: np.ndarray
    log_ways: np.ndarray
    """ln of the number of subsets of records that make this batch."""
    remainder: float
    """Upper bound on the probability of the batches left out."""

    def __len__(self) -> int:
        return len(self.sizes)


def shared_batches(pair: Pair, *, rate: float, sizes_matter: bool) -> Batches:
    """Every batch of the common records with equal ones merged: a product of binomials, never 2^N for equal rows.

    ``P(batch) = prod_g Binomial(count_g, rate)(k_g)``. With one group there are at most N + 1 batches. Leaving out a
    mass of ``remainder`` makes the score the exact likelihood ratio of two laws that are each within total variation
    ``remainder`` of the true ones: it can cost that much power and never validity.
    """
    found = Batches(
        sums=np.zeros((1, pair.rank)),
        sizes=np.zeros(1, int),
        log_weights=np.zeros(1),
        log_ways=np.zeros(1),
        remainder=0.0,
    )
    for row, count in zip(pair.shared, pair.counts, strict=True):
        taken, weights, lost = batch_sizes(count, rate, negligible=NEGLIGIBLE)
        if len(found) * len(taken) > WORK:
            raise ValueError(_too_many(len(found) * len(taken)))
        ways = gammaln(count + 1) - gammaln(taken + 1) - gammaln(count - taken + 1)
        found = _merge(
            sums=(found.sums[:, None, :] + taken[None, :, None] * row).reshape(-1, pair.rank),
            sizes=(found.sizes[:, None] + taken).ravel(),
            log_weights=(found.log_weights[:, None] + weights).ravel(),
            log_ways=(found.log_ways[:, None] + ways).ravel(),
            remainder=found.remainder + lost,
            sizes_matter=sizes_matter,
        )
    if len(found) > TERMS:
        raise ValueError(_too_many(len(found)))
    return found


def _too_many(terms: int) -> str:
    """The error message for too many batches."""
    return (
        f"the likelihood ratio of this pair sums over {terms} distinct batches, more than {TERMS}; use fewer distinct "
        "gradients (aligned records cost one term each), or distinguishers.battery(neighbours)."
    )


def _merge(
    *,
    sums: np.ndarray,
    sizes: np.ndarray,
    log_weights: np.ndarray,
    log_ways: np.ndarray,
    remainder: float,
    sizes_matter: bool,
) -> Batches:
    """Add up the probabilities of batches with equal sums (and sizes, if the divisor depends on them)."""
    grid = max(float(np.abs(sums).max(initial=0.0)), 1e-300) * 1e-11
    columns = [np.round(sums / grid)] + ([sizes[:, None]] if sizes_matter else [])
    _, first, group = np.unique(np.hstack(columns), axis=0, return_index=True, return_inverse=True)
    group = group.ravel()

    def add(values: np.ndarray) -> np.ndarray:
        total = np.full(len(first), -np.inf)
        np.logaddexp.at(total, group, values)
        return total

    return Batches(
        sums=sums[first],
        sizes=sizes[first],
        log_weights=add(log_weights),
        log_ways=add(log_ways),
        remainder=remainder,
    )
