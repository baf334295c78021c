"""Length of the differing record's gradient, beside the others' and the clipping bound: a short one shows nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

ROUNDING = 1e-6
"""Relative difference below which two lengths are the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientLengths:
    """Lengths of the per-example gradients of a pair, not clipped."""

    record: float
    """Length of the differing record's gradient."""
    others: tuple[float, ...] = ()
    """The least, the median and the largest of the other records' lengths; empty where there are no others."""
    bound: float | None = None
    """The norm to which each gradient is clipped, if known."""

    @property
    def is_short(self) -> bool:
        """Whether another record would move the sum further: this one is below the bound or, if unknown, the others."""
        enough = self.others[1] if self.bound is None and self.others else self.bound
        # gradients that are all zero are meant to be: only the divisor can then tell the datasets apart
        meant = max(self.record, *self.others, 0.0) == 0
        return enough is not None and not meant and self.record < enough * (1 - ROUNDING)

    def describe(self) -> str:
        """All lengths in words."""
        said = [f"gradient of length {self.record:.3g}"]
        if self.others:
            least, middle, most = self.others
            same = most - least <= ROUNDING * most
            said.append(f"others {most:.3g}" if same else f"others {least:.3g} to {most:.3g} (median {middle:.3g})")
        return ", ".join([*said, *([] if self.bound is None else [f"bound {self.bound:.3g}"])])

    def advice(self) -> str:
        """What to do if the record is too short to show a leak; empty if it is long enough."""
        if not self.is_short:
            return ""
        less = "shorter than the bound" if self.bound is not None else "shorter than most of the others"
        return (
            f"The record's gradient is {less}, so the record moves the sum less than others could; one with a longer "
            "gradient shows more: mechanisms.worst_record(model, loss, data, candidates)."
        )


def lengths_of(rows: np.ndarray, place: int, *, counts: Sequence[int] | None = None, group: int = 1) -> GradientLengths:
    """Of gradients (groups, dimension) that occur ``counts`` times each; ``group`` of row ``place`` are the record."""
    lengths = np.linalg.norm(np.asarray(rows, np.float64), axis=1)
    times = np.ones(len(lengths), np.int64) if counts is None else np.array(counts, np.int64)
    times[place] -= group
    order = np.argsort(lengths[times > 0])
    others, ends = lengths[times > 0][order], np.cumsum(times[times > 0][order])
    if not len(others):
        return GradientLengths(record=float(lengths[place]))
    middle = others[int(np.searchsorted(ends, (ends[-1] - 1) // 2, side="right"))]
    return GradientLengths(record=float(lengths[place]), others=(float(others[0]), float(middle), float(others[-1])))
