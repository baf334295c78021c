"""After a verdict, add what looks wrong to the record.

After a violation a few hundred outputs are tested and the code is replayed. After any other verdict the code is
replayed too (JAX code of few equations in about a second); where it cannot be, the judged outputs are tested with the
same questions, and what looks wrong in them is recorded as a hint.

"""

from __future__ import annotations

import dataclasses
import sys
import time
import warnings
from collections.abc import Sequence

import jax
import numpy as np

from audit.diagnosis.all_questions import diagnose
from audit.diagnosis.allowed_movement import claim_exceeds_stated
from audit.diagnosis.case import SHARE_OF_LATER_STEPS, Case, follows_steps
from audit.diagnosis.cause_sentences import consequence
from audit.diagnosis.constant_release import constant_release, never_varied
from audit.diagnosis.explain.dispatch import positive, stated_by
from audit.diagnosis.explain.in_records import has_lines, line_answers
from audit.diagnosis.hints import compare_on_same_seeds, constant_coordinates, hints_among, is_cut
from audit.diagnosis.noise import Array
from audit.diagnosis.outputs_and_claim import compare_with_claim, first_step
from audit.diagnosis.pair_gradients import gradients_of, takes_loss, without_gradients, without_noise_alone
from audit.diagnosis.rank import NO_NOISE, blame_sampling, withdraw_right_answers
from audit.diagnosis.signal import read_signal
from audit.diagnosis.stated_noise import KnownStep, less_noise_than_stated
from audit.diagnosis.stated_settings import (
    FIRST_STEP,
    SEVERAL_STEPS,
    adds_noise,
    rate_is_stated,
    rows_may_be_steps,
    stated_law,
    stated_numbers,
    stated_steps,
    what_to_state,
)
from audit.diagnosis.step_noise import every_step_has_noise
from audit.diagnosis.trials_alike import trials_alike
from audit.record.diagnosis_answer import DEPENDENT, NO_LINE, NOT_TOLD, REPLAY, Diagnosis, not_asked
from audit.record.direction import direction
from audit.record.record import AuditRecord
from audit.trials.both_sides import Auditable, BothSides, both_sides, is_foreign
from audit.trials.keys import audit_keys
from audit.trials.user_code_errors import contained
from guarantees.claim import Claim
from mechanisms.pairs.gradient_pairs import GradientsError, made_of_gradients
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

OF_TIME = 0.1
"""Share of the audit's time that a hint may spend on drawing further outputs."""
SHORTEST = 2.0
"""Smallest such time in seconds: on a busy machine a tenth of a short audit would be too little."""
DRAWN_AGAIN = 8
"""Trials that are drawn again before trials are said to depend on each other."""
EXPLAINED_BY_LESS_NOISE = frozenset({"bare", "batches", "laplace", "normal", "ratio"})
"""Codes of 'wrong' answers that are explained if some coordinates have less noise."""
EQUAL_TRIALS = ("silent", "repeated")
"""Codes of answers that already say that trials are equal, and more."""
MAKES_REDUNDANT = {"silent": "repeated", "told_noise": "same_seeds"}
"""Hint codes, each with one that adds nothing to it: trials without noise are equal, and little noise covers little."""


def explain(
    record: AuditRecord,
    mechanism: Auditable,
    neighbours: Neighbours,
    *,
    key: jax.Array,
    deadline: float | None = None,
    sides: BothSides | None = None,
    read_as: Neighbours | None = None,
    claim: Claim | None = None,
) -> AuditRecord:
    """Add diagnoses to a record; its verdict, bounds and p-value stay as they are.

    The diagnoses share a fifth of a risk as large as the record's. For traced code they draw fresh outputs with a key
    of their own. Foreign code, where every output may be a whole training, is diagnosed on the judged outputs: then the
    risk is the probability of a violation and a false answer together, and says nothing about false answers among
    violations. A diagnosis that fails says so in its place and never costs the record. Without a violation only
    suspicious lines of code, or hints, are added.

    ``sides`` are those that the audit drew from; ``read_as`` is the pair of gradients that its scores read, if there is
    one; ``claim`` is the record's claim with its curve: without it releases are compared with what the claim allows
    normal noise alone.
    """
    if record.diagnoses:
        return record
    began = time.monotonic()
    case = Case(
        record=record,
        mechanism=mechanism,
        neighbours=neighbours,
        key=key,
        deadline=deadline,
        sides=both_sides(mechanism, neighbours) if sides is None else sides,
        claim=claim,
    )
    if case.broken:
        answers = _diagnose_outputs(case, read_as)
        lines, as_stated = _lines(case)
        answers = blame_sampling(answers) if as_stated else withdraw_right_answers(answers, lines)
        # of trials that depend on each other nothing is proven, in either direction
        ordered = any(answer.code == DEPENDENT for answer in answers)
        if mechanism.gradients_told is not None and not any(answer.wrong for answer in (*answers, *lines)):
            answers = (*_rows_may_be_steps(case), *answers)
        answers = (*answers, *lines) if ordered else (*lines, *answers, direction(record))
    else:
        answers = _without_violation(case, read_as)
    environment = {**record.environment, **({REPLAY: NO_LINE.says} if NO_LINE in answers else {})}
    answers, seconds = (
        tuple(answer for answer in answers if answer != NO_LINE),
        record.seconds + time.monotonic() - began,
    )
    return dataclasses.replace(record, diagnoses=answers, environment=environment, seconds=seconds)


