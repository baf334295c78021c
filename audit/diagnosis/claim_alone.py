"""What can be asked of code that tells nothing of itself: how far the record moves the release, beside the claim."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.explain.dispatch import positive
from audit.diagnosis.noise import Array
from audit.diagnosis.signal import Signal
from audit.power.less_noise import sampled
from audit.power.power import noise_at
from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import AuditRecord, ClaimPart
from guarantees.checks import require

CLOSE = 1e-3
"""By which two numbers of a promise may differ: rounding."""
FEWEST = 10
"""Outputs per side in each half."""


def is_laplace(claim: ClaimPart) -> bool:
    """Whether the claim is what one release with Laplace noise gives."""
    return claim.name == "laplace" and claim.times == 1


def allowed_deviations(claim: ClaimPart, *, delta: float) -> float:
    """How many noise deviations the record may move a release with normal noise: mu, where the claim is Gaussian.

    With Laplace noise where that is claimed: ``epsilon`` scales, each of which is ``1 / sqrt(2)`` deviations.
    Unit normals ``s`` deviations apart have total variation ``2 Phi(s / 2) - 1``, which must not exceed the claim's
    advantage, and at the record's delta the epsilon of ``s``-GDP, which must not exceed the claim's.
    """
    if is_laplace(claim):
        return float(claim.parameters["epsilon"]) / float(np.sqrt(2))
    by_advantage = float(2 * ndtri((1 + claim.advantage) / 2)) if claim.advantage < 1 else float("inf")
    # no normal noise keeps a pure epsilon: only its advantage says how far is allowed
    pure = claim.name in ("laplace", "randomised_response")
    pure |= claim.name == "epsilon_delta" and not claim.parameters.get("delta")
    if pure or not claim.epsilon or not np.isfinite(claim.epsilon) or delta <= 0:
        return by_advantage
    (noise,) = noise_at(np.array([claim.epsilon]), delta)
    return min(by_advantage, float(1 / noise))


def moves_more_than_allowed(
    first: Array,
    second: Array,
    *,
    allowed: float,
    risk: float,
    law: str = "normal",
    rate: float = 1.0,
    adds: bool = False,
) -> Diagnosis:
    """How many noise deviations lie between the means of both sides, and how many the claim allows.

    One half of the outputs chooses the direction (mean difference over variance, coordinate by coordinate), the other
    half is projected on it. The interval is the usual normal one for a standardised difference of means; other
    directions may show more. ``rate`` is that at which the claim takes a record, where it samples; ``adds`` says that
    one dataset of the pair has a record more.
    """
    half = min(len(first), len(second)) // 2
    require("outputs", half >= FEWEST, f"{2 * FEWEST} per side or more", len(first))
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    spread = sum(side[:half].var(axis=0) for side in sides)
    apart = sides[1][:half].mean(axis=0) - sides[0][:half].mean(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    weights = np.where(spread > 0, apart / scale, 0.0)
    without, with_record = (side[half : 2 * half] @ weights for side in sides)
    deviation = float(np.sqrt((without.var(ddof=1) + with_record.var(ddof=1)) / 2))
    require("outputs", deviation > 0, "noisy: along the learned direction they do not vary", deviation)
    moved = float(with_record.mean() - without.mean()) / deviation
    error = float(np.sqrt(2 / half + moved**2 / (4 * half)) * ndtri(1 - risk / 2))
    more = moved - error > allowed
    says = f"along the direction that was learned, the record moves the release by {moved:.2g} noise deviations"
    says += f" ({max(moved - error, 0.0):.2g} to {moved + error:.2g}), and the claim allows {allowed:.2g}"
    causes = ["too little noise", "a record that counts for more than its bound"]
    causes += ["a divisor that reads the number of records"] if adds else []
    causes += [f"a record that is taken more often than at the claim's rate of {rate:.4g}"] if rate < 1 else []
    listed = f"{', '.join(causes[:-1])}, or {causes[-1]}"
    return Diagnosis(
        code="moves_more_than_allowed",
        question="does the record move the release by more noise deviations than the claim allows?",
        wrong=more,
        says=f"{says}: {listed if more else 'not too much'}.",
        p_value=1.0,
        risk=risk,
        assumes=f"{law} noise, and a direction learned from other outputs",
        estimate=moved,
        interval=(moved - error, moved + error),
    )


def beyond_what_was_told(
    record: AuditRecord,
    clip: float | None,
    noise_multiplier: float | None,
    rate: float,
    signal: Signal,
    *,
    shown: str = "its outputs show",
) -> tuple[Diagnosis, ...]:
    """Where the outputs are as told: whether the claim promises more than that, by arithmetic alone.

    Without sampling: the record may move the sum by its clipped length, over the noise's deviation, against
    ``allowed_deviations``. With sampling: the claim's own rate and noise multiplier against those told. ``shown`` ends
    'as far as', by what the outputs were compared with what was told.
    """
    if clip is None or noise_multiplier is None or not positive(record.mechanism.parameters.get("noise_multiplier")):
        return ()
    promised = sampled(record.claim)
    if promised is not None:
        more = noise_multiplier < (1 - CLOSE) * promised.noise_multiplier or rate > (1 + CLOSE) * promised.rate
        told = f"noise multiplier {noise_multiplier:g} at rate {rate:g} was told, and the claim is for "
        told += f"{promised.noise_multiplier:g} at {promised.rate:g}"
    else:
        moved = signal.length / (clip * noise_multiplier)
        allowed = allowed_deviations(record.claim, delta=record.report_delta)
        more = rate == 1 and record.claim.times == 1 and moved > (1 + CLOSE) * allowed
        told = f"with what was told the record of this pair may move the release by {moved:.3g} deviations of its noise"
        told += f", and the claim allows {allowed:.3g}"
    if not more:
        return ()
    return (
        answer(
            "claim",
            wrong=True,
            measured=f"the implementation does what was told, as far as {shown}; the claim promises more than "
            f"that: {told}",
            p_value=1.0,
            risk=0.0,
            assumes="the code does what was told; no trial tests it",
        ),
    )
