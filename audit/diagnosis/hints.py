"""What outputs of code that is not shown to break its claim are asked, and which answers are worth a look."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from audit.diagnosis.all_questions import drawn_in_time
from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.claim_alone import allowed_to_normal
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.noise import Array
from audit.diagnosis.presence import chance_of_equals
from audit.diagnosis.rank import NO_NOISE
from audit.diagnosis.same_seeds import moves_too_far, took_no_part
from audit.power.less_noise import sampled
from audit.record.diagnosis_answer import LAWS, NO_HINTS, Diagnosis
from audit.record.record import AuditRecord
from audit.trials.both_sides import BothSides
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

OF_TRIALS = 40
"""One pair of runs on the same seed for so many planned trials: a twentieth more."""
JOINED = 24
"""Runs in which the record takes part, of those."""
FEWEST_PAIRS = 8
OF_A_SUM = (
    *("ratio", "rate", "batches", "steps", "shared", "noise_and_batches", "scale_by_trial", "scale_by_record"),
    *("step_noise", "step_moves"),
)
"""Questions that take the release for a sum and its noise, which it is not if it was bent, rounded or cut."""


def is_noisy_sum(answers: Sequence[Diagnosis]) -> bool:
    """Whether the law of the noise was asked about and is as stated, so that nothing seems to be done after it."""
    laws = [found.wrong for found in answers if found.code in LAWS]
    return bool(laws) and not any(laws)


def worth_a_look(answers: Sequence[Diagnosis], *, is_sum: bool) -> tuple[Diagnosis, ...]:
    """The answers 'wrong' that no right code gives; where the release may be no noisy sum, fewer of them."""
    skipped = (*NO_HINTS, *(() if is_sum else OF_A_SUM))
    return tuple(found for found in answers if found.wrong and not found.follows and _is_told(found, skipped))


def _is_told(found: Diagnosis, skipped: Iterable[str]) -> bool:
    # scales may differ from tensor to tensor: only where there is no noise at all is it missing
    some = found.code == "bare" and (found.estimate or 0.0) >= NO_NOISE
    return found.code not in skipped and not some


def on_same_seeds(
    record: AuditRecord,
    neighbours: Neighbours,
    sides: BothSides,
    drawn: Array,
    *,
    key: jax.Array,
    risk: float,
    deadline: float | None,
) -> Diagnosis | None:
    """Whether the record takes part, and moves one step no further than the claim allows; ``drawn`` without it."""
    batches = sampled(record.claim)
    rate = 1.0 if batches is None else batches.rate
    pairs = min(record.trials_planned // OF_TRIALS, math.ceil(JOINED / rate))
    if pairs < FEWEST_PAIRS:
        return None
    pair = drawn_in_time(sides, (key, key), pairs, deadline=deadline)
    first, second = (side.reshape(len(side), -1) for side in pair)
    steps = 1 if batches is None else batches.steps
    unused = took_no_part(first, second, rate=1 - (1 - rate) ** steps, risk=risk / 2)
    one_step = record.releases in ("", "update") and record.claim.times == steps == 1
    if batches is not None and record.releases == "transcript" and np.ndim(drawn) == 3:
        # before the first step nothing differs but the record; later ones start from other weights
        first, second, drawn, one_step = pair[0][:, 0], pair[1][:, 0], drawn[:, 0], True
    if unused is not None or not one_step or neighbours.relation == "substitution" or neighbours.group != 1:
        return unused
    allowed = allowed_to_normal(record.claim, delta=record.report_delta)
    allowed = allowed if batches is None else 1 / batches.noise_multiplier
    return moves_too_far(first, second, drawn, allowed=allowed, rate=rate, risk=risk / 2)


def unvarying(first: Array, second: Array, *, layout: Layout) -> Diagnosis | None:
    """Coordinates that are one number in all trials of both sides, beside others of their tensor that vary.

    A whole tensor may be constant by design.
    """
    rows = np.concatenate([np.asarray(side).reshape(len(side), -1) for side in (first, second)])
    still = np.all(rows == rows[0], axis=0)
    found = still.reshape(-1, layout.size)
    for part in layout.slices:
        found[:, part] &= ~found[:, part].all()
    found = found.ravel()
    if not found.any():
        return None
    return answer(
        "bare",
        wrong=True,
        measured=f"{places(found, layout)} never vary: each has one value in all {len(rows):,} trials, with the record "
        "and without it. If the code updates them, their noise is missing",
        p_value=0.0,
        risk=0.0,
        assumes="nothing: no trial tests it and it decides no verdict",
        estimate=0.0,
    )


def repeating(first: Array, second: Array, *, continuous: bool, risk: float) -> Diagnosis | None:
    """Releases that are equal in several trials, or trials that depend on the one before; half of the risk each.

    ``continuous`` noise never gives a release twice; where coordinates are rounded, as often as they say by chance.
    Trials in any order are alike: of three, exchanging the last two changes the sign of the first's product with their
    difference, so ``P(|sum| > z root(sum of squares)) <= 2 exp(-z^2 / 2)``, whatever the law. [hoeffding1963]
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    rows = np.concatenate(sides)
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    if continuous and counts.max() > 1 and chance_of_equals(rows) < risk / 2:
        measured = f"trials repeat: {len(counts):,} different releases in {len(rows):,} trials"
        causes: tuple[str, ...] = ("seed_again",)
        if np.count_nonzero(counts > 1) == 1:
            measured = f"one release, number by number, comes in {counts.max():,} of {len(rows):,} trials"
            causes = ("empty_batch", *causes)
        return answer(
            "repeated",
            wrong=True,
            measured=measured,
            causes=causes,
            p_value=0.0,
            risk=risk / 2,
            assumes="continuous noise, as the claim has it",
            estimate=float(len(counts)),
        )
    spread = rows.std(axis=0)
    products = np.concatenate(
        [_products((side - side.mean(axis=0)) / np.where(spread > 0, spread, 1)) for side in sides]
    )
    z = abs(float(products.sum())) / max(math.sqrt(float(np.sum(products**2))), 1e-300)
    p = min(1.0, 2 * math.exp(-(z**2) / 2))
    if p >= risk / 2:
        return None
    return answer(
        "repeated",
        wrong=True,
        measured="successive trials depend on each other, and an audit takes them for independent",
        causes=("kept_state",),
        p_value=p,
        risk=risk / 2,
        assumes="nothing but trials in an order that says nothing",
    )


def _products(rows: Array) -> Array:
    triples = rows[: len(rows) // 3 * 3].reshape(-1, 3, rows.shape[1])
    return np.sum(triples[:, 0] * (triples[:, 1] - triples[:, 2]), axis=1)
