"""Both datasets run on the same seeds: whether the record takes part at all, and how far it moves the release."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.claim_alone import looks_normal
from audit.diagnosis.noise import Array
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import chi2
from guarantees.numerics.rounding import at_least, at_most

FEWEST = 8
"""Runs in which the record moves the release, for its movement to be known."""
EQUAL = 1e-4
"""Share of the longest movement by which two may differ and be one: outputs are rounded."""
ONCE = 0.25
"""Share of movements that may come once."""
BENT = 1.1
"""Factor by which noise of other trials may be larger than it looks where some movements come once."""
ERRORS = 4.0
"""Standard errors within which the record joins as many batches as are due."""


def took_no_part(without: Array, with_record: Array, *, rate: float, risk: float) -> Diagnosis | None:
    """Whether outputs of the same seeds are equal bit for bit, though the record joins each batch at this rate."""
    chance = (1 - rate) ** len(without)
    if chance >= risk or not np.array_equal(without, with_record):
        return None
    return answer(
        "no_part",
        wrong=True,
        measured=f"the record changes nothing: on each of {len(without)} seeds the release is the same, bit for bit, "
        "with the record and without it. So these trials say nothing about the code: check that it reads the dataset "
        "that it is given, and that the record has a gradient",
        p_value=chance,
        risk=risk,
        assumes=f"the record joins a batch with probability {rate:g}",
    )


def moves_too_far(
    without: Array, with_record: Array, drawn: Array, *, allowed: float, rate: float, risk: float
) -> Diagnosis | None:
    """Whether the record moves the release further than ``allowed``, in deviations of what varies along that way.

    Where the other draws stay the same, the difference of two outputs of one seed is what the record adds, and zero
    where it is not in the batch. Noise never gives one difference twice: those which come again have none, and
    nothing that is done after the noise bends them. Where some come once, what bends those may shrink the noise of
    all, by less than ``BENT``. Along the longest, outputs without the record, ``drawn`` for themselves, vary by the
    noise and the batch: no less than by the noise, so that ``(n - 1) s^2 allowed^2 / d^2`` is at least chi-square.
    Nothing is said where the record does not join batches at the stated rate, or outputs do not look normal.
    """
    moved = np.asarray(with_record, np.float64) - without
    taken = moved[np.any(moved != 0, axis=1)]
    due = rate * len(moved)
    if len(taken) < FEWEST or abs(len(taken) - due) > ERRORS * math.sqrt(due * (1 - rate)):
        return None
    largest = float(np.abs(taken).max())
    _, places, counts = np.unique(np.round(taken / (EQUAL * largest)), axis=0, return_index=True, return_counts=True)
    once = int(np.count_nonzero(counts == 1))
    if once > ONCE * len(taken) or not math.isfinite(allowed):
        return None
    allowed *= BENT if once else 1.0
    different = taken[places[counts > 1]]
    lengths = np.linalg.norm(different, axis=1)
    farthest = int(np.argmax(lengths))
    along = np.asarray(drawn, np.float64).reshape(len(drawn), -1) @ (different[farthest] / lengths[farthest])
    if not along.std() > 0 or not looks_normal(along):
        return None
    degrees = len(along) - 1
    ratio = float(lengths[farthest] / along.std(ddof=1))
    p = min(1.0, len(different) * float(chi2.cdf(degrees * (allowed / ratio) ** 2, degrees)))
    if ratio <= allowed or p >= risk:
        return None
    batch = "" if rate == 1 else ", when it is in the batch,"
    return answer(
        "same_seeds",
        wrong=True,
        measured=f"with the same seeds the record{batch} moves the release by {at_least(ratio, '.3g')} times the "
        f"deviation of all that varies along its way, and the claim allows {at_most(allowed, '.3g')} times that of "
        "the noise",
        causes=("larger_bound", "clipped_apart", "moves_others", "less_noise", OTHERS),
        p_value=p,
        risk=risk,
        assumes="the same seed gives the same noise and the same batch of other records on both datasets; normal noise",
        estimate=ratio,
    )
