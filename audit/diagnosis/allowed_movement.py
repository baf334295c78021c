"""How far the claim allows the record to move a release, and how far it does, without knowledge of the code."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from audit.bounds.supporting_lines import tabulate
from audit.diagnosis.cause_sentences import answer, noise_deviations
from audit.diagnosis.explain.dispatch import positive
from audit.diagnosis.noise import Array
from audit.diagnosis.signal import Signal
from audit.power.less_noise import sampled
from audit.power.power import noise_at
from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import AuditRecord, ClaimPart
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_most, between
from guarantees.trade_off import TradeOff

CLOSE = 1e-3
"""Relative difference of two stated numbers that is rounding."""
FEWEST = 10
"""Fewest outputs per side in each half."""
LOOKS_NORMAL = 2.5
"""Skewness and kurtosis within so many standard errors look normal."""


def is_pure(claim: ClaimPart) -> bool:
    """Whether the claim is of pure epsilon, as for counts and answers."""
    none = claim.name == "epsilon_delta" and not claim.parameters.get("delta")
    return none or claim.name in ("laplace", "randomised_response")


def normal_movement_allowed(claim: ClaimPart, *, delta: float) -> float:
    """Largest movement by the record, in deviations of normal noise, that keeps the claim: mu where that is claimed.

    Unit normals ``s`` deviations apart have total variation ``2 Phi(s / 2) - 1``, which must not exceed the claim's
    advantage, and at the record's delta the epsilon of ``s``-GDP, which must not exceed the claim's.
    """
    by_advantage = float(2 * ndtri((1 + claim.advantage) / 2)) if claim.advantage < 1 else float("inf")
    # normal noise never keeps a pure epsilon, so that only the advantage limits the movement
    if is_pure(claim) or not claim.epsilon or not np.isfinite(claim.epsilon) or delta <= 0:
        return by_advantage
    (noise,) = noise_at(np.array([claim.epsilon]), delta)
    return min(by_advantage, float(1 / noise))


def any_movement_allowed(claim: Claim | TradeOff) -> float:
    """Largest distance, in deviations, between the means of any function of a release that keeps the claim.

    With ``M = (P + Q)/2`` and ``D = 1/2 int (p - q)^2 / (p + q)``, Cauchy and Schwarz give a difference of means of at
    most ``2 sqrt(D Var_M)``, where ``Var_M`` is the mean variance plus a quarter of that difference squared: in units
    of the root mean variance it is at most ``2 sqrt(D / (1 - D))``. D is an f-divergence, largest for the claimed curve
    itself; a pure epsilon allows ``2 sinh(epsilon / 2)``. The curve is taken to be straight between many points, which
    costs less than ``CLOSE`` of it.
    """
    lines = tabulate(claim)
    order = np.lexsort((-lines.y, lines.x))
    without = np.diff(lines.x[order], prepend=0.0, append=1.0)
    with_record = np.maximum(-np.diff(lines.y[order], prepend=1.0, append=0.0), 0.0)
    total = without + with_record
    positive = total > 0
    divergence = float(np.sum((without - with_record)[positive] ** 2 / total[positive]) / 2)
    return (1 + CLOSE) * 2 * math.sqrt(divergence / (1 - divergence)) if divergence < 1 else math.inf


def looks_normal(values: Array) -> bool:
    """Whether skewness and kurtosis are those of normal numbers, at a level that other laws hardly pass."""
    standard = (values - values.mean()) / values.std()
    skew, kurtosis = np.mean(standard**3), np.mean(standard**4) - 3
    return bool(max(abs(skew) / np.sqrt(6 / len(values)), abs(kurtosis) / np.sqrt(24 / len(values))) < LOOKS_NORMAL)


def moves_more_than_allowed(
    first: Array,
    second: Array,
    *,
    whatever: float,
    normal: float,
    risk: float,
    rate: float = 1.0,
    adds: bool = False,
) -> Diagnosis:
    """Whether the means of both sides are more noise deviations apart than the claim allows.

    ``whatever`` is the distance that the claim allows any release, ``normal`` one with normal noise, which counts where
    the noise looks normal on both sides. One half of the outputs chooses a direction (mean difference over variance,
    coordinate by coordinate), and the other half is projected on it; for a single number both directions are paid for.
    The interval holds for many trials; other directions may show more. ``rate`` is the claim's sampling rate; ``adds``
    says that one dataset of the pair has a record more.
    """
    half = min(len(first), len(second)) // 2
    require("outputs", half >= FEWEST, f"{2 * FEWEST} per side or more", len(first))
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    variances = sum(side[:half].var(axis=0) for side in sides)
    apart = sides[1][:half].mean(axis=0) - sides[0][:half].mean(axis=0)
    scale = np.where(variances > 0, variances, 1.0)
    weights = np.where(variances > 0, apart / scale, 0.0)
    one_number = weights.size == 1
    without, with_record = (side[0 if one_number else half : 2 * half] @ weights for side in sides)
    if one_number and with_record.mean() < without.mean():
        without, with_record = -without, -with_record
    deviation = float(np.sqrt((without.var(ddof=1) + with_record.var(ddof=1)) / 2))
    require("outputs", deviation > 0, "noisy: along the learned direction they do not vary", deviation)
    moved = float(with_record.mean() - without.mean()) / deviation
    # influence of each trial on the ratio of mean difference to deviation, to first order
    centred = [(side - side.mean()) / deviation for side in (without, with_record)]
    influences = [sign * deviate - moved / 4 * deviate**2 for sign, deviate in zip((-1, 1), centred, strict=True)]
    error = float(
        np.sqrt(sum(influence.var() for influence in influences) / len(without))
        * ndtri(1 - risk / (2 + 2 * one_number))
    )
    is_normal = normal < whatever and looks_normal(without) and looks_normal(with_record)
    allowed = normal if is_normal else whatever
    wrong = moved - error > allowed
    says = "" if one_number else "along the direction that was learned, "
    says += f"the record moves the release by {noise_deviations(moved)}"
    says += f" ({between(max(moved - error, 0.0), moved + error, '.2g')})"
    if one_number:
        means, spreads = ([f"{of(side):.3g}" for side in sides] for of in (np.mean, np.std))
        says += f", from mean {means[0]} and deviation {spreads[0]} to mean {means[1]} and deviation {spreads[1]}"
    if math.isfinite(allowed):
        says += f", and the claim allows {at_most(allowed)}"
        says += " if the noise is normal, as it looks" if is_normal else ""
        says += "" if wrong else ", which is not shown to be exceeded"
    causes = ["too little noise", "a record that counts for more than its bound"]
    causes += ["a divisor that depends on the number of records"] if adds else []
    causes += [f"a record that is sampled more often than at the claim's rate of {rate:.4g}"] if rate < 1 else []
    learned = "" if one_number else ", and a direction learned from other outputs"
    listed = f"{', '.join(causes[:-1])}, or {causes[-1]}, among others"
    return Diagnosis(
        code="moves_more_than_allowed",
        question="does the record move the release by more noise deviations than the claim allows?",
        wrong=wrong,
        says=f"{says}: {listed}." if wrong else f"{says}.",
        risk=risk,
        assumes=f"{'normal noise, ' if is_normal else ''}many trials{learned}",
        estimate=moved,
        interval=(moved - error, moved + error),
    )


def claim_exceeds_stated(
    record: AuditRecord,
    clip: float | None,
    noise_multiplier: float | None,
    rate: float,
    signal: Signal,
    *,
    shown: str = "its outputs show",
) -> tuple[Diagnosis, ...]:
    """Whether the claim promises more than the stated settings give, where outputs are as stated; by arithmetic alone.

    Without sampling: the record's clipped length over the noise's deviation, against ``normal_movement_allowed``. With
    sampling: the claim's rate and noise multiplier against those stated. ``shown`` completes 'as far as' with what the
    outputs were compared with.

    """
    if clip is None or noise_multiplier is None or not positive(record.mechanism.parameters.get("noise_multiplier")):
        return ()
    promised = sampled(record.claim)
    if promised is not None:
        exceeds = noise_multiplier < (1 - CLOSE) * promised.noise_multiplier or rate > (1 + CLOSE) * promised.rate
        comparison = f"the stated noise multiplier is {noise_multiplier:g} at rate {rate:g}, and the claim is for "
        comparison += f"{promised.noise_multiplier:g} at {promised.rate:g}"
    else:
        moved = signal.length / (clip * noise_multiplier)
        allowed = normal_movement_allowed(record.claim, delta=record.report_delta)
        exceeds = rate == 1 and record.claim.times == 1 and moved > (1 + CLOSE) * allowed
        comparison = f"as stated, the record of this pair may move the release by {moved:.3g} times the deviation "
        comparison += f"of its noise, and the claim allows {at_most(allowed)}"
    if not exceeds:
        return ()
    return (
        answer(
            "claim",
            wrong=True,
            measured=f"the implementation does what is stated, as far as {shown}; the claim promises more than "
            f"that: {comparison}",
            risk=0.0,
            assumes="the code does what is stated; no trial tests it",
        ),
    )
