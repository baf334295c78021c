"""Whether every step of a transcript has noise that the steps before it do not tell, whatever its gradients are."""

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
SAME = 0.05
"""By which the factor differs from 1 at most with which one step adds what an earlier one did."""
UNEVEN = 3.0
"""Factor by which what is left differs between coordinates: of fresh noise on another scale it is one share of all."""
AGAIN = ("key_again", "batch_again", "correlated")
"""Causes where a step adds what an earlier one did: no schedule of what is done after the noise explains that."""
OF_SUMS = ("key_again", "correlated")
"""The same where a step releases what an earlier one did, as no schedule does to a sum and its noise."""
LESS = ("other_steps",)
"""Cause where earlier steps do not tell the step that varies less."""
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


def every_step_has_noise(
    first: Array, second: Array, *, rounds: int, risk: float, unexplained: bool = False
) -> Diagnosis:
    """Whether a step varies, as far as earlier steps do not tell it, nearly as much as the first step does.

    Fresh noise is independent of all that was released before, so that no regression on earlier steps explains it: what
    is left of a step's variance is at least the noise's. A coordinate of the first step may vary by its batch as well.
    So a step is called short where nine coordinates in ten have little left of their own first variance, and half of
    them little of the smallest of these. What varies for another reason than noise is not accused, nor is a step whose
    mean is as small as its noise, or which adds little to weights: a schedule does that. Where a violation is left
    ``unexplained`` by all that was asked of the first step, both causes of a step that varies less are named.
    First it is asked whether a step adds what an earlier one did.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), rounds, -1)[:, :MOST_STEPS] for side in (first, second)]
    chosen = np.linspace(0, sides[0].shape[2] - 1, min(MOST_COORDINATES, sides[0].shape[2])).astype(int)
    sides, rounding = [side[:, :, chosen] for side in sides], ROUNDED * max(_rounding(first), _rounding(second))
    rows = np.concatenate([side - side.mean(axis=0) for side in sides])
    nothing = rounding * max(float(np.abs(side).max()) for side in sides)
    added = _again(np.diff(rows, axis=1, prepend=0.0), nothing=nothing, risk=risk / 2)
    if added is not None:
        return _answer(_says_again(added, rounds), wrong=True, p_value=added.p_value, risk=risk, causes=AGAIN)
    found = _read(sides, rounding=rounding)
    degrees = sum(map(len, sides)) - len(found.whole) - 2
    floor = float(np.quantile(found.whole[0], 0.1))
    if floor == 0 or degrees < 1:
        return _answer("the first step does not vary", wrong=False, p_value=1.0, risk=risk)
    usual = np.maximum(found.whole[0], floor)
    share = np.maximum(np.quantile(found.left / usual, 0.9, axis=1), np.median(found.left, axis=1) / floor)
    p_values = np.minimum(1.0, len(share) * chi2.cdf(degrees * share / SHORT, degrees))
    short = (share < SHORT) & (p_values < risk / 2)
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
    of_sums = OF_SUMS if _again(rows, nothing=nothing, risk=risk / 2) is not None else ()
    causes = of_sums if foretold[step] else LESS
    return _answer(says, wrong=True, p_value=float(p_values[step]), risk=risk, causes=causes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Again:
    """A step that is what one earlier step was."""

    past: int
    step: int
    slope: float
    share: float
    """Of its variance that the earlier one does not tell, on nine coordinates in ten at most."""
    p_value: float


def _again(rows: Array, *, nothing: float, risk: float) -> _Again | None:
    """The first step of centred rows that repeats one earlier step, with the factor 1, but for what is no fresh noise.

    Averages, momentum and schedules make steps that share noise, but none that is the noise of one earlier step with
    that factor. Where step sizes fall fast momentum near 1 does: what it leaves is fresh noise, the same share of it on
    all coordinates. What is left of noise that is used again is the gradients' answer to it, or batches. Where
    ``nothing`` is left nothing new was released.
    """
    trials, steps, _ = rows.shape
    factor = np.asarray(np.linalg.qr(rows.transpose(2, 0, 1), mode="r")).transpose(1, 2, 0)
    squares, degrees, rounded = factor**2, trials - 4, trials * nothing**2
    whole = np.maximum(squares.sum(axis=0), 1e-300)
    for past, step in sorted(itertools.combinations(range(min(steps, trials)), 2), key=lambda pair: pair[::-1]):
        vary = squares[past, past] > rounded
        if not vary.any() or np.median((squares[past, past] / whole[past])[vary]) < TOLD:
            continue
        share = max(float(np.quantile(1 - (squares[past, step] / whole[step])[vary], 0.9)), 0.0)
        p_value = min(1.0, steps**2 * float(chi2.cdf(degrees * share / SHORT, degrees)))
        slope = float(np.median(factor[past, step][vary] / factor[past, past][vary]))
        new = squares[step, step][vary]
        low, high = np.quantile(new / squares[past, past][vary], (0.1, 0.9))
        fresh = high <= UNEVEN * low or np.quantile(new, 0.9) <= rounded
        if p_value < risk and abs(slope - 1) < SAME and not fresh:
            return _Again(past=past, step=step, slope=slope, share=share, p_value=p_value)
    return None


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


def _says_again(found: _Again, rounds: int) -> str:
    measured = f"step {found.step + 1} of {rounds} adds what step {found.past + 1} did, {found.slope:.2f} times: that "
    measured += (
        f"tells all but {at_most(math.sqrt(found.share), '.2g')} of its deviation, and more on some coordinates "
    )
    measured += "than on others, unlike fresh noise on a smaller scale"
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
