"""What can be asked of code that tells nothing of itself: how far the record moves the release, beside the claim."""

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
"""By which two numbers of a promise may differ: rounding."""
FEWEST = 10
"""Outputs per side in each half."""
LOOKS_NORMAL = 2.5
"""Standard errors of skewness and kurtosis within which noise looks normal."""


def is_pure(claim: ClaimPart) -> bool:
    """Whether a pure epsilon is claimed, as of counts and answers."""
    none = claim.name == "epsilon_delta" and not claim.parameters.get("delta")
    return none or claim.name in ("laplace", "randomised_response")


def allowed_to_normal(claim: ClaimPart, *, delta: float) -> float:
    """How many deviations of its noise the record may move a release whose noise is normal: mu, if that is claimed.

    Unit normals ``s`` deviations apart have total variation ``2 Phi(s / 2) - 1``, which must not exceed the claim's
    advantage, and at the record's delta the epsilon of ``s``-GDP, which must not exceed the claim's.
    """
    by_advantage = float(2 * ndtri((1 + claim.advantage) / 2)) if claim.advantage < 1 else float("inf")
    # no normal noise keeps a pure epsilon: only its advantage says how far is allowed
    if is_pure(claim) or not claim.epsilon or not np.isfinite(claim.epsilon) or delta <= 0:
        return by_advantage
    (noise,) = noise_at(np.array([claim.epsilon]), delta)
    return min(by_advantage, float(1 / noise))


def allowed_to_any(claim: Claim | TradeOff) -> float:
    """How many deviations lie at most between the means of any function of a release that keeps the claim.

    With ``M = (P + Q)/2`` and ``D = 1/2 int (p - q)^2 / (p + q)``, Cauchy and Schwarz say that the difference of means
    is at most ``2 sqrt(D Var_M)``, and ``Var_M`` is the mean variance and a quarter of that difference squared: so
    over the root of the mean variance it is at most ``2 sqrt(D / (1 - D))``. D is an f-divergence, largest for the
    claimed curve itself; a pure epsilon allows ``2 sinh(epsilon / 2)``. Between the many points where lines touch it
    the curve is taken to be straight, which costs less than ``CLOSE`` of it.
    """
    lines = tabulate(claim)
    order = np.lexsort((-lines.y, lines.x))
    without = np.diff(lines.x[order], prepend=0.0, append=1.0)
    with_record = np.maximum(-np.diff(lines.y[order], prepend=1.0, append=0.0), 0.0)
    both = without + with_record
    pieces = both > 0
    divergence = float(np.sum((without - with_record)[pieces] ** 2 / both[pieces]) / 2)
    return (1 + CLOSE) * 2 * math.sqrt(divergence / (1 - divergence)) if divergence < 1 else math.inf


def looks_normal(values: Array) -> bool:
    """Whether skewness and kurtosis are those of normal numbers, at a level at which other laws hardly pass."""
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
    """How many noise deviations lie between the means of both sides, and how many the claim allows.

    ``whatever`` is what it allows any release, ``normal`` one whose noise is normal, which counts where the noise looks
    so on both sides. One half of the outputs chooses the direction (mean difference over variance, coordinate by
    coordinate), the other half is projected on it; one number has two directions, and both are paid for. The interval
    is that of many trials; other directions may show more. ``rate`` is that at which the claim takes a record, where it
    samples; ``adds`` says that one dataset of the pair has a record more.
    """
    half = min(len(first), len(second)) // 2
    require("outputs", half >= FEWEST, f"{2 * FEWEST} per side or more", len(first))
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    spread = sum(side[:half].var(axis=0) for side in sides)
    apart = sides[1][:half].mean(axis=0) - sides[0][:half].mean(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    weights = np.where(spread > 0, apart / scale, 0.0)
    one_number = weights.size == 1
    without, with_record = (side[0 if one_number else half : 2 * half] @ weights for side in sides)
    if one_number and with_record.mean() < without.mean():
        without, with_record = -without, -with_record
    deviation = float(np.sqrt((without.var(ddof=1) + with_record.var(ddof=1)) / 2))
    require("outputs", deviation > 0, "noisy: along the learned direction they do not vary", deviation)
    moved = float(with_record.mean() - without.mean()) / deviation
    # what one trial more or less changes, to first order, by mean and variance
    centred = [(side - side.mean()) / deviation for side in (without, with_record)]
    changes = [sign * own - moved / 4 * own**2 for sign, own in zip((-1, 1), centred, strict=True)]
    error = float(np.sqrt(sum(own.var() for own in changes) / len(without)) * ndtri(1 - risk / (2 + 2 * one_number)))
    is_normal = normal < whatever and looks_normal(without) and looks_normal(with_record)
    allowed = normal if is_normal else whatever
    more = moved - error > allowed
    says = "" if one_number else "along the direction that was learned, "
    says += f"the record moves the release by {noise_deviations(moved)}"
    says += f" ({between(max(moved - error, 0.0), moved + error, '.2g')})"
    if one_number:
        means, spreads = ([f"{of(side):.3g}" for side in sides] for of in (np.mean, np.std))
        says += f", from mean {means[0]} and deviation {spreads[0]} to mean {means[1]} and deviation {spreads[1]}"
    if math.isfinite(allowed):
        says += f", and the claim allows {at_most(allowed)}"
        says += " if the noise is normal, as it looks" if is_normal else ""
        says += "" if more else ", which is not shown to be exceeded"
    causes = ["too little noise", "a record that counts for more than its bound"]
    causes += ["a divisor that depends on the number of records"] if adds else []
    causes += [f"a record that is sampled more often than at the claim's rate of {rate:.4g}"] if rate < 1 else []
    learned = "" if one_number else ", and a direction learned from other outputs"
    listed = f"{', '.join(causes[:-1])}, or {causes[-1]}, among others"
    return Diagnosis(
        code="moves_more_than_allowed",
        question="does the record move the release by more noise deviations than the claim allows?",
        wrong=more,
        says=f"{says}: {listed}." if more else f"{says}.",
        risk=risk,
        assumes=f"{'normal noise, ' if is_normal else ''}many trials{learned}",
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
    ``allowed_to_normal``. With sampling: the claim's own rate and noise multiplier against those told. ``shown`` ends
    'as far as', by what the outputs were compared with what was told.
    """
    if clip is None or noise_multiplier is None or not positive(record.mechanism.parameters.get("noise_multiplier")):
        return ()
    promised = sampled(record.claim)
    if promised is not None:
        more = noise_multiplier < (1 - CLOSE) * promised.noise_multiplier or rate > (1 + CLOSE) * promised.rate
        told = f"the stated noise multiplier is {noise_multiplier:g} at rate {rate:g}, and the claim is for "
        told += f"{promised.noise_multiplier:g} at {promised.rate:g}"
    else:
        moved = signal.length / (clip * noise_multiplier)
        allowed = allowed_to_normal(record.claim, delta=record.report_delta)
        more = rate == 1 and record.claim.times == 1 and moved > (1 + CLOSE) * allowed
        told = f"as stated, the record of this pair may move the release by {moved:.3g} times the deviation "
        told += f"of its noise, and the claim allows {at_most(allowed)}"
    if not more:
        return ()
    return (
        answer(
            "claim",
            wrong=True,
            measured=f"the implementation does what is stated, as far as {shown}; the claim promises more than "
            f"that: {told}",
            risk=0.0,
            assumes="the code does what is stated; no trial tests it",
        ),
    )
