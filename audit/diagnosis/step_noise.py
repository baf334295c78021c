"""Whether every step of a transcript has noise that the steps before it do not tell, whatever its gradients are."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import POSSIBLE, Diagnosis
from guarantees.numerics.distributions import chi2
from guarantees.numerics.rounding import at_most

MOST_COORDINATES = 256
"""Evenly spread ones that are looked at."""
MOST_STEPS = 32
"""The first ones, of which each is told by all before it."""
SHORT = 0.25
"""Share of the first step's variance below which another is said to vary little."""
TOLD = 0.5
"""Share of a step's own variance below which earlier steps tell it."""
ALIKE = 4.0
"""Factor within which squared ratios of mean and noise are alike: gradients change from step to step."""
ERRORS = 4.0
"""Standard errors that such a ratio is known to."""
SMALLEST = 1e-9
"""A step of whose deviation less than this is left tells later ones nothing of its own."""
ROUNDED = 8
"""Units of rounding by which a release differs from the one before where nothing is added to it."""
CODE = "step_noise"
QUESTION = "does every step have noise of its own?"
ADDED_UP = "steps are added up, as in weights, and this one has less noise or a smaller scale, as by a schedule"
SCALED = "steps are released at different scales, as by a schedule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Steps:
    """What every step is given those before it, coordinate by coordinate, shape (steps, width)."""

    whole: Array
    """Variance."""
    left: Array
    """Variance that a regression on the same coordinate at all earlier steps leaves."""
    news: Array
    """Mean square of what these regressions do not tell of a step's mean, over both sides, less its error's."""
    news_error: Array
    """Standard error of that."""
    again: Array
    """Steps at which every trial releases one constant, or what the step before did, shape (steps,)."""


