"""Whether there is as much noise as stated: the other records' sum shows by what the release is divided."""

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
"""Share of the required noise below which there is too little."""
ERRORS = 3.0
"""Standard errors within which the others' sum is as expected."""
SEEN = 10.0
"""Length of their sum, in standard errors, from which on some coordinates show what divides them."""
UNLIKELY = 0.05
"""Smallest p-value at which one number is assumed to divide all coordinates."""
WELL_SEEN = 0.5
"""Share of a coordinate outside the span of the gradients from which on its noise is known."""
NONE = 1e-6
"""Share of the stated variance below which a coordinate may not be part of the update."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownStep:
    """What is known of one step of the user's code."""

    neighbours: Neighbours
    """The pair of gradients."""
    signal: Signal
    stated: Stated | None
    """Clip, noise multiplier and rate, if they are known."""

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
        """Read the gradients; a ValueError if that is impossible."""
        stated = None
        if clip is not None and noise_multiplier is not None:
            stated = Stated(clip=clip, noise_multiplier=noise_multiplier, rate=rate, divisor=divisor)
        return cls(neighbours=neighbours, signal=read_signal(neighbours, clip=clip), stated=stated)

    @property
    def room(self) -> float:
        """Factor by which the record may exceed its gradient: code that normalises gradients lengthens short ones."""
        length = self.signal.length
        return self.stated.clip / length if self.stated is not None and length > 0 else math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OthersSum:
    """The other records' sum, which shows how much noise is required, in units of the undivided sum."""

    stated: Stated
    others: float
    """How far they move the mean along their own sum."""
    error: float
    due: float
    """How far they move it if nothing divides the release."""
    toward: float
    """How far they can move it at most, before a divisor."""

    @property
    def slope(self) -> float:
        """Largest movement by them, in deviations of the noise."""
        return self.toward / self.stated.noise_multiplier

    @property
    def undivided(self) -> bool:
        """Whether their sum has the length expected without a divisor."""
        return abs(self.others - self.due) <= CLOSE * self.due + ERRORS * self.error

    @property
    def needs(self) -> float:
        """Smallest deviation that the noise must have."""
        return self.stated.deviation if self.undivided else self.others / self.slope

    def p_value(self, noise: float, noise_error: float, degrees: int) -> float:
        """P-value of 'the noise has at least that deviation'."""
        # parts clipped separately within the bound may point more along the sum
        most = self.slope if self.undivided and noise < LITTLE * self.stated.deviation else self.slope / LITTLE
        error = math.hypot(self.error, self.slope * noise_error)
        return float(student.sf((self.others - most * noise) / max(error, 1e-300), degrees))


def less_noise_than_stated(
    first: Array, second: Array, step: KnownStep, *, layout: Layout | None = None, risk: float
) -> Diagnosis | None:
    """Answer that there is less noise than stated, beside how far the other records move the mean; or None.

    All the others show the scale better than one record does. Along their sum u they move the mean by at most
    ``q C sum_i max(g_i u, 0) / |g_i|`` over a divisor, however their gradients are scaled to the bound or below it, and
    the noise has deviation ``sigma C`` over the same divisor: a t test of the ratio. If their sum has its undivided
    length, noise of the stated scale is excluded; otherwise a tenth more is allowed. Half of the risk is for single
    tensors, where some coordinates may have less noise than others.
    """
    stated, signal = step.stated, step.signal
    if stated is None or not signal.others_toward:
        return None
    without, with_record = (read_noise(side, step.neighbours, signal) for side in (first, second))
    measured, divided_by = movement(without, with_record, signal), ""
    if stated.divisor not in (None, 1):
        measured, divided_by = measured.times(stated.divisor), f"times the stated divisor of {stated.divisor:g}, "
    others_sum = _OthersSum(
        stated=stated,
        others=measured.others,
        error=measured.others_error,
        due=stated.rate * float(np.linalg.norm(signal.others)),
        toward=stated.rate * signal.others_toward,
    )
    sides = (without, with_record)
    on_some = short_group(sides, signal, others_sum, layout=layout, divided_by=divided_by, risk=risk / 2)
    if on_some is None and _have_one_scale(sides, signal, layout):
        return _on_all(measured, others_sum, divided_by=divided_by, risk=risk / 2)
    return on_some


