"""Questions about outputs where nothing is known of the code but its claim."""

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
    """Answers that need only outputs and the claim; if some coordinates carry no noise, the noise is not measured.

    ``whole`` allows questions about the noise of the whole release, if the claim says that it is a number of the data
    plus noise. The interval of the movement has two sides, of which only one accuses: it has twice the share of the
    risk.
    """
    try:
        layout = case.sides.layout()
    except Exception:
        # that the code fails is reported elsewhere
        return ()
    try:
        first, second = case.outputs(layout.entries, place=place)
        claim = case.record.claim
        batches, whole = sampled(claim), whole and adds_noise(claim)
        batch_risk = NOISE_OF_BATCHES * risk if batches is not None and not whole else 0.0
        share = (risk - batch_risk) / (2 + whole + (case.rounds > 1) + case.broken)
        clear_answer = clear_coordinates(first, second, advantage=claim.advantage, layout=layout, risk=share / 2)
        clear_answer = clear_answer or cut_noise(first, second, layout=layout, risk=share)
        clear_answer = clear_answer or bare_values(first, second, layout=layout, risk=share)
        if clear_answer is not None:
            return (clear_answer,)
        limits = {"epsilon": claim.epsilon, "delta": case.record.report_delta}
        event = telling_event(first, second, **limits, layout=layout, risk=share) if case.broken else None
        if event is not None and takes_few_values(first, second):
            # means and deviations say little about such a release
            return (event,)
        # what later steps are given depends on the noise of earlier ones, so that no law is due for them
        epsilon = positive(claim.parameters.get("epsilon")) if case.rounds == 1 else None
        law, one_step = stated_law(case.record), first_step(case, first, second)
        noise = (
            diagnose_whole_release(*one_step, broken=case.broken, law=law, epsilon=epsilon, layout=layout, risk=share)
            if whole
            else ()
        )
        if any(found.wrong for found in noise):
            return noise
        movement = moves_more_than_allowed(
            first,
            second,
            whatever=math.inf if case.claim is None else any_movement_allowed(case.claim),
            normal=normal_movement_allowed(claim, delta=case.record.report_delta),
            risk=2 * share,
            rate=batches.rate if batches is not None else 1.0,
            adds=case.neighbours.relation == "add_remove",
        )
        steps = _single_steps(case, first, second, batches, risk=share)
        # a later step that moves too far says more than all steps together
        if steps is not None and "other_steps" in steps.causes:
            return (steps, *noise)
        if movement.wrong:
            return (movement, *noise)
        # what later steps add depends on the noise of earlier ones
        single_step = case.rounds > 1 or (batches is not None and batches.steps == 1)
        correlation = (
            noise_follows_record(*first_step(case, first, second), risk=batch_risk)
            if batch_risk and single_step
            else None
        )
        further = [found for found in (steps, correlation) if found is not None]
        if case.broken and not any(found.wrong for found in further):
            event = event or whole_numbers(first, second, claim)
            further = further if event is None else [event, *further]
        return (*further, movement, *noise)
    except (ValueError, TimeoutError):
        # too few outputs came in time, or they do not vary
        return ()


def whole_numbers(first: Array, second: Array, claim: ClaimPart) -> Diagnosis | None:
    """Remark that a Laplace claim does not hold for whole numbers, and which claim does; None where it does not apply.

    Two-sided geometric noise of a pure epsilon has only the likelihood ratios ``exp(-epsilon)`` and ``exp(epsilon)``,
    which distinguish the sides better than Laplace noise with its ratios in between.
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


def _single_steps(case: Case, first: Array, second: Array, batches: Sampled | None, *, risk: float) -> Diagnosis | None:
    """Whether a step of a transcript moves further than the claim allows a step (or all, if it names no step)."""
    if case.rounds == 1 or case.claim is None:
        return None
    step_claim = case.claim if batches is None else batches.one_step(batches.noise_multiplier)
    return step_moves(first, second, rounds=case.rounds, allowed=any_movement_allowed(step_claim), risk=risk)


def first_step(case: Case, *sides: Array) -> tuple[Array, Array]:
    """First step of a transcript whose later gradients are unknown; any other release is one step."""
    first, second = (np.asarray(side).reshape(len(side), case.rounds, -1)[:, 0] for side in sides)
    return first, second