def about_steps(first: Array, second: Array, *, rounds: int, risk: float, unexplained: bool = False) -> Diagnosis:
    """Whether a step varies, as far as earlier steps do not tell it, nearly as much as the first step does.

    Fresh noise is independent of all that was released before, so that no regression on earlier steps explains it: what
    is left of a step's variance is at least the noise's. A coordinate of the first step may vary by its batch as well.
    So a step is called short where nine coordinates in ten have little left of their own first variance, and half of
    them little of the smallest of these. What varies for another reason than noise is not accused, nor is a step whose
    mean is as small as its noise, or which adds little to weights: a schedule does that. Where a violation is left
    ``unexplained`` by all that was asked of the first step, both causes of a step that varies less are named.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), rounds, -1)[:, :MOST_STEPS] for side in (first, second)]
    chosen = np.linspace(0, sides[0].shape[2] - 1, min(MOST_COORDINATES, sides[0].shape[2])).astype(int)
    found = _read([side[:, :, chosen] for side in sides], rounding=ROUNDED * max(_rounding(first), _rounding(second)))
    degrees = sum(map(len, sides)) - len(found.whole) - 2
    floor = float(np.quantile(found.whole[0], 0.1))
    if floor == 0 or degrees < 1:
        return _answer("the first step does not vary", wrong=False, p_value=1.0, risk=risk)
    usual = np.maximum(found.whole[0], floor)
    share = np.maximum(np.quantile(found.left / usual, 0.9, axis=1), np.median(found.left, axis=1) / floor)
    p_values = np.minimum(1.0, len(share) * chi2.cdf(degrees * share / SHORT, degrees))
    short = (share < SHORT) & (p_values < risk)
    foretold = np.median(found.left / np.maximum(found.whole, 1e-300), axis=1) < TOLD
    scheduled = _as_by_a_schedule(found, usual, short, foretold)
    accused = np.flatnonzero(short & ~found.again & ~scheduled)
    if unexplained and not len(accused):
        accused = np.flatnonzero(short & ~found.again & ~foretold)
    if not len(accused):
        says = "every step varies like the first, whatever came before"
        if short.any():
            step = int(np.argmax(short))
            says = f"step {step + 1} of {rounds} varies less than the first, as by a schedule"
            if foretold[step]:
                says = f"earlier steps foretell step {step + 1} of {rounds}, as by a schedule or by noise used again"
        return _answer(says, wrong=False, p_value=1.0, risk=risk)
    step = int(accused[0])
    says = _says(step, len(accused), rounds, math.sqrt(float(share[step])), foretold=bool(foretold[step]))
    return _answer(says, wrong=True, p_value=float(p_values[step]), risk=risk)


def _rounding(outputs: Array) -> float:
    """The relative one of the numbers that were released."""
    kind = np.asarray(outputs).dtype
    return float(np.finfo(kind).eps) if kind.kind == "f" else 0.0


def _read(sides: list[Array], *, rounding: float) -> _Steps:
    centred = np.concatenate([side - side.mean(axis=0) for side in sides])
    trials, steps, width = centred.shape
    means = np.stack([side.mean(axis=0) for side in sides])
    # of the triangular factor the diagonal is each step less its projection on those before
    factor = np.asarray(np.linalg.qr(centred.transpose(2, 0, 1), mode="r"))
    own = np.diagonal(factor, axis1=1, axis2=2).T
    whole = np.mean(centred**2, axis=0)
    told_by = SMALLEST * np.sqrt(trials * whole)
    news, places = np.empty((len(sides), steps, width)), np.zeros((len(sides), steps, width))
    for step in range(steps):
        told = np.einsum("ksw,ws->kw", places[:, :step], factor[:, :step, step])
        news[:, step] = means[:, step] - told
        np.divide(news[:, step], own[step], out=places[:, step], where=np.abs(own[step]) > told_by[step])
    left = own**2 / (trials - np.arange(steps))[:, None]
    # what a regression tells of a mean is as uncertain as its slope
    sizes = np.divide(np.mean(means**2, axis=0), whole, out=np.zeros_like(whole), where=whole > 0)
    uncertain = 1 + np.cumsum(sizes, axis=0)
    each = left * uncertain / min(map(len, sides))
    square = np.mean(news**2, axis=0)
    both = np.concatenate(sides)
    nothing = rounding * float(np.abs(both).max())
    still = np.ptp(both, axis=0).max(axis=1) <= nothing
    return _Steps(
        whole=whole,
        left=left,
        news=square - each,
        news_error=np.sqrt(each * (each + 2 * square)),
        again=still | np.append(False, np.abs(np.diff(both, axis=1)).max(axis=(0, 2)) <= nothing),
    )


def _as_by_a_schedule(found: _Steps, usual: Array, short: Array, foretold: Array) -> Array:
    """At which steps a smaller scale of the whole step explains that it varies little.

    It leaves the ratio of mean and noise as it is at other steps: those that are not short, or else the first. Nothing
    is read from a mean that is not known. Of a release that adds steps up, as weights do, the variance grows by what a
    step leaves: by nothing where its noise is that of an earlier one.
    """
    noise = np.sum(found.left / usual, axis=1)
    mean, error = np.sum(found.news / usual, axis=1), np.sqrt(np.sum((found.news_error / usual) ** 2, axis=1))
    noise = np.maximum(noise, 1e-300)
    low, high = np.maximum(mean - ERRORS * error, 0.0) / noise, np.maximum(mean + ERRORS * error, 0.0) / noise
    others = np.flatnonzero(~short[1:]) + 1 if not short[1:].all() else np.array([0])
    louder = low > ALIKE * float(np.median(high[others]))
    alike = (low > 0) & (ALIKE * mean / noise >= float(np.median((mean / noise)[others])))
    grown = np.append(0.0, np.sum(np.diff(found.whole, axis=0) / usual, axis=1))
    adds_up = (grown > noise / 2) & (grown < 2 * noise)
    return ~louder & (alike | ~foretold | adds_up)


def _says(step: int, short: int, rounds: int, share: float, *, foretold: bool) -> str:
    """What was measured at the first step that is short, and what may be the cause."""
    also = f", and so do {short - 1} of the others" if short > 2 else ", and so does another" if short == 2 else ""
    little = f"varies by at most {at_most(share, '.2g')} of what the first step does"
    if foretold:
        causes = f"a key or a draw of noise is used at several steps; the noise is correlated on purpose; {ADDED_UP}"
        return f"earlier steps foretell step {step + 1} of {rounds}: given them it {little}{also}. {POSSIBLE}: {causes}"
    return f"step {step + 1} of {rounds} {little}{also}. {POSSIBLE}: it has less noise, or none; {SCALED}"


def _answer(says: str, *, wrong: bool, p_value: float, risk: float) -> Diagnosis:
    return Diagnosis(
        code=CODE,
        question=QUESTION,
        wrong=wrong,
        says=f"{says}.",
        p_value=p_value,
        risk=risk,
        assumes="independent trials; noise of one scale at all steps",
    )
