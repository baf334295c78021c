"""Whether a step of a transcript shows more of the record, given the steps before it, than the claim allows one."""

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
"""Trials per side and half for each step that is looked at."""
LESS = 0.5
"""Times the first step's variance below which a later one varies less."""
RIDGE = 1e-9
"""Share of the variance of earlier steps that is added to it: steps may repeat each other."""
LITTLE = 1e-3
"""Share of a step's deviation below which what earlier steps do not tell is rounding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moved:
    """How far the record moves a step along a learned direction, given the steps before, in deviations."""

    far: float
    error: float
    left: float
    """Share of the step's variance that those before do not tell."""


def step_moves(first: Array, second: Array, *, rounds: int, allowed: float, risk: float) -> Diagnosis | None:
    """The first step that exceeds what the claim ``allowed`` one, in deviations; None where trials are few.

    Of a right step only fresh noise and its batch are left when a regression on the earlier steps is taken off,
    whatever gradients and momentum make of them. The record moves that by no more than it moves one step. Each half of
    the trials chooses the directions for the other, and the mean of both is judged; all steps share the risk. Of a
    gradient that depends on earlier steps in a curved way a regression leaves a part: it varies, and its mean is one of
    second order in how far the record moves those.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), rounds, -1)[:, :MOST_STEPS] for side in (first, second)]
    steps = sides[0].shape[1]
    if min(map(len, sides)) < 2 * FEWEST * steps or not math.isfinite(allowed):
        return None
    halves = [[side[start::2] for side in sides] for start in (0, 1)]
    found = [_both(*pair) for pair in zip(*(_judged(*order) for order in (halves, halves[::-1])), strict=True)]
    degrees = min(map(len, halves[1])) - 1
    p_values = [min(1.0, steps * float(student.sf((own.far - allowed) / own.error, degrees))) for own in found]
    wrong = min(p_values) < risk
    step = next(place for place, p in enumerate(p_values) if p < risk or not wrong)
    own = found[step]
    reach = float(student.isf(risk / (2 * steps), degrees)) * own.error
    interval = (max(own.far - reach, 0.0), own.far + reach)
    measured = "no step is shown to move further, given those before, than the claim allows one"
    if wrong:
        given = f"given what earlier steps released, the record moves step {step + 1} of {rounds}" if step else ""
        measured = given or f"the record moves the first of {rounds} steps"
        measured += f" by {noise_deviations(own.far)} ({between(*interval, '.2g')}), and the claim allows a step "
        measured += at_most(allowed)
    foretold = own.left < TOLD
    if wrong and step and foretold:
        measured += f"; they tell all but {at_most(math.sqrt(own.left), '.2g')} of its deviation"
    later = ("carried_over", "other_steps", OTHERS)
    little = _beside_the_first(sides, step) if wrong and step and not foretold else 1.0
    if little < LESS:
        measured += f"; given those, it varies {math.sqrt(little):.2g} times as much as the first step"
        later = ("other_steps", "carried_over", OTHERS)
    causes = ("less_noise", "larger_bound", "another_rate", OTHERS)
    if step:
        causes = ("key_again", *later) if foretold else later
    return answer(
        "step_moves",
        wrong=wrong,
        measured=measured,
        causes=causes,
        p_value=p_values[step] if wrong else min(p_values),
        risk=risk,
        assumes="many independent trials; earlier steps tell a later one's mean by a regression",
        estimate=own.far,
        interval=interval if math.isfinite(reach) else None,
    )


def _beside_the_first(sides: Sequence[Array], step: int) -> float:
    """Variance of a step that a regression on earlier ones leaves, over that of the first; medians of coordinates."""
    centred = np.concatenate([side - side.mean(axis=0) for side in sides]).transpose(2, 0, 1)
    factor = np.asarray(np.linalg.qr(centred[:, :, : step + 1], mode="r"))
    left = np.abs(np.diagonal(factor, axis1=1, axis2=2))[:, [0, step]]
    return float(np.median(left[:, 1]) / max(float(np.median(left[:, 0])), 1e-300)) ** 2


def _both(one: _Moved, two: _Moved) -> _Moved:
    """The mean of both halves; errors as large as if they were one."""
    return _Moved(
        far=(one.far + two.far) / 2,
        error=math.hypot(one.error, two.error) / 2,
        left=max(one.left, two.left),
    )


def _judged(chosen_by: Sequence[Array], judged_by: Sequence[Array]) -> list[_Moved]:
    return [_moved(judged_by, ways, step) for step, ways in _directions(chosen_by)]


def _directions(sides: Sequence[Array]) -> list[tuple[int, list[Array]]]:
    """For every step the directions of all up to it: how far the mean moves over the variance, given those before.

    Coordinate by coordinate, each given itself at earlier steps.
    """
    centred = np.concatenate([side - side.mean(axis=0) for side in sides])
    apart = sides[1].mean(axis=0) - sides[0].mean(axis=0)
    squares = np.einsum("nsw,ntw->wst", centred, centred) / len(centred)
    ways: list[Array] = []
    found = []
    for step in range(len(apart)):
        before = squares[:, :step, :step]
        ridge = RIDGE * np.trace(before, axis1=1, axis2=2) + 1e-300
        slopes = np.linalg.solve(before + ridge[:, None, None] * np.eye(step), squares[:, :step, step, None])[..., 0]
        news = apart[step] - np.sum(slopes * apart[:step].T, axis=1)
        left = squares[:, step, step] - np.sum(slopes * squares[:, :step, step], axis=1)
        ways = [*ways, np.divide(news, left, out=np.zeros_like(news), where=left > LITTLE**2 * squares[:, step, step])]
        found.append((step, ways))
    return found


def _moved(sides: Sequence[Array], ways: list[Array], step: int) -> _Moved:
    """The last of these directions, given what earlier steps are along their own and along this one."""
    columns = [np.stack([side[:, step] @ ways[step], *_before(side, ways, step)], axis=1) for side in sides]
    centred = np.concatenate([own - own.mean(axis=0) for own in columns])
    inverse = np.linalg.pinv(centred[:, 1:], rcond=RIDGE)
    slopes = inverse @ centred[:, 0]
    without, with_record = (own[:, 0] - own[:, 1:] @ slopes for own in columns)
    deviation = math.sqrt((float(without.var(ddof=1)) + float(with_record.var(ddof=1))) / 2)
    whole = float(centred[:, 0].std())
    if not deviation > LITTLE * whole:
        return _Moved(far=0.0, error=math.inf, left=0.0)
    far = float(with_record.mean() - without.mean()) / deviation
    # what one trial more or less changes, to first order, by mean and variance
    changes = [
        sign * own - far / 4 * own**2
        for sign, own in (
            (-1, (without - without.mean()) / deviation),
            (1, (with_record - with_record.mean()) / deviation),
        )
    ]
    error = math.sqrt(sum(float(own.var(ddof=1)) / len(own) for own in changes))
    # the slopes' own error, by as much as the record moves earlier steps
    told = inverse.T @ (columns[1][:, 1:].mean(axis=0) - columns[0][:, 1:].mean(axis=0))
    error = math.hypot(error, float(np.linalg.norm(told)))
    return _Moved(far=far, error=error, left=(deviation / whole) ** 2)


def _before(side: Array, ways: list[Array], step: int) -> list[Array]:
    return [side[:, past] @ way for past in range(step) for way in (ways[past], ways[step])]
