"""Hints about code that is not shown to break its claim: which questions its outputs are asked, which answers count."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from audit.diagnosis.all_questions import drawn_in_time
from audit.diagnosis.allowed_movement import normal_movement_allowed
from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.coordinate_names import places
from audit.diagnosis.explain.dispatch import promised
from audit.diagnosis.noise import Array
from audit.diagnosis.noise_ends import noise_ends_early
from audit.diagnosis.rank import NO_NOISE
from audit.diagnosis.same_seeds import Movements, moves_too_far, took_no_part
from audit.diagnosis.scale import SAME_LENGTH
from audit.diagnosis.stated_noise import KnownStep
from audit.diagnosis.step_noise import AGAIN
from audit.diagnosis.step_noise import CODE as STEP_NOISE
from audit.power.less_noise import sampled
from audit.record.diagnosis_answer import LAWS, NO_HINTS, STILL, Diagnosis
from audit.record.record import AuditRecord
from audit.trials.both_sides import BothSides
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

JOINED = 24
"""Runs on the same seed in which the record takes part."""
TRIALS_PER_PAIR = 4
"""Fewest planned trials for each pair of such runs."""
OFTEN = 0.02
"""Share of numbers from which on a value is one that releases are cut to."""
FEWEST_ROWS = 20
"""Fewest releases in which cuts are sought."""
SQUARED = (1e-18, 1e18)
"""Range of numbers whose squares fit single precision: right code may take the gradients of others for zero."""
ABOUT_VALUES = ("bare", "repeated", "silent")
"""Questions about values that repeat or are zero, as they properly are in a release that was rounded or cut."""
ABOUT_LENGTH = ("ratio", "rate")
"""Questions that compare the record's movement with the length of its gradient."""
ABOUT_NOISY_SUMS = (
    *("ratio", "rate", "batches", "steps", "noise_and_batches", "scale_by_trial", "scale_by_record"),
    *("step_noise", "step_moves", "told_noise"),
)
"""Questions that take the release for a sum plus noise, which it is not if it was bent, rounded or cut."""


def is_noisy_sum(answers: Sequence[Diagnosis]) -> bool:
    """Whether the noise was found to have its stated law, so that nothing seems to be done to the release after it.

    Noise that is smaller on some coordinates still has that law.
    """
    laws = [found.wrong and found.follows != "told_noise" for found in answers if found.code in LAWS]
    return bool(laws) and not any(laws)