def _have_one_scale(sides: Sequence[Noise], signal: Signal, layout: Layout | None) -> bool:
    """Whether all tensors have noise of one scale; otherwise each may have a divisor of its own."""
    if layout is None or layout.entries != signal.dimension or len(layout.slices) == 1:
        return True
    by_coordinate = variances([side.outputs for side in sides], signal.basis)
    by_tensor = [float(by_coordinate[tensor].mean()) for tensor in layout.slices]
    return min(by_tensor) > LITTLE**2 * max(by_tensor)


def _on_all(moved: Movement, others_sum: _OthersSum, *, divided_by: str, risk: float) -> Diagnosis | None:
    """Answer about the noise of all coordinates together; None if it is not too little."""
    stated = others_sum.stated
    p = others_sum.p_value(moved.noise, moved.noise_error, moved.degrees)
    if p >= risk:
        return None
    undivided = others_sum.undivided and moved.noise < LITTLE * stated.deviation
    reach = float(student.isf(risk / 2, moved.degrees)) * moved.noise_error
    limits = (max(moved.noise - reach, 0.0), moved.noise + reach)
    sampled = ("another_rate",) if stated.rate < 1 else ()
    causes: tuple[str, ...] = ("less_noise", *sampled, "larger_bound", "clipped_apart", OTHERS)
    compared = _compared_noise(moved.noise, limits, others_sum, undivided=undivided)
    measured = f"{divided_by}the noise has deviation {compared}"
    if undivided:
        causes = ("less_noise", "less_beside")
    elif abs(moved.noise - stated.deviation) <= CLOSE * stated.deviation:
        causes = (*sampled, "larger_bound", "clipped_apart", OTHERS)
        measured = (
            f"{divided_by}the noise has its stated deviation of {stated.deviation:.3g}, but the other records move "
        )
        measured += f"the sum by {moved.others:.3g}, where it may be {others_sum.slope * moved.noise:.3g} at most"
        measured += f" at rate {stated.rate:g}" * bool(sampled)
    return _too_little_noise(measured, causes, moved.noise, limits, p, stated, risk=risk)


def _compared_noise(noise: float, limits: tuple[float, float], others_sum: _OthersSum, *, undivided: bool) -> str:
    """Say how large the noise is and must be, and why no divisor explains the difference."""
    stated = others_sum.stated
    required = stated.deviation if undivided else others_sum.others / others_sum.slope
    says = f"{noise:.3g} ({between(*limits, '.3g')}); clip {stated.clip:g} and noise "
    says += f"multiplier {stated.noise_multiplier:g} need {required:.3g}{'' if undivided else ' or more'}. The other "
    says += f"records move the release by {others_sum.others:.3g}, "
    return says + (
        f"and {others_sum.due:.3g} is expected, so no divisor explains it"
        if undivided
        else "which a divisor shrinks too"
    )


