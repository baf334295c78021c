"""Whether every step of a transcript has noise that the steps before it do not predict, whatever its gradients are."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from audit.diagnosis.cause_sentences import sentence
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import POSSIBLE, Diagnosis
from guarantees.numerics.distributions import chi2
from guarantees.numerics.rounding import at_most

MOST_COORDINATES = 256
"""Most coordinates that are examined, evenly spread."""
MOST_STEPS = 32
"""Most steps that are examined, from the first on; each is predicted from all before it."""
SHORT = 0.25
"""Share of the first step's variance below which a later step is said to vary little."""
TOLD = 0.5
"""Share of a step's own variance left over by earlier steps, below which they predict it."""
ALIKE = 4.0
"""Factor within which squared ratios of mean and noise are alike, as gradients change between steps."""
ERRORS = 4.0
"""Standard errors within which such a ratio is known."""
SMALLEST = 1e-9
"""Share of its deviation below which the residual of a step is rounding and predicts nothing."""
ROUNDED = 8
"""Units of rounding by which a release may differ from the one before if nothing is added to it."""
SAME = 0.05
"""Largest deviation from 1 of the factor with which one step adds what an earlier one did."""
UNEVEN = 3.0
"""Factor by which residuals differ between coordinates; of fresh noise on another scale they are one share of all."""
AGAIN = ("key_again", "batch_again", "correlated")
"""Causes where a step adds what an earlier one did, which no schedule after the noise explains."""
RELEASED_AGAIN = ("key_again", "correlated")
"""Causes where a step releases what an earlier one did, as no schedule does to a sum and its noise."""
LESS = ("other_steps",)
"""Cause where earlier steps do not predict the step that varies less."""
CODE = "step_noise"
QUESTION = "does every step have noise of its own?"
ADDED_UP = "steps are added up, as in weights, and this one has less noise or a smaller scale, as by a schedule"
SCALED = "steps are released at different scales, as by a schedule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Steps:
    """Statistics of every step given those before it, by coordinate, shape (steps, width)."""

    whole: Array
    """Variance of the step."""
    left: Array
    """Variance left by a regression on the same coordinate at all earlier steps."""
    news: Array
    """Mean square, over both sides, of the step's mean less its prediction, with the error's variance subtracted."""
    news_error: Array
    """Standard error of ``news``."""
    again: Array
    """Whether every trial releases one constant at a step, or what the step before did, shape (steps,)."""


