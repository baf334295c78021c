"""After a verdict, put what looks wrong into the record.

After a violation by a few hundred outputs and a replay of the code. After another verdict the code is replayed, JAX
code of few equations in about a second; of other code the judged outputs are asked the same questions, and what looks
wrong in them is a hint.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import warnings
from collections.abc import Sequence

import jax

from audit.diagnosis.all_questions import diagnose
from audit.diagnosis.asked import OF_STEPS, Asked, follows_steps
from audit.diagnosis.cause_sentences import consequence
from audit.diagnosis.claim_alone import beyond_what_was_told
from audit.diagnosis.constant_release import constant_release, never_varied
from audit.diagnosis.explain.dispatch import positive, stated_by
from audit.diagnosis.explain.in_records import has_lines, line_answers
from audit.diagnosis.hints import is_cut, on_same_seeds, unvarying, worth_a_look
from audit.diagnosis.noise import Array
from audit.diagnosis.outputs_and_claim import first_step, of_the_claim
from audit.diagnosis.rank import NO_NOISE, rate_first, without_praise
from audit.diagnosis.signal import read_signal
from audit.diagnosis.step_noise import about_steps
from audit.diagnosis.told_by_record import (
    FIRST_STEP,
    SEVERAL_STEPS,
    adds_noise,
    law,
    rate_is_told,
    rows_may_be_steps,
    stated,
    steps_of,
    to_tell,
)
from audit.diagnosis.told_noise import Told, told_noise
from audit.diagnosis.trials_alike import trials_alike
from audit.record.diagnosis_answer import DEPENDENT, NO_LINE, NOT_ASKED, NOT_TOLD, REPLAY, Diagnosis, not_asked
from audit.record.direction import direction
from audit.record.record import AuditRecord
from audit.trials.both_sides import Auditable, BothSides, both_sides, is_foreign
from audit.trials.user_code_errors import contained
from dpsgd_audit.spelling import counted
from guarantees.claim import Claim
from mechanisms.pairs.gradient_pairs import GradientsError, made_of_gradients, told_pair
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

OF_TIME = 0.1
"""Of the time that the audit took, for outputs that a hint has to draw again."""
SHORTEST = 2.0
"""Seconds for them at least: a busy machine takes a tenth of a short audit for nothing."""
FEWEST_COORDINATES = 2
"""Of which the record's own gradient leaves fewer than two, however few the others are."""
NO_NOISE_ALONE = (
    "the noise cannot be measured apart from the records: that takes two directions of the release in which no record "
    "of the pair has a gradient, and the gradients take up {taken} of its {dimension}. Audit a pair of fewer records."
)
OF_LESS_NOISE = frozenset({"bare", "batches", "laplace", "normal", "ratio"})
"""Answers 'wrong' that noise of which some coordinates have less explains."""
EQUALS = ("silent", "repeated")
"""Questions that say more of equal trials than that they are equal."""
FOLLOWS = {"silent": "repeated", "told_noise": "same_seeds"}
"""Hints after which another says nothing new: trials without noise are equal, and little noise covers little."""


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
    """The record with its diagnoses; its verdict, bounds and p-value stay as they are.

    The diagnoses share a fifth of a risk as large as the record's. Outputs of traced code are drawn for them with a key
    of their own. Foreign code, of which each may be a training, is asked about the judged outputs: then that risk is
    the probability of a violation and a false answer together, and says nothing about those violations alone.
    What fails in a diagnosis is said in its place and never costs the record. ``sides`` are those that the audit drew
    from, ``read_as`` the pair of gradients that its scores read, where there is one, and ``claim`` is the record's:
    without it releases are compared with what it allows normal noise alone.
    Without a violation there are only lines of code that look wrong in a replay, or hints.
    """
    if record.diagnoses:
        return record
    began = time.monotonic()
    asked = Asked(
        record=record,
        mechanism=mechanism,
        neighbours=neighbours,
        key=key,
        deadline=deadline,
        sides=both_sides(mechanism, neighbours) if sides is None else sides,
        claim=claim,
    )
    if asked.broken:
        answers = _of_outputs(asked, read_as)
        lines, as_stated = _lines(asked)
        answers = rate_first(answers) if as_stated else without_praise(answers, lines)
        # of trials that depend on each other nothing is proven, in either direction
        ordered = any(answer.code == DEPENDENT for answer in answers)
        if mechanism.gradients_told is not None and not any(answer.wrong for answer in (*answers, *lines)):
            answers = (*_about_rows(asked), *answers)
        answers = (*answers, *lines) if ordered else (*lines, *answers, direction(record))
    else:
        answers = _without_violation(asked, read_as)
    seen = {**record.environment, **({REPLAY: NO_LINE.says} if NO_LINE in answers else {})}
    answers, seconds = tuple(one for one in answers if one != NO_LINE), record.seconds + time.monotonic() - began
    return dataclasses.replace(record, diagnoses=answers, environment=seen, seconds=seconds)


