"""Answers that a draw chooses among few: a replay sees that they depend on data, and not that they are random."""

from __future__ import annotations

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
COVERED_BY_CHOICE = frozenset(
    {Kind.RELEASED_WITHOUT_NOISE, Kind.NOT_CLIPPED, Kind.NOISE_SCALE_FROM_DATA, Kind.CHANGED_AFTER_RELEASE}
)
"""What data that decide a random choice look like. A key that is used twice is wrong with it, too."""
CHOSEN = (
    "a random choice decides which of few values is released, and each of them comes with and without the record: how "
    "often, trials tell"
)


def same_answers(mechanism: Mechanism, neighbours: Neighbours, key: jax.Array, stated: Stated) -> bool:
    """Whether each coordinate takes few values, more than one, and the same ones on both datasets.

    Data that are released beside an answer, or decide it alone, take other values or a single one. Not asked where
    batches or Gaussian noise are promised: a sum over a drawn batch may take few values, too.
    """
    if stated.rate is not None or stated.noise_multiplier is not None:
        return False
    sides = []
    for dataset in (neighbours.without, neighbours.with_record):
        release = release_of(mechanism, materialise(dataset))
        drawn = programs_of(release).draw_chunk(release, key, trial_number(0), size=DRAWN)
        rows = np.asarray(drawn).reshape(DRAWN, -1)
        if rows.shape[1] > MOST_COORDINATES:
            return False
        sides.append([frozenset(np.unique(coordinate).tolist()) for coordinate in rows.T])
    return sides[0] == sides[1] and all(1 < len(values) <= MOST_VALUES for values in sides[0])
