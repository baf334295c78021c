"""Answers that a draw chooses among few, or in one interval: a replay sees that they depend on data, and not how.

Of a piecewise answer it sees uniform noise on a record, and not that a coin gives other answers as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Kind
from audit.trials.keys import trial_number
from audit.trials.programs import programs_of, release_of
from mechanisms.contract import Mechanism
from mechanisms.pairs.neighbours import Neighbours, materialise

DRAWN = 512
MOST_VALUES = 16
MOST_COORDINATES = 1024
DRAWN_IN_AN_INTERVAL, MOST_WIDE = 2**16, 16
"""Numbers that show the ends of an interval, and coordinates of which so many are drawn."""
PARTS, EDGE, BINS = 4, 0.005, 16
"""Parts of them that end alike, up to a share of the interval; and parts of the interval that all hold some."""
SELDOM = 8
"""Times up to which continuous numbers may come by chance."""
COVERED_BY_CHOICE = frozenset(
    {Kind.RELEASED_WITHOUT_NOISE, Kind.NOT_CLIPPED, Kind.NOISE_SCALE_FROM_DATA, Kind.CHANGED_AFTER_RELEASE}
)
"""What data that decide a random choice look like. A key that is used twice is wrong with it, too."""
CHOSEN = (
    "a random choice decides what is released, and each answer comes with and without the record: how often, trials "
    "tell"
)


def same_answers(mechanism: Mechanism, neighbours: Neighbours, key: jax.Array, stated: Stated) -> bool:
    """Whether each coordinate takes few values, more than one, or those of one interval, and the same on both datasets.

    Data that are released beside an answer, or decide it alone, take other values or a single one. Not asked where
    batches or Gaussian noise are promised: a sum over a drawn batch may take few values, too.
    """
    if stated.rate is not None or stated.noise_multiplier is not None:
        return False
    sides = _drawn(mechanism, neighbours, key, DRAWN)
    if len(sides[0]) > MOST_COORDINATES:
        return False
    wide = [number for number, pair in enumerate(zip(*sides, strict=True)) if not _are_few(*pair)]
    if not wide or len(wide) > MOST_WIDE or not all(_end_alike([sides[0][one], sides[1][one]], 0.5) for one in wide):
        return not wide
    longer = _drawn(mechanism, neighbours, key, DRAWN_IN_AN_INTERVAL)
    return all(_in_one_interval(longer[0][one], longer[1][one]) for one in wide)


def _drawn(mechanism: Mechanism, neighbours: Neighbours, key: jax.Array, size: int) -> list[np.ndarray]:
    """What both datasets release so many times, one row for each coordinate."""
    releases = [release_of(mechanism, materialise(own)) for own in (neighbours.without, neighbours.with_record)]
    chunks = [programs_of(one).draw_chunk(one, key, trial_number(0), size=size) for one in releases]
    return [np.asarray(chunk, np.float64).reshape(size, -1).T for chunk in chunks]


def _are_few(one: np.ndarray, other: np.ndarray) -> bool:
    values = np.unique(one)
    return 1 < values.size <= MOST_VALUES and np.array_equal(values, np.unique(other))


def _in_one_interval(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether numbers fill one interval, beside a few that come often: what has tails ends elsewhere each time."""
    often, ends = [], []
    for side in (one, other):
        values, counts = np.unique(side, return_counts=True)
        often.append(values[counts > SELDOM])
        ends += np.array_split(side, PARTS)
    if not np.array_equal(often[0], often[1]) or np.isin([one.min(), one.max(), other.min(), other.max()], often).any():
        return False
    filled = [np.histogram(side, BINS, (one.min(), one.max()))[0] > 0 for side in (one, other)]
    return _end_alike(ends, EDGE) and np.array_equal(filled[0], filled[1])


def _end_alike(parts: Sequence[np.ndarray], share: float) -> bool:
    """Whether the least numbers of all parts are alike, and the largest, up to a share of their range."""
    least, most = [part.min() for part in parts], [part.max() for part in parts]
    return bool(max(np.ptp(least), np.ptp(most)) <= share * (max(most) - min(least)))
