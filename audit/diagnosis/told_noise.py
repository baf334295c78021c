"""What was told of a step, and whether it has so much noise: the other records' sum shows what divides the release."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.noise import Array, read_noise
from audit.diagnosis.sensitivity import CLOSE, Stated, movement
from audit.diagnosis.signal import Signal, read_signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student
from guarantees.numerics.rounding import between
from mechanisms.pairs.neighbours import Neighbours

LITTLE = 0.9
"""Share of the noise that is needed, below which there is too little."""
ERRORS = 3.0
"""Standard errors within which the others' sum is as told."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """Of one step of the user's own code."""

    neighbours: Neighbours
    """The pair of gradients."""
    signal: Signal
    stated: Stated | None
    """Clip, noise multiplier and rate, where they are known."""

    @classmethod
    def of(
        cls,
        neighbours: Neighbours,
        *,
        clip: float | None,
        noise_multiplier: float | None,
        rate: float,
        divisor: float | None = None,
    ) -> Told:
        """A ValueError where the gradients cannot be read."""
        stated = None
        if clip is not None and noise_multiplier is not None:
            stated = Stated(clip=clip, noise_multiplier=noise_multiplier, rate=rate, divisor=divisor)
        return cls(neighbours=neighbours, signal=read_signal(neighbours, clip=clip), stated=stated)

    @property
    def room(self) -> float:
        """How many times longer than its gradient the record may move the sum: code that normalises makes it so."""
        length = self.signal.length
        return self.stated.clip / length if self.stated is not None and length > 0 else math.inf


def told_noise(first: Array, second: Array, told: Told, *, risk: float) -> Diagnosis | None:
    """Whether the others' mean is more noise deviations long than clipping at the stated bound leaves room for.

    All the others tell more of the scale than one record does. Along their sum u they move the mean by at most
    ``q C sum_i max(g_i u, 0) / |g_i|`` over a divisor, however their gradients are scaled to the bound or below it, and
    the noise has deviation ``sigma C`` over the same divisor: a t test of the ratio. Where their sum is as long as
    told, undivided, noise of the stated scale is excluded; otherwise a tenth more is allowed.
    """
    stated, signal = told.stated, told.signal
    if stated is None or not signal.others_toward:
        return None
    without, with_record = (read_noise(side, told.neighbours, signal) for side in (first, second))
    found, times = movement(without, with_record, signal), ""
    if stated.divisor not in (None, 1):
        found, times = found.times(stated.divisor), f"times the stated divisor of {stated.divisor:g}, "
    slope = stated.rate * signal.others_toward / stated.noise_multiplier
    error = math.hypot(found.others_error, slope * found.noise_error)
    due = stated.rate * float(np.linalg.norm(signal.others))
    undivided = abs(found.others - due) <= CLOSE * due + ERRORS * found.others_error
    undivided &= found.noise < LITTLE * stated.deviation
    # parts that are clipped by themselves within the bound may point more along the sum
    most = slope if undivided else slope / LITTLE
    p = float(student.sf((found.others - most * found.noise) / error, found.degrees))
    if p >= risk:
        return None
    reach = float(student.isf(risk / 2, found.degrees)) * found.noise_error
    limits = (max(found.noise - reach, 0.0), found.noise + reach)
    needs = stated.deviation if undivided else found.others / slope
    measured = (
        f"{times}the noise has deviation {found.noise:.3g} ({between(*limits, '.3g')}); clip {stated.clip:g} and noise "
    )
    measured += f"multiplier {stated.noise_multiplier:g} need {needs:.3g}{'' if undivided else ' or more'}. The other "
    measured += f"records move the release by {found.others:.3g}, "
    measured += f"and {due:.3g} is expected, so no divisor explains it" if undivided else "which a divisor shrinks too"
    causes: tuple[str, ...] = ("less_noise", "larger_bound", "clipped_apart", OTHERS)
    if undivided:
        causes = ("less_noise", "less_beside")
    elif stated.divisor is not None and abs(found.noise - stated.deviation) <= CLOSE * stated.deviation:
        causes = ("larger_bound", "clipped_apart", OTHERS)
        measured = f"{times}the noise has its stated deviation of {stated.deviation:.3g}, but the other records move "
        measured += f"the sum by {found.others:.3g}, where it may be {slope * found.noise:.3g} at most"
    return answer(
        "told_noise",
        wrong=True,
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes=f"records are taken at rate {stated.rate:g}, and their gradients are as told; means are normal",
        estimate=found.noise,
        interval=limits,
    )