def every_step_has_noise(
    first: Array, second: Array, *, rounds: int, risk: float, unexplained: bool = False
) -> Diagnosis:
    """Whether every step has noise: given earlier steps, it should vary nearly as much as the first step does.

    Fresh noise is independent of all that was released before, so that no regression on earlier steps explains it: what
    is left of a step's variance is at least the noise's. At the first step coordinates may vary by their batch as well.
    So a step is called short if nine coordinates in ten have little left of their own first variance, and half of them
    little of the smallest of these. What varies for another reason than noise is not accused, nor is a step whose mean
    is as small as its noise, or which adds little to weights: a schedule does that. If a violation is left
    ``unexplained`` by all answers about the first step, both causes of a step that varies less are named. A step that
    adds what an earlier one did is sought first.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), rounds, -1)[:, :MOST_STEPS] for side in (first, second)]
    chosen = np.linspace(0, sides[0].shape[2] - 1, min(MOST_COORDINATES, sides[0].shape[2])).astype(int)
    sides, rounding = [side[:, :, chosen] for side in sides], ROUNDED * max(_rounding(first), _rounding(second))
    rows = np.concatenate([side - side.mean(axis=0) for side in sides])
    nothing = rounding * max(float(np.abs(side).max()) for side in sides)
    repetition = _find_repetition(np.diff(rows, axis=1, prepend=0.0), nothing=nothing, risk=risk / 2)
    if repetition is not None:
        return _answer(
            _describe_repetition(repetition, rounds), wrong=True, p_value=repetition.p_value, risk=risk, causes=AGAIN
        )
    steps = _statistics(sides, rounding=rounding)
    degrees = sum(map(len, sides)) - len(steps.whole) - 2
    floor = float(np.quantile(steps.whole[0], 0.1))
    if floor == 0 or degrees < 1:
        return _answer("the first step does not vary", wrong=False, p_value=1.0, risk=risk)
    first_variance = np.maximum(steps.whole[0], floor)
    share_left = np.maximum(
        np.quantile(steps.left / first_variance, 0.9, axis=1), np.median(steps.left, axis=1) / floor
    )
    p_values = np.minimum(1.0, len(share_left) * chi2.cdf(degrees * share_left / SHORT, degrees))
    short = (share_left < SHORT) & (p_values < risk / 2)
    predicted = np.median(steps.left / np.maximum(steps.whole, 1e-300), axis=1) < TOLD
    scheduled = _as_by_a_schedule(steps, first_variance, short, predicted)
    accused = np.flatnonzero(short & ~steps.again & ~scheduled)
    if unexplained and not len(accused):
        accused = np.flatnonzero(short & ~steps.again & ~predicted)
    if not len(accused):
        statement = "every step varies like the first, whatever came before"
        if short.any():
            step = int(np.argmax(short))
            statement = f"step {step + 1} of {rounds} varies less than the first, as by a schedule"
            if predicted[step]:
                statement = (
                    f"earlier steps predict step {step + 1} of {rounds}, as by a schedule or by noise used again"
                )
        return _answer(statement, wrong=False, p_value=1.0, risk=risk)
    step = int(accused[0])
    statement = _describe_short_step(
        step, len(accused), rounds, math.sqrt(float(share_left[step])), predicted=bool(predicted[step])
    )
    causes_if_predicted = RELEASED_AGAIN if _find_repetition(rows, nothing=nothing, risk=risk / 2) is not None else ()
    causes = causes_if_predicted if predicted[step] else LESS
    return _answer(statement, wrong=True, p_value=float(p_values[step]), risk=risk, causes=causes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Repetition:
    """A step that repeats an earlier one."""

    past: int
    step: int
    slope: float
    share: float
    """Share of its variance that the earlier one does not explain, on nine coordinates in ten at most."""
    p_value: float


def _find_repetition(rows: Array, *, nothing: float, risk: float) -> _Repetition | None:
    """Find the first step of centred rows that repeats an earlier step with factor 1, without fresh noise.

    Averages, momentum and schedules make steps share noise, but not with one earlier step at that factor. Momentum near
    1 does, if step sizes fall fast: what it leaves is fresh noise, the same share on all coordinates. What is left of
    noise that is used again is the gradients' response to it, or batches. If ``nothing`` is left, nothing new was
    released.
    """
    trials, steps, _ = rows.shape
    factor = np.asarray(np.linalg.qr(rows.transpose(2, 0, 1), mode="r")).transpose(1, 2, 0)
    squares, degrees, rounded = factor**2, trials - 4, trials * nothing**2
    whole = np.maximum(squares.sum(axis=0), 1e-300)
    for past, step in sorted(itertools.combinations(range(min(steps, trials)), 2), key=lambda pair: pair[::-1]):
        varying = squares[past, past] > rounded
        if not varying.any() or np.median((squares[past, past] / whole[past])[varying]) < TOLD:
            continue
        share = max(float(np.quantile(1 - (squares[past, step] / whole[step])[varying], 0.9)), 0.0)
        p_value = min(1.0, steps**2 * float(chi2.cdf(degrees * share / SHORT, degrees)))
        slope = float(np.median(factor[past, step][varying] / factor[past, past][varying]))
        residual = squares[step, step][varying]
        low, high = np.quantile(residual / squares[past, past][varying], (0.1, 0.9))
        fresh = high <= UNEVEN * low or np.quantile(residual, 0.9) <= rounded
        if p_value < risk and abs(slope - 1) < SAME and not fresh:
            return _Repetition(past=past, step=step, slope=slope, share=share, p_value=p_value)
    return None


def _rounding(outputs: Array) -> float:
    """Relative rounding of the released numbers."""
    kind = np.asarray(outputs).dtype
    return float(np.finfo(kind).eps) if kind.kind == "f" else 0.0


def _statistics(sides: list[Array], *, rounding: float) -> _Steps:
    """Regress every step on those before it, by coordinate."""
    centred = np.concatenate([side - side.mean(axis=0) for side in sides])
    trials, steps, width = centred.shape
    means = np.stack([side.mean(axis=0) for side in sides])
    # of the triangular factor the diagonal is each step less its projection on those before
    factor = np.asarray(np.linalg.qr(centred.transpose(2, 0, 1), mode="r"))
    residual_root = np.diagonal(factor, axis1=1, axis2=2).T
    whole = np.mean(centred**2, axis=0)
    rounding_floor = SMALLEST * np.sqrt(trials * whole)
    unpredicted, coefficients = np.empty((len(sides), steps, width)), np.zeros((len(sides), steps, width))
    for step in range(steps):
        predicted = np.einsum("ksw,ws->kw", coefficients[:, :step], factor[:, :step, step])
        unpredicted[:, step] = means[:, step] - predicted
        np.divide(
            unpredicted[:, step],
            residual_root[step],
            out=coefficients[:, step],
            where=np.abs(residual_root[step]) > rounding_floor[step],
        )
    left = residual_root**2 / (trials - np.arange(steps))[:, None]
    # the prediction of a mean is as uncertain as its slope
    sizes = np.divide(np.mean(means**2, axis=0), whole, out=np.zeros_like(whole), where=whole > 0)
    uncertain = 1 + np.cumsum(sizes, axis=0)
    noise_of_mean = left * uncertain / min(map(len, sides))
    square = np.mean(unpredicted**2, axis=0)
    all_trials = np.concatenate(sides)
    nothing = rounding * float(np.abs(all_trials).max())
    still = np.ptp(all_trials, axis=0).max(axis=1) <= nothing
    return _Steps(
        whole=whole,
        left=left,
        news=square - noise_of_mean,
        news_error=np.sqrt(noise_of_mean * (noise_of_mean + 2 * square)),
        again=still | np.append(False, np.abs(np.diff(all_trials, axis=1)).max(axis=(0, 2)) <= nothing),
    )


def _as_by_a_schedule(steps: _Steps, first_variance: Array, short: Array, predicted: Array) -> Array:
    """Mask of the steps that vary little because the whole step has a smaller scale.

    That leaves the ratio of mean and noise as at other steps: those that are not short or, if all are, the first. A
    mean that is not known says nothing. If a release adds up steps, as weights do, the variance grows by what a step
    leaves: by nothing if its noise is that of an earlier step.
    """
    noise = np.sum(steps.left / first_variance, axis=1)
    mean, error = (
        np.sum(steps.news / first_variance, axis=1),
        np.sqrt(np.sum((steps.news_error / first_variance) ** 2, axis=1)),
    )
    noise = np.maximum(noise, 1e-300)
    low, high = np.maximum(mean - ERRORS * error, 0.0) / noise, np.maximum(mean + ERRORS * error, 0.0) / noise
    others = np.flatnonzero(~short[1:]) + 1 if not short[1:].all() else np.array([0])
    louder = low > ALIKE * float(np.median(high[others]))
    alike = (low > 0) & (ALIKE * mean / noise >= float(np.median((mean / noise)[others])))
    grown = np.append(0.0, np.sum(np.diff(steps.whole, axis=0) / first_variance, axis=1))
    adds_up = (grown > noise / 2) & (grown < 2 * noise)
    return ~louder & (alike | ~predicted | adds_up)


def _describe_short_step(step: int, short: int, rounds: int, share: float, *, predicted: bool) -> str:
    """Say what was measured at the first short step, and its possible causes."""
    also = f", and so do {short - 1} of the others" if short > 2 else ", and so does another" if short == 2 else ""
    little = f"varies by at most {at_most(share, '.2g')} of what the first step does"
    if predicted:
        causes = f"a key or a draw of noise is used at several steps; the noise is correlated on purpose; {ADDED_UP}"
        return f"earlier steps predict step {step + 1} of {rounds}: given them it {little}{also}. {POSSIBLE}: {causes}"
    return f"step {step + 1} of {rounds} {little}{also}. {POSSIBLE}: it has less noise, or none; {SCALED}"


def _describe_repetition(repetition: _Repetition, rounds: int) -> str:
    """Say which step adds what an earlier one did, and the possible causes."""
    measured = f"step {repetition.step + 1} of {rounds} adds what step {repetition.past + 1} did, "
    measured += f"{repetition.slope:.2f} times: that "
    measured += f"predicts all but {at_most(math.sqrt(repetition.share), '.2g')} of its deviation, and more on "
    measured += "some coordinates than on others, unlike fresh noise on a smaller scale"
    return sentence(measured, AGAIN).removesuffix(".")


def _answer(says: str, *, wrong: bool, p_value: float, risk: float, causes: tuple[str, ...] = ()) -> Diagnosis:
    return Diagnosis(
        code=CODE,
        question=QUESTION,
        wrong=wrong,
        says=f"{says}.",
        p_value=p_value,
        risk=risk,
        assumes="independent trials; noise of one scale at all steps",
        causes=causes,
    )
