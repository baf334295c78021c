"""Whether every step of a transcript has noise that the steps before it do not tell, whatever its gradients are."""

from __future__ import annotations

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
REPEATS = 0.5
"""Share of the first step's variance from which on a step has noise, if not its own."""
CODE = "step_noise"
QUESTION = "does every step have noise of its own?"
SCALED = "steps are released at different scales, as by a schedule"


def about_steps(first: Array, second: Array, *, rounds: int, risk: float) -> Diagnosis:
    """Whether a step varies, as far as earlier steps do not tell it, nearly as much as the first step does.

    Fresh noise is independent of all that was released before, so that no regression on earlier steps explains it: what
    is left of a step's variance is at least the noise's. A coordinate of the first step may vary by its batch as well.
    So a step is called short where nine coordinates in ten have little left of their own first variance, and half of
    them little of the smallest of these. What varies for another reason than noise is not accused.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), rounds, -1)[:, :MOST_STEPS] for side in (first, second)]
    chosen = np.linspace(0, sides[0].shape[2] - 1, min(MOST_COORDINATES, sides[0].shape[2])).astype(int)
    rows = np.concatenate([side[:, :, chosen] - side[:, :, chosen].mean(axis=0) for side in sides])
    degrees = len(rows) - rows.shape[1] - 2
    whole, left = np.mean(rows**2, axis=0), _left(rows)
    floor = float(np.quantile(whole[0], 0.1))
    if floor == 0 or degrees < 1:
        return _answer("the first step does not vary", wrong=False, p_value=1.0, risk=risk)
    usual = np.maximum(whole[0], floor)
    share = np.maximum(np.quantile(left / usual, 0.9, axis=1), np.median(left, axis=1) / floor)
    p_values = np.minimum(1.0, len(share) * chi2.cdf(degrees * share / SHORT, degrees))
    short = np.flatnonzero((share < SHORT) & (p_values < risk))
    if not len(short):
        return _answer("every step varies like the first, whatever came before", wrong=False, p_value=1.0, risk=risk)
    step = int(short[0])
    own = math.sqrt(float(np.median(whole[step] / usual)))
    says = _says(step, len(short), rounds, math.sqrt(float(share[step])), own)
    return _answer(says, wrong=True, p_value=float(p_values[step]), risk=risk)


def _left(rows: Array) -> Array:
    """Of every step's variance what a regression on the same coordinate at all earlier steps leaves, (steps, width)."""
    trials, steps, width = rows.shape
    left = np.empty((steps, width))
    for place in range(width):
        # the triangular factor's diagonal: each step less its projection on those before
        left[:, place] = np.diag(np.linalg.qr(rows[:, :, place], mode="r")) ** 2
    return left / (trials - np.arange(steps))[:, None]


def _says(step: int, short: int, rounds: int, share: float, own: float) -> str:
    """What was measured at the first step that is short, and what may be the cause."""
    also = f", and so do {short - 1} of the others" if short > 2 else ", and so does another" if short == 2 else ""
    little = f"varies by at most {at_most(share, '.2g')} of what the first step does"
    if own * own >= REPEATS:
        causes = "a key or a draw of noise is used at several steps; the noise is correlated on purpose"
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