def _rows_may_be_steps(case: Case) -> tuple[Diagnosis, ...]:
    """Remark that the rows of a release may be steps; none where the code does not run."""
    try:
        return rows_may_be_steps(case.record, case.sides.layout())
    except Exception:
        # that the code fails is reported elsewhere
        return ()


def _diagnose_outputs(case: Case, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    """Answers of all questions about outputs of code that broke its claim."""
    try:
        with contained():
            dependent = _dependence(case, risk=case.extra_risk) if is_foreign(case.mechanism) else None
            if dependent is not None and dependent.code == DEPENDENT:
                return (dependent,)
            answers = _with_later_steps(case, _answers(case, read_as))
            if dependent is not None and not any(answer.wrong and answer.code in EQUAL_TRIALS for answer in answers):
                return (
                    dependent,
                    *(consequence(answer, dependent.code) if answer.wrong else answer for answer in answers),
                )
            tested = any(answer.risk > 0 for answer in answers)
            if any(answer.wrong for answer in answers) or not tested or not is_foreign(case.mechanism):
                return answers
            drawn = case.outputs(case.sides.layout().entries)
            return (
                *_on_same_seeds(_with_short_deadline(case), _known_step(case, read_as), drawn, risk=case.extra_risk),
                *answers,
            )
    except Exception as error:
        lines = str(error).strip().splitlines()
        return (not_asked(f"{type(error).__name__}: {lines[0] if lines else 'no message'}"),)


def _dependence(case: Case, *, risk: float) -> Diagnosis | None:
    """Answer whether trials repeat or depend on each other: if so, no other question means anything."""
    try:
        first, second = case.outputs(case.sides.layout().entries)
    except Exception:
        # the other questions report why outputs cannot be drawn
        return None
    found = trials_alike(
        first,
        second,
        continuous=stated_law(case.record) != "any",
        cut=is_cut(first, second),
        plus_noise=adds_noise(case.record.claim),
        risk=risk,
    )
    return None if found is not None and found.code == DEPENDENT and _same_in_another_order(case, first) else found


def _same_in_another_order(case: Case, drawn: Array) -> bool:
    """Whether the first trials, drawn again from the last to the first, come out as before: nothing is kept."""
    key = audit_keys(case.key).without
    try:
        again = [case.sides.piece("without", key, n, n + 1, size=1)[0] for n in reversed(range(DRAWN_AGAIN))]
    except Exception:
        return False
    return all(np.array_equal(np.ravel(one), np.ravel(other)) for one, other in zip(again[::-1], drawn, strict=False))


def _without_violation(case: Case, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    """Suspicious lines from a replay, if that is cheap beside the trials; of code that is not replayed, hints."""
    record, mechanism = case.record, case.mechanism
    if never_varied(record):
        return constant_release(case.sides, case.diagnosis_key, case.deadline)
    lines: tuple[Diagnosis, ...] = ()
    # a function that has drawn its trials has imported what it uses
    if has_lines(mechanism) and (mechanism.tracer != "torch" or "torch" in sys.modules):
        with warnings.catch_warnings():
            # the same warnings were shown while the trials were drawn
            warnings.simplefilter("ignore")
            lines, _ = _lines(case, brief=True)
    wrong = tuple(answer for answer in lines if answer.wrong)
    clean = tuple(answer for answer in lines if answer == NO_LINE)
    if wrong or not is_foreign(mechanism):
        # where nothing is wrong, ``lines`` says whether and how far the code was replayed
        return wrong or lines
    try:
        with contained():
            hints = _hints(_with_short_deadline(case), read_as)
    except Exception:
        return clean
    first_by_code: dict[str, Diagnosis] = {}
    for hint in hints:
        first_by_code.setdefault(hint.code, hint)
    return (*first_by_code.values(), *clean)


def _with_short_deadline(case: Case) -> Case:
    """The case with a deadline that leaves little more time than the questions need."""
    deadline = time.monotonic() + max(SHORTEST, OF_TIME * case.record.seconds)
    return dataclasses.replace(case, deadline=deadline if case.deadline is None else min(deadline, case.deadline))


def _hints(case: Case, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    """Hints from the outputs of code that is not shown to break its claim."""
    layout, risk = case.sides.layout(), case.share * case.record.risk
    dependent = _dependence(case, risk=risk / 2)
    if dependent is not None and dependent.code == DEPENDENT:
        return (dependent,)
    first, second = case.outputs(layout.entries)
    cut = is_cut(first, second)
    step = _known_step(case, read_as)
    on_same_seeds = _on_same_seeds(case, step, (first, second), risk=risk / 2)
    found = (
        constant_coordinates(first, second, layout=layout, step=step),
        dependent,
        *(hint for hint in on_same_seeds if not cut or hint.code == "no_part"),
    )
    try:
        answers = (
            _answers(case, read_as) if _gradients_stated(case) else compare_with_claim(case, case.risk, whole=False)
        )
        answers = _with_later_steps(case, answers)
    except Exception:
        # a failure here must not cost the hints that were already found
        answers = ()
    looks_wrong = hints_among(answers, cut=cut, step=step)
    codes = {hint.code for hint in looks_wrong}
    redundant = {MAKES_REDUNDANT[code] for code in codes & MAKES_REDUNDANT.keys()}
    return (*(hint for hint in found if hint is not None and hint.code not in redundant), *looks_wrong)


def _gradients_stated(case: Case) -> bool:
    """Whether mechanism or pair say what the gradients are: rows as long as a release need not be gradients."""
    return bool(case.mechanism.gradients_told or made_of_gradients(case.neighbours))


def _on_same_seeds(case: Case, step: KnownStep | None, drawn: Sequence[Array], *, risk: float) -> tuple[Diagnosis, ...]:
    """Hints from running both datasets on the same seeds."""
    return compare_on_same_seeds(
        case.record,
        case.neighbours,
        case.sides,
        drawn,
        step=step,
        key=case.diagnosis_key,
        risk=risk,
        deadline=case.deadline,
    )


def _known_step(case: Case, read_as: Neighbours | None) -> KnownStep | None:
    """What is known of one step, its gradients and settings; None where they do not fit the release."""
    if not _gradients_stated(case):
        return None
    try:
        return _step_with_settings(case, gradients_of(case, read_as))
    except ValueError:
        return None


def _step_with_settings(case: Case, gradients: Neighbours) -> KnownStep:
    """One step with these gradients and the settings that the record states."""
    clip, noise_multiplier, rate = stated_numbers(case.record)
    return KnownStep.of(gradients, clip=clip, noise_multiplier=noise_multiplier, rate=rate, divisor=case.divisor)


def _lines(case: Case, *, brief: bool = False) -> tuple[tuple[Diagnosis, ...], bool]:
    """Lines of code that look wrong, or why none was sought; and whether the replay found all as stated."""
    if case.deadline is not None and time.monotonic() >= case.deadline:
        return (), False
    record, neighbours = case.record, case.neighbours
    stated = stated_by(record.claim, record.mechanism.parameters, neighbours)
    return line_answers(case.mechanism, neighbours, key=case.diagnosis_key, stated=stated, brief=brief)


def _answers(case: Case, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    """Answers of all questions about outputs, given what is known of the gradients and the settings."""
    record, mechanism = case.record, case.mechanism
    if mechanism.kind not in ("vector", "transcript"):
        return (not_asked(f"the simulator gives {mechanism.kind} outputs, not full vectors."),)
    if not case.drawn and case.deadline is not None and time.monotonic() >= case.deadline:
        return (not_asked("the time budget ran out."),)
    if _adds_up_steps(record, mechanism):
        return (not_asked(SEVERAL_STEPS, code=NOT_TOLD), *compare_with_claim(case, case.risk, whole=False))
    try:
        gradients = gradients_of(case, read_as)
        signal = read_signal(gradients)
    except (ValueError, GradientsError) as error:
        return without_gradients(case, str(error).rstrip("."))
    if signal.dimension - len(signal.basis) < 2:
        return without_noise_alone(case, signal)
    clip, noise_multiplier, rate = stated_numbers(record)
    rate_known = mechanism.gradients_told is None or rate_is_stated(record)
    layout, (first, second) = case.sides.layout(), case.outputs(signal.dimension)
    shown, remarks = "its outputs show", ()
    if case.rounds > 1:
        first, second = first_step(case, first, second)
        shown, remarks = "its first step shows", (not_asked(FIRST_STEP.format(rounds=case.rounds)),)
        layout = dataclasses.replace(layout, rounds=None)
    # where the noise's size, or that of later steps, is unknown, outputs are compared with the claim as well
    noise_unknown = clip is None and mechanism.gradients_told is not None
    share = case.risk / (2 if noise_unknown or case.rounds > 1 else 1)
    answers = diagnose(
        first,
        second,
        gradients,
        clip=clip,
        noise_multiplier=noise_multiplier,
        rate=rate if rate_known else None,
        risk=share,
        layout=layout,
        law=stated_law(record),
        epsilon=positive(record.claim.parameters.get("epsilon")) if record.claim.times == 1 else None,
        divisor=case.divisor,
    )
    answers += remarks
    if mechanism.gradients_told is not None and clip is not None and noise_multiplier is not None:
        answers = _with_stated_noise(
            answers, first, second, _step_with_settings(case, gradients), layout=layout, risk=case.extra_risk
        )
    if any(answer.wrong for answer in answers):
        return answers
    if not noise_unknown:
        rate_as_claimed = rate_known or not any(answer.code == "batches" and answer.estimate for answer in answers)
        clipped = read_signal(gradients, clip=clip)
        exceeding = (
            claim_exceeds_stated(record, clip, noise_multiplier, rate, clipped, shown=shown) if rate_as_claimed else ()
        )
        later = compare_with_claim(case, share, place=1, whole=False) if case.rounds > 1 and not exceeding else ()
        return (*sorted((*later, *answers), key=lambda answer: not answer.wrong), *exceeding)
    answers += compare_with_claim(case, share, place=1, whole=False)
    if any(answer.wrong for answer in answers):
        return answers
    reason = "how large the noise should be, and what it is compared with, is not known."
    advice = what_to_state(record, gradients=not mechanism.gradients_told, loss=takes_loss(mechanism))
    return (*answers, not_asked(f"{reason} {advice}".rstrip(), code=NOT_TOLD))


def _with_stated_noise(
    answers: tuple[Diagnosis, ...], first: Array, second: Array, step: KnownStep, *, layout: Layout, risk: float
) -> tuple[Diagnosis, ...]:
    """The answers, led by the one about the stated noise unless something is wrong that less noise does not explain."""
    unexplained = [answer for answer in answers if answer.wrong and not answer.follows]
    bare = any(answer.code == "bare" and (answer.estimate or 0.0) < NO_NOISE for answer in unexplained)
    wrong = {answer.code for answer in unexplained}
    if bare or not wrong <= EXPLAINED_BY_LESS_NOISE:
        return answers
    scale = less_noise_than_stated(first, second, step, layout=layout, risk=risk)
    if scale is None or not (wrong <= {"batches"} or "less_on_some" in scale.causes):
        return answers
    return (scale, *(consequence(answer, scale.code) if answer.wrong else answer for answer in answers))


def _with_later_steps(case: Case, answers: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """The answers and, for a transcript whose gradients depend on earlier steps, one about the noise of every step."""
    if case.rounds == 1:
        return answers
    outputs = case.outputs(case.sides.layout().entries)
    risk = SHARE_OF_LATER_STEPS * case.share * case.record.risk
    unexplained = case.broken and not any(answer.wrong for answer in answers)
    steps = every_step_has_noise(*outputs, rounds=case.rounds, risk=risk, unexplained=unexplained)
    if not steps.wrong:
        return (*answers, steps)
    # the answer "claim" says that the code does what is stated, which is then untrue
    return (steps, *(answer for answer in answers if answer.code != "claim"))


def _adds_up_steps(record: AuditRecord, mechanism: Auditable) -> bool:
    """Whether one output sums several steps, or an unknown number, whose gradients may depend on earlier steps."""
    return follows_steps(mechanism) and record.releases == "final" and stated_steps(record) != 1
