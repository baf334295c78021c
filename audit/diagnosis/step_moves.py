"""Whether a step of a transcript, given the steps before it, shows more of the record than the claim allows a step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer, noise_deviations
from audit.diagnosis.noise import Array
from audit.diagnosis.step_noise import MOST_STEPS, TOLD
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student
from guarantees.numerics.rounding import at_most, between

FEWEST = 20
"""Trials per side and half for each step that is examined."""
LESS = 0.5
"""Share of the first step's variance below which a later step varies less."""
RIDGE = 1e-9
"""Share of the variance of earlier steps that is added to it: steps may repeat each other."""
LITTLE = 1e-3
"""Share of a step's deviation below which what earlier steps do not predict is rounding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _StepMovement:
    """How far the record moves a step along a learned direction, given the steps before, in deviations."""

    far: float
    error: float
    left: float
    """Share of the step's variance that those before do not predict."""


def step_moves(first: Array, second: Array, *, rounds: int, allowed: float, risk: float) -> Diagnosis | None:
    """Answer about the first step that moves further than ``allowed`` for one, in deviations; None if trials are few.

    After a regression on the earlier steps only fresh noise and the batch remain of a correct step, whatever gradients
    and momentum do with them, and the record moves that by no more than it moves one step. Each half of the trials
    chooses the directions for the other, and the mean of both is judged; all steps share the risk. If a gradient
    depends on earlier steps in a curved way, the regression leaves a part: it varies, and its mean is of second order
    in how far the record moves those.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), rounds, -1)[:, :MOST_STEPS] for side in (first, second)]
    steps = sides[0].shape[1]
    if min(map(len, sides)) < 2 * FEWEST * steps or not math.isfinite(allowed):
        return None
    halves = [[side[start::2] for side in sides] for start in (0, 1)]
    by_half = [_judge_half(*order) for order in (halves, halves[::-1])]
    found = [_mean_of_halves(*pair) for pair in zip(*by_half, strict=True)]
    degrees = min(map(len, halves[1])) - 1
    p_values = [min(1.0, steps * float(student.sf((moved.far - allowed) / moved.error, degrees))) for moved in found]
    wrong = min(p_values) < risk
    step = next(place for place, p in enumerate(p_values) if p < risk or not wrong)
    movement = found[step]
    reach = float(student.isf(risk / (2 * steps), degrees)) * movement.error
    interval = (max(movement.far - reach, 0.0), movement.far + reach)
    measured = "no step is shown to move further, given those before, than the claim allows one"
    if wrong:
        given = f"given what earlier steps released, the record moves step {step + 1} of {rounds}" if step else ""
        measured = given or f"the record moves the first of {rounds} steps"
        measured += f" by {noise_deviations(movement.far)} ({between(*interval, '.2g')}), and the claim allows a step "
        measured += at_most(allowed)
    predicted = movement.left < TOLD
    if wrong and step and predicted:
        measured += f"; they predict all but {at_most(math.sqrt(movement.left), '.2g')} of its deviation"
    later_causes = ("carried_over", "other_steps", OTHERS)
    relative_variance = _variance_beside_first(sides, step) if wrong and step and not predicted else 1.0
    if relative_variance < LESS:
        measured += f"; given those, it varies {math.sqrt(relative_variance):.2g} times as much as the first step"
        later_causes = ("other_steps", "carried_over", OTHERS)
    causes = ("less_noise", "larger_bound", "another_rate", OTHERS)
    if step:
        causes = ("key_again", *later_causes) if predicted else later_causes
    return answer(
        "step_moves",
        wrong=wrong,
        measured=measured,
        causes=causes,
        p_value=p_values[step] if wrong else min(p_values),
        risk=risk,
        assumes="many independent trials; earlier steps tell a later one's mean by a regression",
        estimate=movement.far,
        interval=interval if math.isfinite(reach) else None,
    )


def _variance_beside_first(sides: Sequence[Array], step: int) -> float:
    """Variance of a step given earlier ones, over that of the first step; medians over the coordinates."""
    centred = np.concatenate([side - side.mean(axis=0) for side in sides]).transpose(2, 0, 1)
    factor = np.asarray(np.linalg.qr(centred[:, :, : step + 1], mode="r"))
    residual = np.abs(np.diagonal(factor, axis1=1, axis2=2))[:, [0, step]]
    return float(np.median(residual[:, 1]) / max(float(np.median(residual[:, 0])), 1e-300)) ** 2


def _mean_of_halves(first: _StepMovement, second: _StepMovement) -> _StepMovement:
    """Mean of the movements found in both halves, as if their errors were independent."""
    return _StepMovement(
        far=(first.far + second.far) / 2,
        error=math.hypot(first.error, second.error) / 2,
        left=max(first.left, second.left),
    )


def _judge_half(chosen_by: Sequence[Array], judged_by: Sequence[Array]) -> list[_StepMovement]:
    """Movement of every step along directions that the other half chooses."""
    return [_movement(judged_by, directions, step) for step, directions in _directions(chosen_by)]


def _directions(sides: Sequence[Array]) -> list[tuple[int, list[Array]]]:
    """Directions of every step and those before it: mean movement over variance, given earlier steps.

    Coordinate by coordinate, each given itself at earlier steps.
    """
    centred = np.concatenate([side - side.mean(axis=0) for side in sides])
    apart = sides[1].mean(axis=0) - sides[0].mean(axis=0)
    squares = np.einsum("nsw,ntw->wst", centred, centred) / len(centred)
    directions: list[Array] = []
    found = []
    for step in range(len(apart)):
        before = squares[:, :step, :step]
        ridge = RIDGE * np.trace(before, axis1=1, axis2=2) + 1e-300
        slopes = np.linalg.solve(before + ridge[:, None, None] * np.eye(step), squares[:, :step, step, None])[..., 0]
        new_movement = apart[step] - np.sum(slopes * apart[:step].T, axis=1)
        residual = squares[:, step, step] - np.sum(slopes * squares[:, :step, step], axis=1)
        known = residual > LITTLE**2 * squares[:, step, step]
        directions = [*directions, np.divide(new_movement, residual, out=np.zeros_like(residual), where=known)]
        found.append((step, directions))
    return found


def _movement(sides: Sequence[Array], directions: list[Array], step: int) -> _StepMovement:
    """Movement of a step along the last direction, given what earlier steps are along their own and along this one."""
    last = directions[step]
    columns = [np.stack([side[:, step] @ last, *_earlier_steps(side, directions, step)], axis=1) for side in sides]
    centred = np.concatenate([side - side.mean(axis=0) for side in columns])
    inverse = np.linalg.pinv(centred[:, 1:], rcond=RIDGE)
    slopes = inverse @ centred[:, 0]
    without, with_record = (side[:, 0] - side[:, 1:] @ slopes for side in columns)
    deviation = math.sqrt((float(without.var(ddof=1)) + float(with_record.var(ddof=1))) / 2)
    whole = float(centred[:, 0].std())
    if not deviation > LITTLE * whole:
        return _StepMovement(far=0.0, error=math.inf, left=0.0)
    far = float(with_record.mean() - without.mean()) / deviation
    # influence of each trial on the ratio of mean difference to deviation, to first order
    changes = [
        sign * deviate - far / 4 * deviate**2
        for sign, deviate in (
            (-1, (without - without.mean()) / deviation),
            (1, (with_record - with_record.mean()) / deviation),
        )
    ]
    error = math.sqrt(sum(float(change.var(ddof=1)) / len(change) for change in changes))
    # the error of the slopes, multiplied by how far the record moves earlier steps
    leverage = inverse.T @ (columns[1][:, 1:].mean(axis=0) - columns[0][:, 1:].mean(axis=0))
    error = math.hypot(error, float(np.linalg.norm(leverage)))
    return _StepMovement(far=far, error=error, left=(deviation / whole) ** 2)


def _earlier_steps(side: Array, directions: list[Array], step: int) -> list[Array]:
    """Earlier steps along their own direction, and along that of this step."""
    return [side[:, past] @ direction for past in range(step) for direction in (directions[past], directions[step])]
