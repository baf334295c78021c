"""Where Laplace noise is claimed: whether the noise is Laplace, and large enough for the movement in the l1 norm."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Array, Noise
from audit.diagnosis.sensitivity import CLOSE, pooled_deviation, shift
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

SAMPLE = 100_000
"""Most draws whose law is tested."""
ALIKE = 5.0
"""Standard errors up to which noise, or its size, is taken to be uncorrelated between numbers."""
MOST_LISTED = 4
"""Most costs that are listed one by one."""
SHARES = {"laplace": (0.5, 0.25), "normal": (2 / math.pi, (4 - 12 / math.pi) * 2 / math.pi)}
"""By law: the square of the mean absolute value over the mean square, and its variance times the number of draws."""


def share_of_law(centred: Array, law: str) -> tuple[float, float]:
    """The square of the noise's mean absolute value over its mean square, and its p-value under a law.

    The share is 1/2 for Laplace noise and 2/pi for normal noise, with variances ``1 / (4 N)`` and ``(4 - 6 s) s / N``
    by the delta method. Centring the n trials of each of two sides takes ``1 / n`` of the mean square.
    """
    rows = centred[:: max(1, centred.size // SAMPLE)]
    share = float(np.mean(np.abs(rows))) ** 2 / float(np.mean(rows**2)) * (1 - 2 / len(centred))
    expected, variance = SHARES[law]
    return share, 2 * float(special.ndtr(-abs(share - expected) * math.sqrt(rows.size / variance)))


def not_laplace(without: Noise, with_record: Noise, *, risk: float) -> Diagnosis:
    """Whether the noise is not Laplace; not asked of rotated coordinates, which are mixtures of several draws."""
    centred = np.concatenate([without.centred, with_record.centred])
    known = bool(np.any(centred)) and not without.rotated
    share, p = share_of_law(centred, "laplace") if known else (SHARES["laplace"][0], 1.0)
    wrong = p < risk
    measured = "a Laplace law fits the noise" if known else "mixtures of coordinates do not show a Laplace law"
    if wrong:
        measured = (
            f"the noise is not Laplace of one scale (its mean absolute value is {math.sqrt(share):.3g} of its root "
            "mean square, and 0.707 is expected)"
        )
    return answer(
        "laplace",
        measured=measured,
        causes=("not_laplace", "uneven", "sum_elsewhere"),
        p_value=p,
        risk=risk,
        assumes="independent coordinates of one scale, many of them",
        estimate=math.sqrt(share),
    )


def l1_ratio(without: Noise, with_record: Noise, signal: Signal | None, *, epsilon: float, risk: float) -> Diagnosis:
    """Whether the Laplace noise is too small for how far the record moves the release in the l1 norm.

    Laplace noise of scale b on every coordinate gives epsilon ``|D|_1 / b``. Along the signs of its gradient the record
    moves the release by ``D sign(u) <= |D|_1``; ``b = s / sqrt(2)`` with s the noise's deviation. Without a signal the
    release is one number, which moves to either side.
    """
    sides = (without, with_record)
    signs = np.ones(1)
    if signal is not None:
        signs = np.sign(np.where(np.abs(signal.direction) > 1e-9, signal.direction, 0.0))
    sums = [side.outputs.astype(np.float64) @ signs for side in sides]
    moved = abs(float(sums[1].mean() - sums[0].mean()))
    moved_error = math.sqrt(sum(float(side_sums.var(ddof=1)) / len(side_sums) for side_sums in sums))
    noise, noise_error = pooled_deviation(*sides)
    scale, scale_error = noise / math.sqrt(2), noise_error / math.sqrt(2)
    allowed, degrees = epsilon * scale, min(map(len, sums)) - 1
    error = max(math.hypot(moved_error, epsilon * scale_error), 1e-300)
    p = min(1.0, 2 * float(student.sf((moved - allowed) / error, degrees)))
    wrong = p < risk
    measured, causes = "the Laplace noise is not shown to be smaller than the movement in the l1 norm needs", ()
    if wrong:
        movement = (
            None if signal is None else shift(*(side.outputs.astype(np.float64) @ signal.basis.T for side in sides))
        )
        norms = "" if movement is None else f" in the l1 norm and by {movement.length:.3g} in the l2 norm"
        measured = (
            f"the record moves the release by {moved:.3g}{norms}; epsilon {epsilon:g} needs Laplace noise of scale "
            f"{moved / epsilon:.3g}, and it has scale {scale:.3g}"
        )
        # that the noise is enough for the l2 norm may be chance, so that the other causes stay
        causes = ("less_noise", "larger_bound", "not_clipped", "counted_again")
        if movement is not None:
            reach = float(student.isf(risk / 2, degrees)) * math.hypot(movement.error, epsilon * scale_error)
            causes = ("l2_for_l1", *causes) if movement.length <= (1 + CLOSE) * allowed + reach else causes
    return answer(
        "l1_ratio",
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes="Laplace noise of one scale; means are normal",
        estimate=allowed / max(moved, 1e-300),
    )


def cost_in_all(without: Noise, with_record: Noise, *, epsilon: float, risk: float) -> Diagnosis | None:
    """Whether independent Laplace noise on several numbers costs more than epsilon in all; None where it is correlated.

    On each number it costs ``|m| / b``, and these add up where the noise is independent. One half of the trials gives
    the signs of m, so that a number that the record does not move adds nothing on average; the other half measures.
    """
    centred = np.concatenate([without.centred, with_record.centred])
    width = centred.shape[1]
    for values in (centred, np.abs(centred)):
        if np.abs(np.corrcoef(values.T) - np.eye(width)).max() > ALIKE / math.sqrt(len(values)):
            return None
    signs, (without_half, with_half) = (
        np.sign(with_record.outputs[::2].mean(axis=0) - without.outputs[::2].mean(axis=0)),
        (side.outputs[1::2].astype(np.float64) for side in (without, with_record)),
    )
    counts = (len(without_half), len(with_half))
    variance = (without_half.var(axis=0, ddof=1) + with_half.var(axis=0, ddof=1)) / 2
    costs = signs * (with_half.mean(axis=0) - without_half.mean(axis=0)) / np.sqrt(variance / 2)
    # of Laplace noise a variance has the relative variance 5 / N, and a scale a quarter of it
    error = math.sqrt(float(np.sum(2 * sum(1 / count for count in counts) + costs**2 * 5 / (4 * sum(counts)))))
    total = float(costs.sum())
    p = float(student.sf((total - epsilon) / error, min(counts) - 1))
    listed = ", ".join(f"{cost:.2g}" for cost in np.sort(costs)[::-1][:MOST_LISTED]) + ", ..." * (width > MOST_LISTED)
    alone = costs.max() <= (1 + CLOSE) * epsilon + 2 * error
    return answer(
        "l1_ratio",
        measured=f"the Laplace noise on {width} numbers costs epsilon {total:.2g} in all ({listed}), and the claim "
        f"allows {epsilon:g}"
        if p < risk
        else "the Laplace noise is not shown to cost more in all than is claimed",
        causes=(*(("spent_on_each",) if alone else ()), "less_noise", "larger_bound", "counted_again"),
        p_value=p,
        risk=risk,
        assumes="Laplace noise that is independent between numbers; means are normal",
        estimate=total,
    )
