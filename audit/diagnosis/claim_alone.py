"""What can be asked of code that tells nothing of itself: how far the record moves the release, beside the claim."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from audit.diagnosis.noise import Array
from audit.power.power import noise_at
from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import ClaimPart
from guarantees.checks import require

FEWEST = 10
"""Outputs per side in each half."""


PURE = ("laplace", "randomised_response")
"""Claims that no normal noise keeps, beside epsilons at delta 0: only their advantage says how far is allowed."""


def allowed_deviations(claim: ClaimPart, *, delta: float) -> float:
    """How many noise deviations the record may move a release with normal noise: mu, where the claim is Gaussian.

    Unit normals ``s`` deviations apart have total variation ``2 Phi(s / 2) - 1``, which must not exceed the claim's
    advantage, and at the record's delta the epsilon of ``s``-GDP, which must not exceed the claim's.
    """
    by_advantage = float(2 * ndtri((1 + claim.advantage) / 2)) if claim.advantage < 1 else float("inf")
    pure = claim.name in PURE or (claim.name == "epsilon_delta" and not claim.parameters.get("delta"))
    if claim.name == "laplace" and claim.times == 1:
        # Laplace noise keeps it where the record moves the release by epsilon scales; its deviation is sqrt(2) scales
        return max(by_advantage, float(claim.parameters["epsilon"]) / float(np.sqrt(2)))
    if pure or not claim.epsilon or not np.isfinite(claim.epsilon) or delta <= 0:
        return by_advantage
    (noise,) = noise_at(np.array([claim.epsilon]), delta)
    return min(by_advantage, float(1 / noise))


def moves_more_than_allowed(first: Array, second: Array, *, allowed: float, risk: float) -> Diagnosis:
    """How many noise deviations lie between the means of both sides, and how many the claim allows.

    One half of the outputs chooses the direction (mean difference over variance, coordinate by coordinate), the other
    half is projected on it. The interval is the usual normal one for a standardised difference of means; other
    directions may show more.
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
    return Diagnosis(
        code="moves_more_than_allowed",
        question="does the record move the release by more noise deviations than the claim allows?",
        wrong=more,
        says=f"{says}: too little noise, or a record that counts for more than its bound."
        if more
        else f"{says}: not too much.",
        p_value=1.0,
        risk=risk,
        assumes="normal noise, and a direction learned from other outputs",
        estimate=moved,
        interval=(moved - error, moved + error),
    )
