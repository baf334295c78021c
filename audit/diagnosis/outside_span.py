"""Whether the record moves the sum in a direction that no gradient has, as where clipping turns its own gradient."""

from __future__ import annotations

import numpy as np

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.clipped_parts import as_parts
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.noise import Noise
from audit.diagnosis.sensitivity import ROWS, equal_means_p
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from mechanisms.release import Layout


def moves_outside_span(
    without: Noise, with_record: Noise, signal: Signal, *, layout: Layout | None, sampled: bool, risk: float
) -> Diagnosis:
    """Whether the record moves the sum outside the span of all gradients, as where clipping changes its direction.

    One half of the trials gives a direction, that of the mean difference; the other half is compared along it by
    Welch's test.
    """
    p = equal_means_p(without.beside, with_record.beside)
    wrong = p < risk
    others = "moves_batches" if sampled else "moves_others"
    causes = (*ROWS[: signal.assumed], "clipped_apart", "counted_otherwise", others, "not_of_the_sum")
    return answer(
        "direction",
        measured=_where_it_moves(without, with_record, signal, layout) if wrong else "it moves it nowhere else",
        causes=causes if signal.finite else ("not_a_number",),
        p_value=p,
        risk=risk,
        assumes="independent trials; means are normal",
    )


def _where_it_moves(without: Noise, with_record: Noise, signal: Signal, layout: Layout | None) -> str:
    """Say on which coordinates the record moves the release beside its gradient."""
    if not signal.finite:
        return "the record moves the release"
    difference = with_record.outputs.mean(axis=0, dtype=np.float64) - without.outputs.mean(axis=0, dtype=np.float64)
    direction = signal.direction
    excess = np.abs(difference - (difference @ direction) * direction)
    mask = excess > 0.5 * float(excess.max())
    gradient = "its row, which is taken for its gradient" if signal.assumed else "its gradient"
    parts = as_parts(without.outputs, with_record.outputs, signal.by_parts)
    return f"the record does not move the sum along {gradient}; it moves it most on {places(mask, layout)}{parts}"
