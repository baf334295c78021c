"""What to know of an answer without a violation: a direction that was only learned, too few trials."""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

from audit.record.record import AuditRecord, ClaimPart

POWER = 0.8


def only_learned(record: AuditRecord) -> bool:
    """Whether every judged score was learned from fit trials, without the record's gradient."""
    names = [grid.member for grid in record.grids]
    return bool(names) and all(name.startswith("learned") and name != "learned record" for name in names)


def learned_note(record: AuditRecord) -> str:
    """Says so, and how many trials would find half the noise missing; empty where a direction was known."""
    if record.verdict == "violation" or not only_learned(record):
        return ""
    trials = half_noise_trials(record.claim, risk=record.shares.get("verdict", record.risk))
    found = (
        ""
        if trials is None
        else f" Along a known one about {trials:,} trials notice that half of the noise is missing;"
    )
    more = f"{found} a learned one needs more." if found else ""
    return (
        f"the direction in which the record moves the release was only learned, from {record.fit_trials:,} fit "
        f"trials.{more} To make it known, pass gradients= (or loss= for torch_training and jax_training)."
    )


def trials_note(record: AuditRecord) -> str:
    """Where a direction was known: how many trials would find half the noise missing, if these are fewer."""
    if record.verdict == "violation" or not record.drawn or only_learned(record):
        return ""
    trials = half_noise_trials(record.claim, risk=record.shares.get("verdict", record.risk))
    if trials is None or record.trials >= trials:
        return ""
    return (
        f"half of the noise missing takes about {trials:,} trials to find, and more where a batch of other records "
        f"hides the record; these are {record.trials:,}."
    )


def half_noise_trials(claim: ClaimPart, *, risk: float) -> int | None:
    """Trials in all at which a test with the advantage of half the noise refutes the claim with power 0.8, nearly.

    The claim's advantage ``2 Phi(mu / 2) - 1`` gives its mu, and half the noise doubles it; of one sampled step the
    rate multiplies both. Two error rates of ``p`` each, with normal limits at half the risk, refute an advantage ``a``
    if ``2 p + 2 z sqrt(p (1 - p) / n) + 2 / n < 1 - a``.
    """
    rate = claim.parameters.get("rate", 1.0) if claim.name == "subsampled_gaussian" else 1.0
    one = claim.advantage / rate
    if not 0 < one < 1:
        return None
    more = rate * (2 * float(ndtr(2 * float(ndtri((1 + one) / 2)))) - 1)
    p, margin = (1 - more) / 2, more - claim.advantage
    reach = 2 * float(ndtri(1 - risk / 2)) + math.sqrt(2) * float(ndtri(POWER))
    # exact limits lie about 1/n above normal ones, each
    return 2 * math.ceil(p * (1 - p) * (reach / margin) ** 2 + 2 / margin)
