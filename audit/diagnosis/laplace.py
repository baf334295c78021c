"""Where Laplace noise is claimed: whether the noise is that, and whether it is as large as the l1 movement needs."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.noise import Noise
from audit.diagnosis.sensitivity import CLOSE, movement
from audit.diagnosis.signal import Signal
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

SAMPLE = 100_000


def not_laplace(without: Noise, with_record: Noise, *, risk: float) -> Diagnosis:
    """Mean absolute value squared over the mean square of the noise: 1/2 for Laplace noise, 2/pi for normal noise.

    With ``|x| / b`` exponential its variance is ``1 / (4 N)`` by the delta method. Centring the n trials of a side
    takes ``1 / n`` of the mean square. Rotated coordinates are mixtures of Laplace noise and say nothing.
    """
    centred = np.concatenate([without.centred, with_record.centred])
    rows = centred[:: max(1, centred.size // SAMPLE)]
    square = float(np.mean(rows**2))
    known = square > 0 and not without.rotated
    share = float(np.mean(np.abs(rows))) ** 2 / square * (1 - 2 / len(centred)) if known else 0.5
    p = 2 * float(special.ndtr(-abs(share - 0.5) * 2 * math.sqrt(rows.size)))
    wrong = p < risk
    measured = "a Laplace law fits the noise" if known else "mixtures of coordinates do not show a Laplace law"
    if wrong:
        measured = (
            f"the noise is not Laplace of one scale (its mean absolute value is {math.sqrt(share):.3g} of its root "
            "mean square, and 0.707 is due)"
        )
    return answer(
        "laplace",
        wrong=wrong,
        measured=measured,
        causes=("not_laplace", "uneven", "sum_elsewhere"),
        p_value=p,
        risk=risk,
        assumes="independent coordinates of one scale, many of them",
        estimate=math.sqrt(share),
    )


def l1_ratio(without: Noise, with_record: Noise, signal: Signal, *, epsilon: float, risk: float) -> Diagnosis:
    """Scale of the noise over how far the record moves the release in the l1 norm, against 1 / epsilon.

    Laplace noise of scale b on every coordinate gives epsilon ``|D|_1 / b``. Along the signs of its gradient the record
    moves the release by ``D sign(u) <= |D|_1``; ``b = s / sqrt(2)`` with s the noise's deviation.
    """
    found = movement(without, with_record, signal)
    signs = np.sign(np.where(np.abs(signal.direction) > 1e-9, signal.direction, 0.0))
    sums = [side.outputs.astype(np.float64) @ signs for side in (without, with_record)]
    moved = abs(float(sums[1].mean() - sums[0].mean()))
    moved_error = math.sqrt(sum(float(own.var(ddof=1)) / len(own) for own in sums))
    scale = found.noise / math.sqrt(2)
    due = epsilon * scale
    error = max(math.hypot(moved_error, epsilon * found.noise_error / math.sqrt(2)), 1e-300)
    p = min(1.0, 2 * float(student.sf((moved - due) / error, found.degrees)))
    wrong = p < risk
    measured, causes = "the Laplace noise is no smaller than the movement in the l1 norm needs", ()
    if wrong:
        far = found.whole.length
        measured = (
            f"the record moves the release by {moved:.3g} in the l1 norm and by {far:.3g} in the l2 norm; epsilon "
            f"{epsilon:g} needs Laplace noise of scale {moved / epsilon:.3g}, and it has scale {scale:.3g}"
        )
        reach = float(student.isf(risk / 2, found.degrees)) * math.hypot(
            found.whole.error, epsilon * found.noise_error / math.sqrt(2)
        )
        enough_in_l2 = far <= (1 + CLOSE) * due + reach
        # that it is enough in the l2 norm may be chance: nothing excludes the others
        others = ("less_noise", "larger_bound", "not_clipped", "counted_again")
        causes = ("l2_for_l1", *others) if enough_in_l2 else others
    return answer(
        "l1_ratio",
        wrong=wrong,
        measured=measured,
        causes=causes,
        p_value=p,
        risk=risk,
        assumes="Laplace noise of one scale; means are normal",
        estimate=due / max(moved, 1e-300),
    )
