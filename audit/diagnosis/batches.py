"""Whether the sum varies as it must if batches are drawn at the stated rate, independently at every step."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Noise
from audit.diagnosis.sensitivity import Stated, welch_statistic
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student
from guarantees.numerics.rounding import at_least


def batches_vary(without: Noise, with_record: Noise, signal: Signal, stated: Stated, *, risk: float) -> Diagnosis:
    """Whether the sum varies as much as independent draws at the stated rate must make it.

    Without the record, for any gradients, the sum along a direction has mean ``q sum(a)`` and, beside the noise,
    variance ``q (1 - q) sum(a^2) >= mean^2 (1 - q) / (q N)`` by Cauchy's inequality. At rate 1 that variance is zero,
    also along the record's gradient.
    """
    rate = stated.rate
    side, direction = (without, signal.others) if rate < 1 else (with_record, signal.moves)
    length = float(np.linalg.norm(direction))
    assumes = "equal noise in all directions; sums of many trials are normal"
    if length == 0:
        zero = "the gradients' sum is zero"
        return answer("batches", wrong=False, measured=zero, p_value=1.0, risk=risk, assumes=assumes)
    sums = side.outputs @ (direction / length)
    # noise may have a mean of its own: expect no more than the gradients' sum gives at the noise's scale
    mean = min(abs(float(sums.mean())), rate * length * math.sqrt(side.variance) / stated.deviation)
    centred = sums - sums.mean()
    excess = float(centred.var(ddof=1)) - side.variance
    relative_variance = (1 - rate) / (rate * signal.records)
    excess_by_trial = centred**2 - side.sizes**2 - 2 * mean * relative_variance * centred
    error = max(float(excess_by_trial.std(ddof=1)) / math.sqrt(len(excess_by_trial)), 1e-300)
    shortfall = mean**2 * relative_variance - excess
    p = float(special.ndtr(-(shortfall if rate < 1 else -shortfall) / error))
    wrong = p < risk
    measured = "the sum varies no less than if batches are drawn at the stated rate"
    if wrong:
        measured = (
            f"the sum varies less from trial to trial than if records are drawn at rate {rate:g} (a variance of "
            f"{max(excess, 0.0):.3g}, at least {at_least(mean**2 * relative_variance)} is expected)"
            if rate < 1
            else f"the sum varies from trial to trial (a variance of {excess:.3g} beside the noise) where every record "
            "is taken"
        )
    causes_of_less = ("fixed_batches", "sum_clipped", "sum_scaled", "less_along", "noise_of_batch")
    return answer(
        "batches",
        measured=measured,
        causes=causes_of_less if rate < 1 else ("counted_at_random", "more_along"),
        p_value=p,
        risk=risk,
        assumes=assumes,
        estimate=max(excess, 0.0),
    )


def at_no_stated_rate(found: Diagnosis) -> Diagnosis:
    """Turn an answer at rate 1 into a remark where no rate is stated: a training that samples does vary."""
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
    """Whether the record is taken independently at every step, so that it leaves covariances of steps unchanged."""
    covariances = []
    for side in (without, with_record):
        parts = (side.outputs * signal.direction).reshape(len(side.outputs), signal.rounds, -1).sum(axis=2)
        centred = parts - parts.mean(axis=0)
        covariances.append(centred.sum(axis=1) ** 2 - np.sum(centred**2, axis=1))
    difference = float(covariances[1].mean() - covariances[0].mean())
    z, degrees = welch_statistic(*covariances)
    p = 2 * float(student.sf(abs(z), degrees))
    wrong = p < risk
    measured = "no sign that the record's steps depend on each other"
    if wrong:
        sign = "more" if difference > 0 else "less"
        measured = f"where the record moves the sum at one step it moves it {sign} at others"
    return answer(
        "steps",
        measured=measured,
        causes=("batch_again", "carried_over") if difference > 0 else ("turns", "taken_back"),
        p_value=p,
        risk=risk,
        assumes="means of many trials are normal",
        estimate=difference,
    )
