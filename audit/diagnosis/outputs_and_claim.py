"""What is asked of outputs where nobody tells more of the code than its claim does."""

from __future__ import annotations

import math

import numpy as np

from audit.diagnosis.allowed_movement import any_movement_allowed, moves_more_than_allowed, normal_movement_allowed
from audit.diagnosis.case import Case
from audit.diagnosis.cause_sentences import answer
from audit.diagnosis.clear_coordinates import clear_coordinates
from audit.diagnosis.cut_noise import cut_noise
from audit.diagnosis.explain.dispatch import positive
from audit.diagnosis.noise import Array
from audit.diagnosis.noise_and_batches import SHARE as NOISE_OF_BATCHES
from audit.diagnosis.noise_and_batches import noise_follows_record
from audit.diagnosis.presence import bare_values
from audit.diagnosis.stated_settings import adds_noise, stated_law
from audit.diagnosis.step_moves import step_moves
from audit.diagnosis.telling_event import takes_few_values, telling_event
from audit.diagnosis.whole_release import diagnose_whole_release
from audit.power.less_noise import Sampled, sampled
from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import ClaimPart


def compare_with_claim(case: Case, risk: float, *, place: int = 0, whole: bool = True) -> tuple[Diagnosis, ...]:
    """What needs nothing but outputs and the claim; beside what is clear noise is not measured.

    Where the ``whole`` release is a number of the data plus noise, by its claim, its noise is asked about. The interval
    of the last question has two sides and only one of them accuses: it has twice its share.
    """
    try:
        layout = case.sides.layout()
    except Exception:
        # what the code cannot read is said already
        return ()
    try:
        first, second = case.outputs(layout.entries, place=place)
        claim = case.record.claim
        batches, whole = sampled(claim), whole and adds_noise(claim)
        aside = NOISE_OF_BATCHES * risk if batches is not None and not whole else 0.0
        share = (risk - aside) / (2 + whole + (case.rounds > 1) + case.broken)
        clear = clear_coordinates(first, second, advantage=claim.advantage, layout=layout, risk=share / 2)
        clear = clear or cut_noise(first, second, risk=share)
        clear = clear or bare_values(first, second, layout=layout, risk=share)
        if clear is not None:
            return (clear,)
        limits = {"epsilon": claim.epsilon, "delta": case.record.report_delta}
        event = telling_event(first, second, **limits, risk=share) if case.broken else None
        if event is not None and takes_few_values(first, second):
            # of such a release means and deviations say little
            return (event,)
        epsilon = positive(claim.parameters.get("epsilon"))
        noise = (
            diagnose_whole_release(first, second, law=stated_law(case.record), epsilon=epsilon, risk=share)
            if whole
            else ()
        )
        if any(found.wrong for found in noise):
            return noise
        moved = moves_more_than_allowed(
            first,
            second,
            whatever=math.inf if case.claim is None else any_movement_allowed(case.claim),
            normal=normal_movement_allowed(claim, delta=case.record.report_delta),
            risk=2 * share,
            rate=batches.rate if batches is not None else 1.0,
            adds=case.neighbours.relation == "add_remove",
        )
        steps = _one_by_one(case, first, second, batches, risk=share)
        # of a later step that moves too far more is known than of all steps together
        if steps is not None and "other_steps" in steps.causes:
            return (steps, *noise)
        if moved.wrong:
            return (moved, *noise)
        # what later steps add follows the noise of earlier ones
        one = case.rounds > 1 or (batches is not None and batches.steps == 1)
        together = noise_follows_record(*first_step(case, first, second), risk=aside) if aside and one else None
        beside = [found for found in (steps, together) if found is not None]
        if case.broken and not any(found.wrong for found in beside):
            event = event or whole_numbers(first, second, claim)
            beside = beside if event is None else [event, *beside]
        return (*beside, moved, *noise)
    except (ValueError, TimeoutError):
        # too few came in time, or they do not vary
        return ()


def whole_numbers(first: Array, second: Array, claim: ClaimPart) -> Diagnosis | None:
    """Where Laplace noise is claimed of whole numbers, and nothing else looks wrong: which claim discrete noise keeps.

    Two-sided geometric noise of a pure epsilon gives likelihood ratios of ``exp(-epsilon)`` and ``exp(epsilon)`` alone,
    which tell the sides apart better than those of Laplace noise, in between.
    """
    if claim.name != "laplace" or any(np.any(side != np.round(side)) for side in (first, second)):
        return None
    return answer(
        "whole_numbers",
        wrong=True,
        measured="the release takes whole numbers, and laplace is the curve of continuous noise, which discrete noise "
        "of the same epsilon does not keep. If a pure epsilon is promised, which no release is shown to break, claim "
        f"randomised_response(epsilon={claim.parameters.get('epsilon'):g})",
        risk=0.0,
        assumes="nothing: no trial tests it and it decides no verdict",
    )


def _one_by_one(case: Case, first: Array, second: Array, batches: Sampled | None, *, risk: float) -> Diagnosis | None:
    """Of a transcript: whether a step shows more than the claim allows one; all of it, where it names no step."""
    if case.rounds == 1 or case.claim is None:
        return None
    of_a_step = case.claim if batches is None else batches.one_step(batches.noise_multiplier)
    return step_moves(first, second, rounds=case.rounds, allowed=any_movement_allowed(of_a_step), risk=risk)


def first_step(case: Case, *sides: Array) -> tuple[Array, Array]:
    """Of a transcript whose later gradients nobody knows; another release as it is."""
    first, second = (np.asarray(side).reshape(len(side), case.rounds, -1)[:, 0] for side in sides)
    return first, second
