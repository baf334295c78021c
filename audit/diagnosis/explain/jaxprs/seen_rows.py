"""What is seen of releases, as rows of their coordinates, and the noise of such rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from audit.diagnosis.explain.jaxprs.facts import Release
from mechanisms.adapters.noise_terms import Terms, independent


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Coordinates of a release, or of noise that was added to one later (None)."""

    release: Release | None
    own_variance: np.ndarray
    own_terms: Terms | None
    first: int
    """Number of its first coordinate."""
    own_draws: frozenset[int] = frozenset()

    @property
    def draws(self) -> frozenset[int]:
        """Draws of its noise, by their numbers."""
        return self.own_draws if self.release is None else self.release.covering

    @property
    def places(self) -> slice:
        """Numbers of its coordinates."""
        return slice(self.first, self.first + self.own_variance.size)

    @functools.cached_property
    def numbers(self) -> np.ndarray:
        """What its noise is made of, in order, where that is told apart."""
        terms = self.own_terms if self.release is None else self.release.terms
        if terms is None or terms.numbers is None:
            return np.empty(0, np.int64)
        return np.unique(terms.numbers[terms.times != 0])

    @property
    def noise(self) -> Terms | None:
        """Of each, as a map of independent numbers: of its own where no others are known."""
        release, size = self.release, self.own_variance.size
        terms = self.own_terms if release is None else release.terms
        if terms is not None:
            return Terms(*(array.reshape(size, -1) for array in (terms.numbers, terms.times)))
        variance = self.own_variance if release is None else release.variance
        return independent(-self.first - size, (size,), variance.ravel())


def shared_by(sources: Sequence[Source]) -> Any:
    """How many numbers of noise each pair of sources has in common, as a matrix."""
    # more records may have been added to a release: the last of its sources has them all
    last = {id(source.release or source): place for place, source in enumerate(sources)}.values()
    numbers = [source.numbers if place in last else source.numbers[:0] for place, source in enumerate(sources)]
    known, columns = np.unique(np.concatenate([np.empty(0, np.int64), *numbers]), return_inverse=True)
    rows = np.repeat(np.arange(len(sources)), [own.size for own in numbers])
    holds = sparse.csr_matrix((np.ones(rows.size), (rows, columns)), (len(sources), known.size))
    return (holds @ holds.T).tocsr()


def touched(rows: Any, sources: Sequence[Source]) -> np.ndarray:
    """Which rows hold coordinates of some sources."""
    found = np.zeros(rows.shape[0], bool)
    for source in sources:
        own = rows[:, source.places]
        found |= np.diff(own.tocsr().indptr) > 0
    return found


def seen_rows(rows: Any, sources: Sequence[Source], seen: Sequence[np.ndarray]) -> Any:
    """Coordinates that are seen by themselves, and sums of others."""
    single = np.concatenate([source.first + np.flatnonzero(own) for source, own in zip(sources, seen, strict=True)])
    single_rows = sparse.csr_matrix(
        (np.ones(single.size), (np.arange(single.size), single)), (single.size, rows.shape[1])
    )
    return sparse.vstack([single_rows, rows]).tocsr()


def noise_of(rows: Any, sources: Sequence[Source]) -> Any:
    """The noise of each row of a map of coordinates, as a matrix of rows by numbers; None where it is not known."""
    known, parts = [], []
    for source in sources:
        noise = source.noise
        if noise is None:
            return None
        known.append(noise)
        parts.append(rows[:, source.places])
    numbers = np.unique(np.concatenate([noise.numbers.ravel() for noise in known]))
    matrix = sum(part @ noise.over(numbers.size, numbers) for part, noise in zip(parts, known, strict=True))
    return sparse.csr_matrix(matrix)


def joint_law(rows: Any, sources: Sequence[Source], seen: Sequence[np.ndarray]) -> tuple[Any, np.ndarray] | None:
    """All that is seen of sources: its noise as a matrix, and how far it is moved, as columns; None if not known.

    By the record, by all records with it, and by such as move no two coordinates alike.
    """
    both = seen_rows(rows, sources, seen)
    noise, releases = noise_of(both, sources), [source.release for source in sources if source.release is not None]
    if noise is None or not all(np.all(np.isfinite(one.moved)) for one in releases):
        return None
    moves, drawn = np.zeros((rows.shape[1], 3)), np.random.default_rng(0)
    for source in sources:
        if (release := source.release) is not None:
            unlike = drawn.normal(size=release.moved.size)
            moves[source.places] = np.stack([release.moved.ravel(), release.taken.ravel(), unlike], axis=-1)
    return noise, both @ moves
