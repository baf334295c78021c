"""Where no score ever varied: whether the release is the same in every trial."""

from __future__ import annotations

import jax
import numpy as np

from audit.diagnosis.all_questions import FEWEST_TRIALS, drawn_in_time
from audit.diagnosis.cause_sentences import answer
from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import AuditRecord
from audit.trials.both_sides import BothSides
from audit.trials.keys import both_keys
from audit.trials.user_code_errors import contained


def never_varied(record: AuditRecord) -> bool:
    """Whether every score of every trial was the same on both sides."""
    sides = [side for grid in record.grids for side in (grid.without, grid.with_record)]
    return bool(sides) and all(max(cells) == sum(cells) for cells in sides)


def constant_release(sides: BothSides, key: jax.Array, deadline: float | None) -> tuple[Diagnosis, ...]:
    """Answer that the release never varies, usually a fault of the wiring; none if fresh outputs do vary."""
    try:
        with contained():
            drawn = drawn_in_time(sides, both_keys(key), FEWEST_TRIALS, deadline=deadline)
    except Exception:
        # the trials of the audit succeeded: a failure of these is no finding
        return ()
    rows = np.concatenate([np.asarray(side).reshape(len(side), -1) for side in drawn])
    if (rows != rows[0]).any():
        return ()
    found = answer(
        "constant",
        wrong=True,
        measured=f"the release is constant: {len(rows)} fresh outputs are equal, with the record and without it. This "
        "pair shows nothing of the noise; if others do not either, check that the function reads its seed and dataset",
        risk=0.0,
        assumes="nothing: no trial tests it and it decides no verdict",
    )
    return (found,)
