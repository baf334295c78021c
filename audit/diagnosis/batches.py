"""Whether the sum varies as batches make it that are drawn at the stated rate, step by step independently."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Noise
from audit.diagnosis.sensitivity import Stated, welch
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student
from guarantees.numerics.rounding import at_least


def batches_vary(without: Noise, with_record: Noise, signal: Signal, stated: Stated, *, risk: float) -> Diagnosis:
    """Whether the sum varies as independent draws at the stated rate make it.

    Without the record, for any gradients along a direction, the mean is ``q sum(a)`` and the variance beside the
    noise's ``q (1 - q) sum(a^2) >= mean^2 (1 - q) / (q N)`` by Cauchy's inequality. At rate 1 it is zero,
    along the record's gradient too.
    """
    rate = stated.rate
    side, toward = (without, signal.others) if rate < 1 else (with_record, signal.moves)
    size = float(np.linalg.norm(toward))
    assumes = "equal noise in all directions; sums of many trials are normal"
    if size == 0:
        zero = "the gradients' sum is zero"
        return answer("batches", wrong=False, measured=zero, p_value=1.0, risk=risk, assumes=assumes)
    sums = side.outputs @ (toward / size)
    # noise may have a mean of its own: no more is due than the gradients' sum has at the noise's scale
    mean = min(abs(float(sums.mean())), rate * size * math.sqrt(side.variance) / stated.deviation)
    centred = sums - sums.mean()
    excess = float(centred.var(ddof=1)) - side.variance
    share = (1 - rate) / (rate * signal.records)
    rows = centred**2 - side.sizes**2 - 2 * mean * share * centred
    error = max(float(rows.std(ddof=1)) / math.sqrt(len(rows)), 1e-300)
    lacking = mean**2 * share - excess
    p = float(special.ndtr(-(lacking if rate < 1 else -lacking) / error))
    wrong = p < risk
    measured = "the sum varies no less than batches drawn at the stated rate make it"
    if wrong:
        measured = (
            f"the sum varies less from trial to trial than records drawn at rate {rate:g} make it (a variance of "
            f"{max(excess, 0.0):.3g}, at least {at_least(mean**2 * share)} is expected)"
            if rate < 1
            else f"the sum varies from trial to trial (a variance of {excess:.3g} beside the noise) where every record "
            "is taken"
        )
    less = ("fixed_batches", "sum_clipped", "sum_scaled", "less_along", "noise_of_batch")
    return answer(
        "batches",
        measured=measured,
        causes=less if rate < 1 else ("counted_at_random", "more_along"),
        p_value=p,
        risk=risk,
        assumes=assumes,
        estimate=max(excess, 0.0),
    )


def at_no_stated_rate(found: Diagnosis) -> Diagnosis:
    """The answer at rate 1 where nobody states a rate: what varies is no fault of a training that samples."""
    says = "the sum varies no more than the noise does"
    if found.wrong:
        says = f"the sum varies from trial to trial (a variance of {found.estimate:.3g} beside the noise), as it does "
        says += "where records are sampled; the claim names no rate to compare it with"
    return answer(
        found.code,
        wrong=False,
        measured=says,
        p_value=1.0,
        risk=found.risk,
        assumes=found.assumes,
        estimate=found.estimate if found.wrong else 0.0,
    )


def steps_apart(without: Noise, with_record: Noise, signal: Signal, *, risk: float) -> Diagnosis:
    """Whether the record is taken at one step independently of others: covariances along it, with less without."""
    rows = []
    for side in (without, with_record):
        parts = (side.outputs * signal.direction).reshape(len(side.outputs), signal.rounds, -1).sum(axis=2)
        centred = parts - parts.mean(axis=0)
        rows.append(centred.sum(axis=1) ** 2 - np.sum(centred**2, axis=1))
    more = float(rows[1].mean() - rows[0].mean())
    z, degrees = welch(*rows)
    p = 2 * float(student.sf(abs(z), degrees))
    wrong = p < risk
    measured = "no sign that the record's steps depend on each other"
    if wrong:
        sign = "more" if more > 0 else "less"
        measured = f"where the record moves the sum at one step it moves it {sign} at others"
    return answer(
        "steps",
        measured=measured,
        causes=("batch_again", "carried_over") if more > 0 else ("turns", "taken_back"),
        p_value=p,
        risk=risk,
        assumes="means of many trials are normal",
        estimate=more,
    )
