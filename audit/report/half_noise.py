"""How many trials find half of the noise missing, for the judged claim and a mechanism that breaks it."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from scipy.special import ndtr, ndtri

from audit.power.joint_power import FEW_TRIALS, jointly_refuting
from audit.power.less_noise import LEVELS, Sampled, is_found, sampled
from audit.power.power import MOST_TRIALS, refuting
from audit.record.record import AuditRecord, ClaimPart, Curve
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.kept import kept
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff

SMALLEST = 1e-9
"""Smallest false-alarm rate at which a Gaussian mechanism must keep the claim."""

CORNERS = 100
"""A recorded curve with more distinct points than this counts as smooth."""


def half_noise_trials(record: AuditRecord) -> int | None:
    """Total trials for a test along a known direction to refute the record's claim with power 0.8, roughly.

    The mechanism that leaks has half the noise of one that just keeps the claim: batches as the claim samples them
    where it says how, a Laplace mechanism for a pure epsilon, otherwise a Gaussian one. It is judged as the record's
    policy does, at the risk of its verdict. None where no feasible number would do, or nothing is promised.
    """
    return _trials(
        record.claim.curve,
        promised=sampled(record.claim),
        pure=_pure(record.claim),
        risk=_deciding(record),
        jointly=_jointly(record),
    )


@functools.lru_cache(maxsize=256)
def _trials(curve: Curve, *, promised: Sampled | None, pure: float | None, risk: float, jointly: bool) -> int | None:
    leak = _leak(curve, promised=promised, pure=pure)
    if leak is None:
        return None
    claimed, test = _recorded(curve), jointly_refuting if jointly else refuting

    def searched() -> int:
        low, high = FEW_TRIALS, 2 * FEW_TRIALS
        while not is_found(test, claimed, leak, trials_per_side=high, risk=risk):
            low, high = high, 2 * high
            if high > MOST_TRIALS:
                return 0
        while high - low > low // 50:
            middle = (low + high) // 2
            enough = is_found(test, claimed, leak, trials_per_side=middle, risk=risk)
            low, high = (low, middle) if enough else (middle, high)
        return 2 * high

    found = kept(
        f"trials that find half the noise, {test.__name__}",
        (np.array(curve.alpha), np.array(curve.beta), leak, risk),
        searched,
        holds=lambda trials: isinstance(trials, int) and trials >= 0 and trials % 2 == 0,
        package="audit",
    )
    return found or None


def _leak(curve: Curve, *, promised: Sampled | None, pure: float | None) -> Array | None:
    """Miss rates of the best tests at half the noise; None if the claim promises nothing or forbids all."""
    if pure is not None:
        return _laplace(2 * pure) if pure > 0 else None
    if promised is not None:
        return promised.missed(promised.noise_multiplier / 2)
    mu = _mu(curve)
    return ndtr(-ndtri(LEVELS) - 2 * mu) if 0 < mu < np.inf else None


def _laplace(epsilon: float) -> Array:
    """Miss rates of the Laplace mechanism. [dong2022, section 2]"""
    steep = 1 - np.exp(epsilon) * LEVELS
    middle = np.exp(-epsilon) / (4 * LEVELS)
    flat = np.exp(-epsilon) * (1 - LEVELS)
    return np.where(np.exp(-epsilon) / 2 > LEVELS, steep, np.where(LEVELS <= 0.5, middle, flat))


def _mu(curve: Curve) -> float:
    """The largest mu whose Gaussian mechanism keeps the claim, up to the false-alarm rate at which it allows most."""
    alpha, beta = np.array(curve.alpha), np.array(curve.beta)
    best = alpha[int(np.argmin(alpha + beta))]
    if not SMALLEST < best < 1:
        return 0.0
    levels = np.unique(np.concatenate([alpha, *_along_lines(alpha)]))
    levels = levels[(levels >= SMALLEST) & (levels <= best)]
    missed = np.interp(levels, alpha, beta)
    return float(np.min(-ndtri(levels) - ndtri(missed)))


def _along_lines(alpha: Array) -> list[Array]:
    """Rates along the straight pieces of a curve of few corners; the chords of a smooth one lie above it."""
    if len(np.unique(alpha)) > CORNERS:
        return []
    ends = np.maximum(alpha, SMALLEST)
    return [np.geomspace(low, high, 200) for low, high in itertools.pairwise(ends) if high > 10 * low]


def _recorded(curve: Curve) -> TradeOff:
    """The claim's curve as recorded, with straight lines between its points."""
    without, with_record = np.diff(curve.alpha), -np.diff(curve.beta)
    without = np.append(np.insert(without, 0, curve.alpha[0]), 1 - curve.alpha[-1])
    with_record = np.append(np.insert(with_record, 0, 1 - curve.beta[0]), curve.beta[-1])
    held = (without > 0) | (with_record > 0)
    without, with_record = without[held], with_record[held]
    with np.errstate(divide="ignore"):
        losses = np.log(with_record) - np.log(without)
    order = np.argsort(losses, kind="stable")
    return TradeOff(DiscreteLaw(atoms=losses[order], without=without[order], with_record=with_record[order]))


def _pure(claim: ClaimPart) -> float | None:
    """The epsilon promised at delta 0, which no Gaussian mechanism keeps."""
    given = claim.parameters
    if claim.name in ("laplace", "randomised_response") and claim.times == 1:
        return float(given["epsilon"])
    if claim.name == "epsilon_delta" and given["delta"] == 0 and claim.times == 1:
        return float(given["epsilon"])
    if claim.name == "claim_from_table":
        return min((float(epsilon) for epsilon, delta in given["points"] if delta == 0), default=None)
    return None


def _jointly(record: AuditRecord) -> bool:
    """Whether the joint test of both error counts decides, and not a rectangle."""
    return record.budget.verdict > 0 and not record.stops_early


def _deciding(record: AuditRecord) -> float:
    """Risk of the deciding test."""
    if record.budget.verdict == 0:
        return max((point.risk for point in record.points), default=record.risk)
    tests = sum(record.stops_early or point.target == "verdict" for point in record.points)
    return record.budget.verdict / max(1, tests)