def _about_rows(asked: Asked) -> tuple[Diagnosis, ...]:
    try:
        return rows_may_be_steps(asked.record, asked.sides.layout())
    except Exception:
        # what the code cannot release is said already
        return ()


def _of_outputs(asked: Asked, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    try:
        with contained():
            alike = _alike(asked, risk=asked.aside) if is_foreign(asked.mechanism) else None
            if alike is not None and alike.code == DEPENDENT:
                return (alike,)
            answers = _with_later_steps(asked, _answers(asked, read_as))
            if alike is not None and not any(answer.wrong and answer.code in EQUALS for answer in answers):
                return (alike, *(consequence(answer, alike.code) if answer.wrong else answer for answer in answers))
            tested = any(answer.risk > 0 for answer in answers)
            if any(answer.wrong for answer in answers) or not tested or not is_foreign(asked.mechanism):
                return answers
            drawn = asked.outputs(asked.sides.layout().entries)
            return (*_on_same_seeds(_soon(asked), _told(asked, read_as), drawn, risk=asked.aside), *answers)
    except Exception as error:
        lines = str(error).strip().splitlines()
        return (not_asked(f"{type(error).__name__}: {lines[0] if lines else 'no message'}"),)


def _alike(asked: Asked, *, risk: float) -> Diagnosis | None:
    """Whether trials repeat or depend on each other, without which no other question says anything."""
    try:
        first, second = asked.outputs(asked.sides.layout().entries)
    except Exception:
        # the other questions say what there is to say
        return None
    return trials_alike(
        first,
        second,
        continuous=law(asked.record) != "any",
        cut=is_cut(first, second),
        plus_noise=adds_noise(asked.record.claim),
        risk=risk,
    )


def _without_violation(asked: Asked, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    """What a replay finds wrong, if it costs little beside the trials, or the outputs of code that is not replayed."""
    record, mechanism = asked.record, asked.mechanism
    if never_varied(record):
        return constant_release(asked.sides, asked.own_key, asked.deadline)
    lines: tuple[Diagnosis, ...] = ()
    # a function that has drawn its trials has imported what it uses
    if has_lines(mechanism) and (mechanism.tracer != "torch" or "torch" in sys.modules):
        with warnings.catch_warnings():
            # the code has warned while its trials were drawn
            warnings.simplefilter("ignore")
            lines, _ = _lines(asked, brief=True)
    wrong = tuple(answer for answer in lines if answer.wrong)
    clean = tuple(answer for answer in lines if answer == NO_LINE)
    if wrong or not is_foreign(mechanism):
        # or why it was not replayed, or not to its end
        return wrong or lines
    try:
        with contained():
            hints = _hints(_soon(asked), read_as)
    except Exception:
        return clean
    return (*tuple({found.code: found for found in reversed(hints)}.values())[::-1], *clean)


def _soon(asked: Asked) -> Asked:
    """The same with little more time than it takes to ask."""
    soon = time.monotonic() + max(SHORTEST, OF_TIME * asked.record.seconds)
    return dataclasses.replace(asked, deadline=soon if asked.deadline is None else min(soon, asked.deadline))


def _hints(asked: Asked, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    layout, risk = asked.sides.layout(), asked.share * asked.record.risk
    alike = _alike(asked, risk=risk / 2)
    if alike is not None and alike.code == DEPENDENT:
        return (alike,)
    first, second = asked.outputs(layout.entries)
    cut = is_cut(first, second)
    told = _told(asked, read_as)
    on_seeds = _on_same_seeds(asked, told, (first, second), risk=risk / 2)
    found = (
        unvarying(first, second, layout=layout, told=told),
        alike,
        *(one for one in on_seeds if not cut or one.code == "no_part"),
    )
    try:
        answers = _answers(asked, read_as) if _known(asked) else of_the_claim(asked, asked.risk, whole=False)
        answers = _with_later_steps(asked, answers)
    except Exception:
        # what fails here costs nothing that was found before
        answers = ()
    looks_wrong = worth_a_look(answers, cut=cut, told=told)
    codes = {hint.code for hint in looks_wrong}
    said = {FOLLOWS[code] for code in codes & FOLLOWS.keys()}
    return (*(hint for hint in found if hint is not None and hint.code not in said), *looks_wrong)


def _known(asked: Asked) -> bool:
    """Whether somebody says what the gradients are; rows that are as long as a release need not be."""
    return bool(asked.mechanism.gradients_told or made_of_gradients(asked.neighbours))


def _on_same_seeds(asked: Asked, told: Told | None, drawn: Sequence[Array], *, risk: float) -> tuple[Diagnosis, ...]:
    return on_same_seeds(
        asked.record,
        asked.neighbours,
        asked.sides,
        drawn,
        told=told,
        key=asked.own_key,
        risk=risk,
        deadline=asked.deadline,
    )


def _told(asked: Asked, read_as: Neighbours | None) -> Told | None:
    """What is known of one step: gradients, and the numbers of its noise; None where they do not fit the release."""
    if not _known(asked):
        return None
    try:
        return _numbers(asked, _gradients(asked, read_as))
    except ValueError:
        return None


def _numbers(asked: Asked, seen: Neighbours) -> Told:
    clip, noise_multiplier, rate = stated(asked.record)
    return Told.of(seen, clip=clip, noise_multiplier=noise_multiplier, rate=rate, divisor=asked.divisor)


def _lines(asked: Asked, *, brief: bool = False) -> tuple[tuple[Diagnosis, ...], bool]:
    """Lines of code that look wrong, or what keeps them from being found; and whether all was seen to be as stated."""
    if asked.deadline is not None and time.monotonic() >= asked.deadline:
        return (), False
    record, neighbours = asked.record, asked.neighbours
    stated = stated_by(record.claim, record.mechanism.parameters, neighbours)
    return line_answers(asked.mechanism, neighbours, key=asked.own_key, stated=stated, brief=brief)


def _answers(asked: Asked, read_as: Neighbours | None) -> tuple[Diagnosis, ...]:
    record, mechanism, neighbours = asked.record, asked.mechanism, asked.neighbours
    if mechanism.kind not in ("vector", "transcript"):
        return (not_asked(f"the simulator gives {mechanism.kind} outputs, not full vectors."),)
    if not asked.drawn and asked.deadline is not None and time.monotonic() >= asked.deadline:
        return (not_asked("the time budget ran out."),)
    if _adds_up_steps(record, mechanism):
        return (not_asked(SEVERAL_STEPS, code=NOT_TOLD), *of_the_claim(asked, asked.risk, whole=False))
    try:
        seen = _gradients(asked, read_as)
        signal = read_signal(seen)
    except (ValueError, GradientsError) as error:
        reason = f"the gradients of the pair {neighbours.name!r} cannot be read: {str(error).rstrip('.')}."
        # only code of the user's own can be told more of, and rows that are gradients say all
        if mechanism.gradients_told is None:
            return (not_asked(reason),)
        if mechanism.gradients_told:
            return (not_asked(reason, code=NOT_TOLD), *of_the_claim(asked, asked.risk))
        if getattr(neighbours.without, "ndim", 0) != MATRIX:
            reason = f"the pair {neighbours.name!r} holds data, not gradients."
        advice = to_tell(record, gradients=True, loss=_takes_loss(mechanism))
        untold = not_asked(f"{reason} {advice}".rstrip(), code=NOT_TOLD if advice else NOT_ASKED)
        return (untold, *of_the_claim(asked, asked.risk))
    if signal.dimension - len(signal.basis) < 2:
        few = NO_NOISE_ALONE.format(taken=len(signal.basis), dimension=signal.dimension)
        if mechanism.gradients_told is None:
            return (not_asked(few),)
        if signal.dimension <= FEWEST_COORDINATES:
            few = f"{counted(signal.dimension, 'released number')} cannot show the noise apart from the record's part."
        return (not_asked(few, code=NOT_TOLD), *of_the_claim(asked, asked.risk, whole=asked.rounds == 1))
    clip, noise_multiplier, rate = stated(record)
    told = mechanism.gradients_told is None or rate_is_told(record)
    layout, (first, second) = asked.sides.layout(), asked.outputs(signal.dimension)
    shown, remarks = "its outputs show", ()
    if asked.rounds > 1:
        first, second = first_step(asked, first, second)
        shown, remarks = "its first step shows", (not_asked(FIRST_STEP.format(rounds=asked.rounds)),)
        layout = dataclasses.replace(layout, rounds=None)
    # where no number of the noise is known, or none of later steps, the claim alone is asked as well
    untold = clip is None and mechanism.gradients_told is not None
    share = asked.risk / (2 if untold or asked.rounds > 1 else 1)
    answers = diagnose(
        first,
        second,
        seen,
        clip=clip,
        noise_multiplier=noise_multiplier,
        rate=rate if told else None,
        risk=share,
        layout=layout,
        law=law(record),
        epsilon=positive(record.claim.parameters.get("epsilon")) if record.claim.times == 1 else None,
        divisor=asked.divisor,
    )
    answers += remarks
    if mechanism.gradients_told is not None and clip is not None and noise_multiplier is not None:
        answers = _with_told_noise(answers, first, second, _numbers(asked, seen), layout=layout, risk=asked.aside)
    if any(answer.wrong for answer in answers):
        return answers
    if not untold:
        taken = told or not any(answer.code == "batches" and answer.estimate for answer in answers)
        clipped = read_signal(seen, clip=clip)
        more = beyond_what_was_told(record, clip, noise_multiplier, rate, clipped, shown=shown) if taken else ()
        later = of_the_claim(asked, share, place=1, whole=False) if asked.rounds > 1 and not more else ()
        return (*sorted((*later, *answers), key=lambda answer: not answer.wrong), *more)
    answers += of_the_claim(asked, share, place=1, whole=False)
    if any(answer.wrong for answer in answers):
        return answers
    reason = "how large the noise should be, and what it is compared with, is not known."
    advice = to_tell(record, gradients=not mechanism.gradients_told, loss=_takes_loss(mechanism))
    return (*answers, not_asked(f"{reason} {advice}".rstrip(), code=NOT_TOLD))


def _takes_loss(mechanism: Auditable) -> bool:
    """Whether a loss tells its gradients, as that of a network's training does."""
    return dataclasses.is_dataclass(mechanism) and any(field.name == "loss" for field in dataclasses.fields(mechanism))


def _with_told_noise(
    answers: tuple[Diagnosis, ...], first: Array, second: Array, told: Told, *, layout: Layout, risk: float
) -> tuple[Diagnosis, ...]:
    """The answers after that about the stated noise, unless something is wrong that less noise does not explain."""
    own = [answer for answer in answers if answer.wrong and not answer.follows]
    bare = any(answer.code == "bare" and (answer.estimate or 0.0) < NO_NOISE for answer in own)
    wrong = {answer.code for answer in own}
    if bare or not wrong <= OF_LESS_NOISE:
        return answers
    scale = told_noise(first, second, told, layout=layout, risk=risk)
    if scale is None or not (wrong <= {"batches"} or "less_on_some" in scale.causes):
        return answers
    return (scale, *(consequence(answer, scale.code) if answer.wrong else answer for answer in answers))


def _with_later_steps(asked: Asked, answers: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """The answers, and of a transcript whose gradients follow its weights whether every step has its own noise."""
    if asked.rounds == 1:
        return answers
    outputs = asked.outputs(asked.sides.layout().entries)
    risk = OF_STEPS * asked.share * asked.record.risk
    unexplained = asked.broken and not any(answer.wrong for answer in answers)
    steps = about_steps(*outputs, rounds=asked.rounds, risk=risk, unexplained=unexplained)
    if not steps.wrong:
        return (*answers, steps)
    # code whose first step alone is as stated does not do what is stated
    return (steps, *(answer for answer in answers if answer.code != "claim"))


def _adds_up_steps(record: AuditRecord, mechanism: Auditable) -> bool:
    """Whether one output holds several steps, or nobody says how many, whose gradients may follow earlier steps."""
    return follows_steps(mechanism) and record.releases == "final" and steps_of(record) != 1


MATRIX = 2
"""Axes of a dataset whose rows are gradients."""


def _gradients(asked: Asked, read_as: Neighbours | None) -> Neighbours:
    """The gradients that the mechanism makes of the pair; where it does not say, the pair's rows, if they can be."""
    if read_as is not None and read_as is not asked.neighbours and made_of_gradients(read_as):
        return read_as
    mechanism, neighbours = asked.mechanism, asked.neighbours
    try:
        return told_pair(neighbours, mechanism)
    except ValueError:
        if mechanism.coordinates is not None:
            raise
    dimension, layout = read_signal(neighbours).dimension, asked.sides.layout()
    if dimension not in (layout.size, layout.entries):
        raise ValueError(
            f"each of its records has {counted(dimension, 'number')} and the output {layout.size}, so records are not "
            "gradients; give the mechanism a gradients= function."
        )
    return neighbours
