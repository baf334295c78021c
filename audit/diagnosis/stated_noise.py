"""What was told of a step, and whether it has so much noise: the other records' sum shows what divides the release."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.noise import Array, Noise, project_out, read_noise, solve_projected_variances, variances
from audit.diagnosis.sensitivity import CLOSE, Movement, Stated, movement
from audit.diagnosis.signal import Signal, dense, read_signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student
from guarantees.numerics.rounding import between
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

LITTLE = 0.9
"""Share of the noise that is needed, below which there is too little."""
ERRORS = 3.0
"""Standard errors within which the others' sum is as told."""
SEEN = 10.0
"""Standard errors that their sum must be long for some coordinates to show what divides them."""
UNLIKELY = 0.05
"""Smallest p-value at which coordinates are taken to be divided by one number."""
WELL_SEEN = 0.5
"""Share of a coordinate outside the span of the gradients from which on its own noise is known."""
NONE = 1e-6
"""Of the stated variance: a coordinate that has less may be no part of the update."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownStep:
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
    ) -> KnownStep:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shown:
    """What the other records' sum shows of the noise that is needed, in units of the sum."""

    stated: Stated
    others: float
    """How far they move the mean along their own sum."""
    error: float
    due: float
    """How far they do where nothing divides the release."""
    toward: float
    """How far they may, over a divisor."""

    @property
    def slope(self) -> float:
        """Their movement is at most so many deviations of the noise."""
        return self.toward / self.stated.noise_multiplier

    @property
    def undivided(self) -> bool:
        """Whether their sum is as long as told."""
        return abs(self.others - self.due) <= CLOSE * self.due + ERRORS * self.error

    @property
    def needs(self) -> float:
        """The deviation that is needed, at least."""
        return self.stated.deviation if self.undivided else self.others / self.slope

    def p_value(self, noise: float, noise_error: float, degrees: int) -> float:
        """Of 'there is as much noise as that'."""
        # parts that are clipped by themselves within the bound may point more along the sum
        most = self.slope if self.undivided and noise < LITTLE * self.stated.deviation else self.slope / LITTLE
        error = math.hypot(self.error, self.slope * noise_error)
        return float(student.sf((self.others - most * noise) / max(error, 1e-300), degrees))


def less_noise_than_stated(
    first: Array, second: Array, told: KnownStep, *, layout: Layout | None = None, risk: float
) -> Diagnosis | None:
    """Whether the others' mean is more noise deviations long than clipping at the stated bound leaves room for.

    All the others tell more of the scale than one record does. Along their sum u they move the mean by at most
    ``q C sum_i max(g_i u, 0) / |g_i|`` over a divisor, however their gradients are scaled to the bound or below it, and
    the noise has deviation ``sigma C`` over the same divisor: a t test of the ratio. Where their sum is as long as
    told, undivided, noise of the stated scale is excluded; otherwise a tenth more is allowed. Half of the risk is for
    some of the coordinates, which are said where others have more noise.
    """
    stated, signal = told.stated, told.signal
    if stated is None or not signal.others_toward:
        return None
    without, with_record = (read_noise(side, told.neighbours, signal) for side in (first, second))
    found, times = movement(without, with_record, signal), ""
    if stated.divisor not in (None, 1):
        found, times = found.times(stated.divisor), f"times the stated divisor of {stated.divisor:g}, "
    shown = _Shown(
        stated=stated,
        others=found.others,
        error=found.others_error,
        due=stated.rate * float(np.linalg.norm(signal.others)),
        toward=stated.rate * signal.others_toward,
    )
    sides = (without, with_record)
    some = short_group(sides, signal, shown, layout=layout, times=times, risk=risk / 2)
    if some is None and _alike(sides, signal, layout):
        return _of_all(found, shown, times=times, risk=risk / 2)
    return some