def _too_little_noise(
    measured: str,
    causes: tuple[str, ...],
    noise: float,
    limits: tuple[float, float],
    p: float,
    stated: Stated,
    *,
    risk: float,
) -> Diagnosis:
    """The answer that the noise is smaller than stated."""
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
    sides: Sequence[Noise],
    signal: Signal,
    others_sum: _OthersSum,
    *,
    layout: Layout | None,
    divided_by: str,
    risk: float,
) -> Diagnosis | None:
    """Answer that a tensor's coordinates, short of noise by half of the trials, are so by the other half; or None.

    Tensors may be scaled separately, so that only others' gradients in the same tensor show its divisor or, if they
    reach the coordinates themselves, what they show there. Coordinates that no gradient reaches are assumed to be
    divided like the others, unless these have several divisors: separate scaling stays a possible cause.
    """
    divisor = others_sum.stated.divisor or 1.0
    halves = [[side.outputs[start::2] * divisor for side in sides] for start in (0, 1)]
    share_outside = 1 - np.sum(signal.basis**2, axis=0)
    chosen_by = variances(halves[0], signal.basis)
    tensors = layout.slices if layout is not None and layout.entries == signal.dimension else (slice(None),)
    shortest, fewest = None, 0
    for tensor in tensors:
        inside = np.zeros(signal.dimension, bool)
        inside[tensor] = True
        tensor_sum = others_sum if len(tensors) == 1 else _sum_on(inside, sides, signal, others_sum)
        if tensor_sum is None:
            continue
        measurable = inside & (share_outside > WELL_SEEN) & (chosen_by > NONE * others_sum.stated.deviation**2)
        mask = measurable & (chosen_by < (LITTLE * tensor_sum.needs) ** 2)
        if fewest < mask.sum() < measurable.sum():
            shortest, fewest = (mask, measurable & ~mask, tensor_sum), int(mask.sum())
    if shortest is None:
        return None
    mask, others, tensor_sum = shortest
    group_sum = _sum_on(mask, sides, signal, others_sum)
    if group_sum is None:
        if signal.others[mask].any() or not _has_one_scale(mask | others, sides[0].outputs * divisor, signal):
            return None
        group_sum = tensor_sum
    noise, error = _deviation_on(mask, halves[1], signal.basis)
    beside, _ = _deviation_on(others, halves[1], signal.basis)
    degrees = sum(map(len, halves[1])) - 1
    p = group_sum.p_value(noise, error, degrees)
    if p >= risk or noise >= LITTLE * beside:
        return None
    reach = float(student.isf(risk / 2, degrees)) * error
    limits = (max(noise - reach, 0.0), noise + reach)
    undivided = group_sum.undivided and noise < LITTLE * others_sum.stated.deviation
    measured = f"{divided_by}the noise has deviation {beside:.3g}, but on {places(mask, layout)} it has "
    measured += _compared_noise(noise, limits, group_sum, undivided=undivided)
    return _too_little_noise(
        measured, ("less_on_some", "scaled_apart", OTHERS), noise, limits, p, others_sum.stated, risk=risk
    )


def _sum_on(mask: Array, sides: Sequence[Noise], signal: Signal, others_sum: _OthersSum) -> _OthersSum | None:
    """The others' sum on some coordinates alone; None if it is too short there."""
    due = others_sum.stated.rate * float(np.linalg.norm(signal.others[mask]))
    if not due > 0:
        return None
    toward = np.where(mask, signal.others, 0.0) / np.linalg.norm(signal.others[mask])
    along = (sides[0].outputs @ toward) * (others_sum.stated.divisor or 1.0)
    error = max(float(along.std(ddof=1)) / math.sqrt(len(along)), 1e-300)
    if due < SEEN * error or not math.isfinite(others_sum.error):
        return None
    rows = dense(signal.pair, signal.pair.shared)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    most = float(np.asarray(signal.pair.counts, float) @ np.maximum(units @ toward, 0.0))
    toward_it = others_sum.stated.rate * most
    return dataclasses.replace(others_sum, others=float(along.mean()), error=error, due=due, toward=toward_it)


def _has_one_scale(mask: Array, outputs: Array, signal: Signal) -> bool:
    """Whether the others' mean on these coordinates may be the sum of their gradients times one number."""
    error = outputs[:, mask].std(axis=0, ddof=1) / math.sqrt(len(outputs))
    mean, expected = outputs[:, mask].mean(axis=0, dtype=np.float64), signal.others[mask]
    weighted = expected / np.maximum(error, 1e-300) ** 2
    times = float(mean @ weighted) / max(float(expected @ weighted), 1e-300)
    farthest = float(np.max(np.abs(mean - times * expected) / np.maximum(error, 1e-300)))
    return 2 * len(expected) * float(student.sf(farthest, len(outputs) - 1)) > UNLIKELY


def _deviation_on(mask: Array, sides: Sequence[Array], basis: Array) -> tuple[float, float]:
    """Root mean square of the noise on these coordinates, and its standard error."""
    weights = solve_projected_variances(mask / mask.sum(), basis, start=0.0)
    rows = [side - side.mean(axis=0, dtype=np.float64) for side in sides]
    squares = np.concatenate([project_out(own, basis) ** 2 @ weights for own in rows])
    count = len(squares)
    variance = max(float(squares.sum()) / (count - len(sides)), 0.0)
    deviation = math.sqrt(variance)
    return deviation, float(squares.std(ddof=1)) / math.sqrt(count) / max(2 * deviation, 1e-300)
