"""The gradients of an audited pair, and what is answered where the noise cannot be told from them."""

from __future__ import annotations

import dataclasses

from audit.diagnosis.case import Case
from audit.diagnosis.outputs_and_claim import compare_with_claim
from audit.diagnosis.signal import Signal, read_signal
from audit.diagnosis.stated_settings import what_to_state
from audit.record.diagnosis_answer import NOT_ASKED, NOT_TOLD, Diagnosis, not_asked
from audit.trials.both_sides import Auditable
from dpsgd_audit.spelling import counted
from mechanisms.pairs.gradient_pairs import made_of_gradients, told_pair
from mechanisms.pairs.neighbours import Neighbours

FEWEST_COORDINATES = 2
"""With this many coordinates or fewer, the record's own gradient leaves fewer than two for the noise."""
NO_NOISE_ALONE = (
    "the noise cannot be measured apart from the records: that needs two directions of the release in which no record "
    "has a gradient, and the gradients span {taken} of its {dimension}. Audit a pair of fewer records."
)
MATRIX = 2
"""Number of axes of a dataset whose rows are gradients."""


def gradients_of(case: Case, read_as: Neighbours | None) -> Neighbours:
    """The gradients that the mechanism computes of the pair; by default the pair's rows, if they can be gradients."""
    if read_as is not None and read_as is not case.neighbours and made_of_gradients(read_as):
        return read_as
    mechanism, neighbours = case.mechanism, case.neighbours
    try:
        return told_pair(neighbours, mechanism)
    except ValueError:
        if mechanism.coordinates is not None:
            raise
    dimension, layout = read_signal(neighbours).dimension, case.sides.layout()
    if dimension not in (layout.size, layout.entries):
        raise ValueError(
            f"each of its records has {counted(dimension, 'number')} and the output {layout.size}, so records are not "
            "gradients; give the mechanism a gradients= function."
        )
    return neighbours


def without_gradients(case: Case, error: str) -> tuple[Diagnosis, ...]:
    """Answers where the gradients cannot be read: why, what to state, and the outputs compared with the claim."""
    record, mechanism, neighbours = case.record, case.mechanism, case.neighbours
    reason = f"the gradients of the pair {neighbours.name!r} cannot be read: {error}."
    # more can be stated only of the user's own code, and not where rows are known to be gradients
    if mechanism.gradients_told is None:
        return (not_asked(reason),)
    if mechanism.gradients_told:
        return (not_asked(reason, code=NOT_TOLD), *compare_with_claim(case, case.risk))
    if getattr(neighbours.without, "ndim", 0) != MATRIX:
        reason = f"the pair {neighbours.name!r} holds data, not gradients."
    advice = what_to_state(record, gradients=True, loss=takes_loss(mechanism))
    remark = not_asked(f"{reason} {advice}".rstrip(), code=NOT_TOLD if advice else NOT_ASKED)
    return (remark, *compare_with_claim(case, case.risk))


def without_noise_alone(case: Case, signal: Signal) -> tuple[Diagnosis, ...]:
    """Answers where the records' gradients leave no coordinates for the noise alone."""
    few = NO_NOISE_ALONE.format(taken=len(signal.basis), dimension=signal.dimension)
    if case.mechanism.gradients_told is None:
        return (not_asked(few),)
    if signal.dimension <= FEWEST_COORDINATES:
        numbers = counted(signal.dimension, "released number")
        few = f"how large the noise is, since {numbers} cannot show it apart from the record's part."
    return (not_asked(few, code=NOT_TOLD), *compare_with_claim(case, case.risk, whole=case.rounds == 1))


def takes_loss(mechanism: Auditable) -> bool:
    """Whether the mechanism has a loss, as a network's training does, from which its gradients follow."""
    return dataclasses.is_dataclass(mechanism) and any(field.name == "loss" for field in dataclasses.fields(mechanism))
