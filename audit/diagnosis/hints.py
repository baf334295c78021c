"""What outputs of code that is not shown to break its claim are asked, and which answers are worth a look."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from audit.diagnosis.all_questions import drawn_in_time
from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.claim_alone import allowed_to_normal
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.explain.dispatch import promised
from audit.diagnosis.noise import Array
from audit.diagnosis.noise_ends import ends
from audit.diagnosis.rank import NO_NOISE
from audit.diagnosis.same_seeds import Movements, moves_too_far, took_no_part
from audit.diagnosis.scale import SAME_LENGTH
from audit.diagnosis.step_noise import AGAIN
from audit.diagnosis.step_noise import CODE as STEP_NOISE
from audit.diagnosis.told_noise import Told
from audit.power.less_noise import sampled
from audit.record.diagnosis_answer import LAWS, NO_HINTS, STILL, Diagnosis
from audit.record.record import AuditRecord
from audit.trials.both_sides import BothSides
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

JOINED = 24
"""Runs on the same seed in which the record takes part."""
OF_TRIALS = 4
"""One pair of such runs for so many planned trials, at most."""
OFTEN = 0.02
"""Share of numbers from which on a value is one to which releases are cut."""
FEWEST_ROWS = 20
SQUARED = (1e-18, 1e18)
"""Numbers in single precision have squares between these: right code may give a record of others no gradient."""
OF_NUMBERS = ("bare", "repeated", "silent")
"""Questions about values that come again, or are zero, as they do and are in a release that was rounded or cut."""
OF_LENGTH = ("ratio", "rate")
"""Questions that compare the record's movement with the length of its own gradient."""
OF_A_SUM = (
    *("ratio", "rate", "batches", "steps", "noise_and_batches", "scale_by_trial", "scale_by_record"),
    *("step_noise", "step_moves", "told_noise"),
)
"""Questions that take the release for a sum and its noise, which it is not if it was bent, rounded or cut."""


def is_noisy_sum(answers: Sequence[Diagnosis]) -> bool:
    """Whether the law of the noise was asked about and is as stated, so that nothing seems to be done after it.

    Noise of which some coordinates have less has no other law than that.
    """
    laws = [found.wrong and found.follows != "told_noise" for found in answers if found.code in LAWS]
    return bool(laws) and not any(laws)


def is_cut(first: Array, second: Array) -> bool:
    """Whether half of the numbers often take one value, or many releases have the greatest length.

    Something after the noise rounds or cuts them then. Releases that are zero throughout are left out.
    """
    rows = np.concatenate([np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)])
    rows = rows[np.any(rows != 0, axis=1)]
    if len(rows) < FEWEST_ROWS:
        return False
    pile = max(int(OFTEN * len(rows)), 2)
    ordered = np.sort(rows, axis=0)
    piled = np.any(ordered[pile:] == ordered[:-pile], axis=0)
    lengths = np.linalg.norm(rows, axis=1)
    longest = np.count_nonzero(lengths > (1 - SAME_LENGTH) * lengths.max())
    return bool(2 * np.count_nonzero(piled) >= len(piled) or longest > pile)


def worth_a_look(answers: Sequence[Diagnosis], *, cut: bool = False, told: Told | None = None) -> tuple[Diagnosis, ...]:
    """The answers 'wrong' that no right code gives; where the release may be no noisy sum, fewer of them.

    A record that moves the sum too far for its own gradient, but not for one ``told.room`` times as long, breaks no
    bound; nor do batches beside a claim of none. That a step adds what an earlier one did needs no law of noise, and
    steps that earlier ones foretell otherwise may be averages of weights, or weights under a schedule.
    """
    skipped = (*NO_HINTS, *(() if is_noisy_sum(answers) and not cut else OF_A_SUM), *(OF_NUMBERS if cut else ()))
    if told is not None and told.stated is not None:
        covered = [one for one in answers if one.code == "ratio" and one.interval and one.interval[1] * told.room >= 1]
        skipped += (*(OF_LENGTH if covered else ()), *(("batches",) if told.stated.rate == 1 else ()))
    again = [found for found in answers if found.causes == AGAIN and not cut]
    return tuple(
        found for found in answers if found.wrong and not found.follows and (found in again or _is_told(found, skipped))
    )


def _is_told(found: Diagnosis, skipped: Iterable[str]) -> bool:
    if found.code == STEP_NOISE and not found.causes:
        return False
    # scales may differ from tensor to tensor: only where there is no noise at all is it missing
    some = found.code == "bare" and (found.estimate or 0.0) >= NO_NOISE
    return found.code not in skipped and not some