def is_cut(first: Array, second: Array) -> bool:
    """Whether releases seem rounded or cut: half of the numbers repeat one value, or many have the greatest length.

    Releases that are zero throughout are left out.
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


def hints_among(
    answers: Sequence[Diagnosis], *, cut: bool = False, step: KnownStep | None = None
) -> tuple[Diagnosis, ...]:
    """The 'wrong' answers that right code never gives; fewer where the release may not be a sum plus noise.

    A record that moves the sum too far for its own gradient, but not for one ``step.room`` times as long, breaks
    no bound; nor do batches that vary beside a claim without sampling. That a step repeats an earlier one is a hint
    whatever the law of the noise; other steps that earlier ones predict may be averaged or scheduled weights.
    """
    skipped = NO_HINTS if is_noisy_sum(answers) and not cut else (*NO_HINTS, *ABOUT_NOISY_SUMS)
    skipped += ABOUT_VALUES if cut else ()
    if step is not None and step.stated is not None:
        ratios = [found.interval for found in answers if found.code == "ratio" and found.interval]
        covered = any(high * step.room >= 1 for _, high in ratios)
        skipped += (*(ABOUT_LENGTH if covered else ()), *(("batches",) if step.stated.rate == 1 else ()))
    repeated_steps = [found for found in answers if found.causes == AGAIN and not cut]
    return tuple(
        found
        for found in answers
        if found.wrong and not found.follows and (found in repeated_steps or _is_hint(found, skipped))
    )


def _is_hint(found: Diagnosis, skipped: Iterable[str]) -> bool:
    """Whether a 'wrong' answer is given as a hint; ``skipped`` are codes that are not."""
    if found.code == STEP_NOISE and not found.causes:
        return False
    # scales may differ from tensor to tensor: little noise on some is no hint, no noise is
    partly_bare = found.code == "bare" and (found.estimate or 0.0) >= NO_NOISE
    return found.code not in skipped and not partly_bare


def compare_on_same_seeds(
    record: AuditRecord,
    neighbours: Neighbours,
    sides: BothSides,
    drawn: Sequence[Array],
    *,
    step: KnownStep | None,
    key: jax.Array,
    risk: float,
    deadline: float | None,
) -> tuple[Diagnosis, ...]:
    """Hints from equal seeds: does the record take part, how far does it move one step, and does its noise end.

    ``drawn`` are other outputs of both sides; ``step`` holds the gradients, if they are known. The questions
    share the risk.
    """
    sampling = sampled(record.claim)
    rate = 1.0 if sampling is None else sampling.rate
    most = record.trials_planned // TRIALS_PER_PAIR
    pairs = min(most, math.ceil(JOINED / rate))
    try:
        outputs = drawn_in_time(sides, (key, key), pairs, deadline=deadline)
    except TimeoutError:
        return ()
    if np.array_equal(*outputs) and pairs < most:
        # code that samples, beside a claim that does not say so, may seldom take the record
        with contextlib.suppress(TimeoutError):
            outputs = drawn_in_time(sides, (key, key), most, deadline=deadline)
    first, second = (side.reshape(len(side), -1) for side in outputs)
    steps = 1 if sampling is None else sampling.steps
    no_part = took_no_part(first, second, rate=1 - (1 - rate) ** steps, risk=risk / 3)
    one_step = record.releases in ("", "update") and record.claim.times == steps == 1
    if sampling is not None and record.releases == "transcript" and np.ndim(drawn[0]) == 3:
        # before the first step nothing differs but the record; later ones start from other weights
        first, second, drawn, one_step = outputs[0][:, 0], outputs[1][:, 0], [side[:, 0] for side in drawn], True
    if no_part is not None:
        return () if _has_no_square(neighbours) else (no_part,)
    if not one_step or neighbours.relation == "substitution" or neighbours.group != 1:
        return ()
    movements = Movements.of(first, second, rate=rate)
    if movements is None:
        return ()
    allowed = normal_movement_allowed(record.claim, delta=record.report_delta)
    allowed = allowed if sampling is None else 1 / sampling.noise_multiplier
    if step is not None and step.signal.dimension != first.shape[1]:
        step = None
    hint = moves_too_far(movements, drawn[0], allowed=allowed, rate=rate, step=step, risk=risk / 3)
    if hint is None and promised(record.claim):
        hint = noise_ends_early(movements, drawn, allowed=allowed, step=step, risk=risk / 3)
    return () if hint is None else (hint,)


def _has_no_square(neighbours: Neighbours) -> bool:
    """Whether the record is not zero but has no length in single precision."""
    if not isinstance(neighbours.with_record, np.ndarray | jax.Array):
        return False
    largest = float(np.max(np.abs(neighbours.with_record[neighbours.index])))
    return largest != 0 and not SQUARED[0] < largest < SQUARED[1]


def constant_coordinates(
    first: Array, second: Array, *, layout: Layout, step: KnownStep | None = None
) -> Diagnosis | None:
    """Answer naming coordinates with one value in all trials of both sides, beside others of their tensor that vary.

    They may be constant by design, as whole tensors may: they are called wrong only where gradients are known to reach
    them.
    """
    rows = np.concatenate([np.asarray(side).reshape(len(side), -1) for side in (first, second)])
    still = np.all(rows == rows[0], axis=0)
    # a value that other coordinates often have comes from a cut after the noise
    cut_values = [value for value in np.unique(rows[0, still]) if np.mean(rows[:, ~still] == value) > OFTEN]
    still &= ~np.isin(rows[0], cut_values)
    suspect = still.reshape(-1, layout.size)
    for part in layout.slices:
        suspect[:, part] &= ~suspect[:, part].all()
    suspect = suspect.ravel()
    if not suspect.any():
        return None
    reached, why = False, "which is right where nothing that the dataset decides is released, and lacks noise elsewhere"
    if step is not None and step.signal.dimension == layout.size:
        touched = (step.signal.others != 0) | (step.signal.moves != 0)
        reached = bool(np.any(suspect.reshape(-1, layout.size) & touched))
    if reached:
        why = "though gradients are told of that part: it lacks noise, or these are not the gradients that are released"
    varies = "varies: it has" if np.count_nonzero(suspect) == 1 else "vary: each has"
    return answer(
        "bare" if reached else STILL,
        wrong=reached,
        measured=f"{places(suspect, layout)} never {varies} one value in all {len(rows):,} trials, with the record and "
        f"without it, {why}",
        risk=0.0,
        assumes="nothing: no trial tests it and it decides no verdict",
        estimate=0.0,
    )
