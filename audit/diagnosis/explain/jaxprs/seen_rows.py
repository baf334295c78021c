"""What is seen of releases, as rows of their coordinates, and the noise of such rows."""

from __future__ import annotations

import dataclasses
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

    @property
    def places(self) -> slice:
        """Numbers of its coordinates."""
        return slice(self.first, self.first + self.own_variance.size)

    @property
    def noise(self) -> Terms | None:
        """Of each, as a map of independent numbers: of its own where no others are known."""
        release, size = self.release, self.own_variance.size
        terms = self.own_terms if release is None else release.terms
        if terms is not None:
            return Terms(*(array.reshape(size, -1) for array in (terms.numbers, terms.times)))
        variance = self.own_variance if release is None else release.variance
        return independent(-self.first - size, (size,), variance.ravel())


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


def noise_of(rows: Any, sources: Sequence[Source]) -> Terms | None:
    """The noise of each row of a map of coordinates."""
    known, parts = [], []
    for source in sources:
        noise = source.noise
        if noise is None:
            return None
        known.append(noise)
        parts.append(rows[:, source.places])
    numbers = np.unique(np.concatenate([noise.numbers.ravel() for noise in known]))
    matrix = sum(part @ noise.over(numbers.size, numbers) for part, noise in zip(parts, known, strict=True))
    return Terms.of_matrix(sparse.csr_matrix(matrix))