def on_same_seeds(
    record: AuditRecord,
    neighbours: Neighbours,
    sides: BothSides,
    drawn: Sequence[Array],
    *,
    told: Told | None,
    key: jax.Array,
    risk: float,
    deadline: float | None,
) -> tuple[Diagnosis, ...]:
    """Whether the record takes part, how far it moves one step, and whether noise that it moves ends.

    ``drawn`` are outputs of both sides; ``told`` is what is known of the gradients. The questions share the risk.
    """
    of_batches = sampled(record.claim)
    rate = 1.0 if of_batches is None else of_batches.rate
    most = record.trials_planned // OF_TRIALS
    pairs = min(most, math.ceil(JOINED / rate))
    try:
        pair = drawn_in_time(sides, (key, key), pairs, deadline=deadline)
    except TimeoutError:
        return ()
    if np.array_equal(*pair) and pairs < most:
        # code that samples, beside a claim that does not say so, may seldom take the record
        with contextlib.suppress(TimeoutError):
            pair = drawn_in_time(sides, (key, key), most, deadline=deadline)
    first, second = (side.reshape(len(side), -1) for side in pair)
    steps = 1 if of_batches is None else of_batches.steps
    unused = took_no_part(first, second, rate=1 - (1 - rate) ** steps, risk=risk / 3)
    one_step = record.releases in ("", "update") and record.claim.times == steps == 1
    if of_batches is not None and record.releases == "transcript" and np.ndim(drawn[0]) == 3:
        # before the first step nothing differs but the record; later ones start from other weights
        first, second, drawn, one_step = pair[0][:, 0], pair[1][:, 0], [side[:, 0] for side in drawn], True
    if unused is not None:
        return () if _has_no_square(neighbours) else (unused,)
    if not one_step or neighbours.relation == "substitution" or neighbours.group != 1:
        return ()
    found = Movements.of(first, second, rate=rate)
    if found is None:
        return ()
    allowed = allowed_to_normal(record.claim, delta=record.report_delta)
    allowed = allowed if of_batches is None else 1 / of_batches.noise_multiplier
    fits = told is not None and told.signal.dimension == first.shape[1]
    far = moves_too_far(found, drawn[0], allowed=allowed, rate=rate, told=told if fits else None, risk=risk / 3)
    if far is None and promised(record.claim):
        far = ends(found, drawn, allowed=allowed, told=told if fits else None, risk=risk / 3)
    return () if far is None else (far,)


def _has_no_square(neighbours: Neighbours) -> bool:
    """Whether the record is not zero, and has no length in single precision."""
    if not isinstance(neighbours.with_record, np.ndarray | jax.Array):
        return False
    largest = float(np.max(np.abs(neighbours.with_record[neighbours.index])))
    return largest != 0 and not SQUARED[0] < largest < SQUARED[1]


def unvarying(first: Array, second: Array, *, layout: Layout, told: Told | None = None) -> Diagnosis | None:
    """Coordinates that are one number in all trials of both sides, beside others of their tensor that vary.

    A whole tensor may be constant by design, and so may they: they look wrong only where gradients are told of them.
    """
    rows = np.concatenate([np.asarray(side).reshape(len(side), -1) for side in (first, second)])
    still = np.all(rows == rows[0], axis=0)
    # where others often have its value, something after the noise cuts it
    often = [value for value in np.unique(rows[0, still]) if np.mean(rows[:, ~still] == value) > OFTEN]
    still &= ~np.isin(rows[0], often)
    found = still.reshape(-1, layout.size)
    for part in layout.slices:
        found[:, part] &= ~found[:, part].all()
    found = found.ravel()
    if not found.any():
        return None
    reached, why = False, "which is right where nothing that the dataset decides is released, and lacks noise elsewhere"
    if told is not None and told.signal.dimension == layout.size:
        moves = (told.signal.others != 0) | (told.signal.moves != 0)
        reached = bool(np.any(found.reshape(-1, layout.size) & moves))
    if reached:
        why = "though gradients are told of that part: it lacks noise, or these are not the gradients that are released"
    varies = "varies: it has" if np.count_nonzero(found) == 1 else "vary: each has"
    return answer(
        "bare" if reached else STILL,
        wrong=reached,
        measured=f"{places(found, layout)} never {varies} one value in all {len(rows):,} trials, with the record and "
        f"without it, {why}",
        risk=0.0,
        assumes="nothing: no trial tests it and it decides no verdict",
        estimate=0.0,
    )