def _alike(sides: Sequence[Noise], signal: Signal, layout: Layout | None) -> bool:
    """Whether all tensors have noise of one scale; where they have not, each may be divided by a number of its own."""
    if layout is None or layout.entries != signal.dimension or len(layout.slices) == 1:
        return True
    each = variances([side.outputs for side in sides], signal.basis)
    own = [float(each[tensor].mean()) for tensor in layout.slices]
    return min(own) > LITTLE**2 * max(own)


def _of_all(found: Movement, shown: _Shown, *, times: str, risk: float) -> Diagnosis | None:
    stated = shown.stated
    p = shown.p_value(found.noise, found.noise_error, found.degrees)
    if p >= risk:
        return None
    undivided = shown.undivided and found.noise < LITTLE * stated.deviation
    reach = float(student.isf(risk / 2, found.degrees)) * found.noise_error
    limits = (max(found.noise - reach, 0.0), found.noise + reach)
    sampled = ("another_rate",) if stated.rate < 1 else ()
    causes: tuple[str, ...] = ("less_noise", *sampled, "larger_bound", "clipped_apart", OTHERS)
    measured = f"{times}the noise has deviation {_beside(found.noise, limits, shown, undivided=undivided)}"
    if undivided:
        causes = ("less_noise", "less_beside")
    elif abs(found.noise - stated.deviation) <= CLOSE * stated.deviation:
        causes = (*sampled, "larger_bound", "clipped_apart", OTHERS)
        measured = f"{times}the noise has its stated deviation of {stated.deviation:.3g}, but the other records move "
        measured += f"the sum by {found.others:.3g}, where it may be {shown.slope * found.noise:.3g} at most"
        measured += f" at rate {stated.rate:g}" * bool(sampled)
    return _answer(measured, causes, found.noise, limits, p, stated, risk=risk)


def _beside(noise: float, limits: tuple[float, float], shown: _Shown, *, undivided: bool) -> str:
    """The noise, what is needed, and why no divisor explains it."""
    stated = shown.stated
    needs = stated.deviation if undivided else shown.others / shown.slope
    says = f"{noise:.3g} ({between(*limits, '.3g')}); clip {stated.clip:g} and noise "
    says += f"multiplier {stated.noise_multiplier:g} need {needs:.3g}{'' if undivided else ' or more'}. The other "
    says += f"records move the release by {shown.others:.3g}, "
    return says + (
        f"and {shown.due:.3g} is expected, so no divisor explains it" if undivided else "which a divisor shrinks too"
    )


def _answer(
    measured: str,
    causes: tuple[str, ...],
    noise: float,
    limits: tuple[float, float],
    p: float,
    stated: Stated,
    *,
    risk: float,
) -> Diagnosis:
    return answer(
        "told_noise",
        wrong=True,
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes=f"records are taken at rate {stated.rate:g}, and their gradients are as told; means are normal",
        estimate=noise,
        interval=limits,
    )


