"""Whether the record moves the sum where no gradient points, as where clipping turns its own."""

from __future__ import annotations

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.clipped_parts import as_parts
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.noise import Noise
from audit.diagnosis.sensitivity import ROWS, apart
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from mechanisms.release import Layout


def elsewhere(
    without: Noise, with_record: Noise, signal: Signal, *, layout: Layout | None, sampled: bool, risk: float
) -> Diagnosis:
    """Whether the record moves the sum outside the span of all gradients, as where clipping changes its direction.

    The mean difference of one half of the trials is a direction; the other half is compared along it by Welch's test.
    """
    p = apart(without.beside, with_record.beside)
    wrong = p < risk
    others = "moves_batches" if sampled else "moves_others"
    lost = (*ROWS[: signal.assumed], "clipped_apart", "counted_otherwise", others, "not_of_the_sum")
    return answer(
        "direction",
        measured=_elsewhere(without, with_record, signal, layout) if wrong else "it moves it nowhere else",
        causes=lost if signal.finite else ("not_a_number",),
        p_value=p,
        risk=risk,
        assumes="independent trials; means are normal",
    )


def _elsewhere(without: Noise, with_record: Noise, signal: Signal, layout: Layout | None) -> str:
    if not signal.finite:
        return "the record moves the release"
    difference = with_record.outputs.mean(axis=0, dtype=np.float64) - without.outputs.mean(axis=0, dtype=np.float64)
    unit = signal.direction
    excess = np.abs(difference - (difference @ unit) * unit)
    mask = excess > 0.5 * float(excess.max())
    own = "its row, which is taken for its gradient" if signal.assumed else "its gradient"
    parts = as_parts(without.outputs, with_record.outputs, signal.by_parts)
    return f"the record does not move the sum along {own}; it moves it most on {places(mask, layout)}{parts}"