def short_group(
    sides: Sequence[Noise], signal: Signal, shown: _Shown, *, layout: Layout | None, times: str, risk: float
) -> Diagnosis | None:
    """The same of the coordinates of one tensor that look short of noise in one half of the trials, by the other half.

    Tensors may be scaled by themselves, so that only others' gradients in the same tensor say what it is divided by;
    where these reach the coordinates themselves, it is what they show there. Coordinates that no gradient reaches are
    taken to be divided like the others, unless these are not by one number: so they are a possible cause.
    """
    divisor = shown.stated.divisor or 1.0
    halves = [[side.outputs[start::2] * divisor for side in sides] for start in (0, 1)]
    seen = 1 - np.sum(signal.basis**2, axis=0)
    chosen_by = variances(halves[0], signal.basis)
    own = layout.slices if layout is not None and layout.entries == signal.dimension else (slice(None),)
    best, fewest = None, 0
    for tensor in own:
        inside = np.zeros(signal.dimension, bool)
        inside[tensor] = True
        of_tensor = shown if len(own) == 1 else _shown_on(inside, sides, signal, shown)
        if of_tensor is None:
            continue
        known = inside & (seen > WELL_SEEN) & (chosen_by > NONE * shown.stated.deviation**2)
        mask = known & (chosen_by < (LITTLE * of_tensor.needs) ** 2)
        if fewest < mask.sum() < known.sum():
            best, fewest = (mask, known & ~mask, of_tensor), int(mask.sum())
    if best is None:
        return None
    mask, others, of_tensor = best
    of_group = _shown_on(mask, sides, signal, shown)
    if of_group is None:
        if signal.others[mask].any() or not _has_one_scale(mask | others, sides[0].outputs * divisor, signal):
            return None
        of_group = of_tensor
    noise, error = _deviation_on(mask, halves[1], signal.basis)
    beside, _ = _deviation_on(others, halves[1], signal.basis)
    degrees = sum(map(len, halves[1])) - 1
    p = of_group.p_value(noise, error, degrees)
    if p >= risk or noise >= LITTLE * beside:
        return None
    reach = float(student.isf(risk / 2, degrees)) * error
    limits = (max(noise - reach, 0.0), noise + reach)
    undivided = of_group.undivided and noise < LITTLE * shown.stated.deviation
    measured = f"{times}the noise has deviation {beside:.3g}, but on {places(mask, layout)} it has "
    measured += _beside(noise, limits, of_group, undivided=undivided)
    return _answer(measured, ("less_on_some", "scaled_apart", OTHERS), noise, limits, p, shown.stated, risk=risk)


def _shown_on(mask: Array, sides: Sequence[Noise], signal: Signal, shown: _Shown) -> _Shown | None:
    """What the others' sum shows on some coordinates alone; None where it is too short there to be seen."""
    due = shown.stated.rate * float(np.linalg.norm(signal.others[mask]))
    if not due > 0:
        return None
    toward = np.where(mask, signal.others, 0.0) / np.linalg.norm(signal.others[mask])
    along = (sides[0].outputs @ toward) * (shown.stated.divisor or 1.0)
    error = max(float(along.std(ddof=1)) / math.sqrt(len(along)), 1e-300)
    if due < SEEN * error or not math.isfinite(shown.error):
        return None
    rows = dense(signal.pair, signal.pair.shared)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    most = float(np.asarray(signal.pair.counts, float) @ np.maximum(units @ toward, 0.0))
    toward_it = shown.stated.rate * most
    return dataclasses.replace(shown, others=float(along.mean()), error=error, due=due, toward=toward_it)


def _has_one_scale(mask: Array, outputs: Array, signal: Signal) -> bool:
    """Whether the others' mean on these coordinates may be what their gradients add up to there, times one number."""
    error = outputs[:, mask].std(axis=0, ddof=1) / math.sqrt(len(outputs))
    mean, due = outputs[:, mask].mean(axis=0, dtype=np.float64), signal.others[mask]
    weighed = due / np.maximum(error, 1e-300) ** 2
    times = float(mean @ weighed) / max(float(due @ weighed), 1e-300)
    farthest = float(np.max(np.abs(mean - times * due) / np.maximum(error, 1e-300)))
    return 2 * len(due) * float(student.sf(farthest, len(outputs) - 1)) > UNLIKELY


def _deviation_on(mask: Array, sides: Sequence[Array], basis: Array) -> tuple[float, float]:
    """Root mean square of the noise of these coordinates, and its standard error."""
    weights = solve_projected_variances(mask / mask.sum(), basis, start=0.0)
    rows = [side - side.mean(axis=0, dtype=np.float64) for side in sides]
    squares = np.concatenate([project_out(own, basis) ** 2 @ weights for own in rows])
    count = len(squares)
    variance = max(float(squares.sum()) / (count - len(sides)), 0.0)
    deviation = math.sqrt(variance)
    return deviation, float(squares.std(ddof=1)) / math.sqrt(count) / max(2 * deviation, 1e-300)
