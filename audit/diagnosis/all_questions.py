"""Ask every question, either of given outputs or of fresh ones drawn for the purpose."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import numpy as np

from audit.diagnosis import (
    batches,
    dependence,
    distribution,
    laplace,
    noise_and_batches,
    noise_or_sum,
    presence,
    scale,
    sensitivity,
)
from audit.diagnosis.noise import Array, Noise, on_one_scale, read_noise, unmoved_noise
from audit.diagnosis.outside_span import moves_outside_span
from audit.diagnosis.rank import ranked
from audit.diagnosis.sensitivity import Stated
from audit.diagnosis.signal import Signal, read_signal
from audit.record.diagnosis_answer import Diagnosis, not_asked
from audit.trials.both_sides import Auditable, BothSides
from audit.trials.executor import LOCAL, Executor
from audit.trials.keys import both_keys
from audit.trials.user_code_errors import contained
from guarantees.checks import Positive, Rate, Share, checked, require
from mechanisms.pairs.gradient_pairs import told_pair
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

FEWEST_TRIALS = 20
"""Trials per side below which nothing is diagnosed."""
PIECE = 64
"""Most trials drawn between two checks of the deadline."""
MANY_EMPTY = 20
"""Expected number of empty batches from which on it cannot be chance that none was drawn."""
OF_SKEWNESS = 1e-3
"""Share of a question's risk at which noise is said to be skewed, where the answer already is 'wrong'."""
CHUNK_ENTRIES = 2**20
"""Output coordinates drawn at once."""

Question = Callable[[float], Diagnosis]
"""A diagnosis as a function of the risk that it may spend."""
Law = Literal["normal", "laplace", "any"]
"""Stated law of the noise; 'any' where none is stated."""


@checked
def diagnose(
    outputs_without: Array,
    outputs_with: Array,
    neighbours: Neighbours,
    *,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    rate: Rate | None = 1.0,
    risk: Share = 0.01,
    layout: Layout | None = None,
    law: Law = "normal",
    epsilon: Positive | None = None,
    divisor: Positive | None = None,
) -> tuple[Diagnosis, ...]:
    """Answer every question about outputs of both sides, sharing ``risk`` evenly; the most telling answer comes first.

    ``clip`` and ``noise_multiplier`` are what the code was given; without both, only questions that need neither are
    asked. ``rate`` is the rate at which records are sampled, None if unknown; ``layout`` names the tensors of an
    output; ``law`` is the stated law of the noise, and ``epsilon`` what Laplace noise should give one output;
    ``divisor`` divides the whole release, None if unknown. Use outputs that did not serve to choose what to ask.
    """
    for name, outputs in (("outputs_without", outputs_without), ("outputs_with", outputs_with)):
        require(name, len(outputs) >= 2, "two trials or more", len(outputs))
    signal = read_signal(neighbours, clip=clip, layout=layout)
    rows = [np.asarray(outputs).reshape(len(outputs), -1) for outputs in (outputs_without, outputs_with)]
    without, with_record = (read_noise(outputs, neighbours, signal) for outputs in rows)
    if presence.is_still(without, with_record):
        # only rounding varies, which the other questions would take for noise
        questions = _still_noise_questions(without, with_record, signal)
        return ranked([_answer(question, risk / len(questions)) for question in questions])
    stated, movement, remarks = None, (), ()
    if clip is not None and noise_multiplier is not None:
        stated = Stated(
            clip=clip, noise_multiplier=noise_multiplier, rate=1.0 if rate is None else rate, divisor=divisor
        )
        movement = _movement_questions(without, with_record, signal, stated, rate_told=rate is not None)
        sides = {"without": without, "with": with_record}
        remarks = tuple(scale.noise_scale(noise, stated, side=side, risk=risk) for side, noise in sides.items())
    elif law == "laplace" and epsilon is not None and signal.rounds == 1:
        promised_epsilon = epsilon
        movement = (lambda risk: laplace.l1_ratio(without, with_record, signal, epsilon=promised_epsilon, risk=risk),)
    coarse = presence.is_coarse(without, with_record)
    one_scale = on_one_scale((without, with_record), signal)
    questions = (
        *_presence_questions(
            without, with_record, signal, stated, layout, law="coarse" if coarse else law, sampled=rate != 1
        ),
        *(() if coarse else _noise_questions(without, with_record, one_scale, signal, stated, whole=rate == 1)),
        *movement,
        *_shape_questions(without, with_record, one_scale, "coarse" if coarse else law),
    )
    share = risk
    if stated is not None and stated.rate < 1 and signal.rounds == 1 and not coarse:
        share = risk * (1 - noise_and_batches.SHARE)
        batch_risk = noise_and_batches.SHARE * risk
        batch_question = (
            lambda risk: noise_and_batches.noise_follows_batch(without, with_record, signal, risk=batch_risk),
        )
    else:
        batch_question = ()
    answers = [_answer(question, share / len(questions)) for question in (*questions, *batch_question)]
    by_code = {found.code: found for found in answers}
    too_little = {"ratio", "scale_by_record"} <= by_code.keys() and sensitivity.beyond_the_scale(
        by_code["ratio"], by_code["scale_by_record"], signal
    )
    return (*ranked(answers, too_little=too_little), *remarks)


def _answer(question: Question, risk: float) -> Diagnosis:
    """Ask one question; if the computation fails, record that it was not asked, not that something is wrong."""
    try:
        return question(risk)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return not_asked(f"{type(error).__name__}: {error}")


def _still_noise_questions(without: Noise, with_record: Noise, signal: Signal) -> tuple[Question, ...]:
    """What is asked where nothing but rounding varies."""
    sides = (without, with_record)
    return (
        lambda risk: presence.unbounded(*sides, finite=signal.finite, risk=risk),
        lambda risk: presence.silent(*sides, risk=risk),
        lambda risk: presence.repeated(*sides, risk=risk),
    )


def _presence_questions(
    without: Noise,
    with_record: Noise,
    signal: Signal,
    stated: Stated | None,
    layout: Layout | None,
    *,
    law: Law | Literal["coarse"],
    sampled: bool,
) -> tuple[Question, ...]:
    """Whether there is noise everywhere, and whether the record moves only what its gradient does."""
    sides, empty = (without, with_record), None
    # values never repeat only if the noise is stated to be continuous
    bare = functools.partial(presence.bare, *sides, layout=layout, continuous=law in ("normal", "laplace"))
    if stated is not None and stated.rate < 1 and signal.rounds == 1:
        empty = (1 - stated.rate) ** signal.records, (1 - stated.rate) ** signal.records_with
    return (
        lambda risk: presence.unbounded(*sides, finite=signal.finite, risk=risk),
        lambda risk: bare(risk=risk),
        lambda risk: presence.silent(*sides, empty=empty, risk=risk),
        *(() if law == "coarse" else (lambda risk: presence.repeated(*sides, risk=risk),)),
        lambda risk: moves_outside_span(*sides, signal, layout=layout, sampled=sampled, risk=risk),
    )


def _noise_questions(
    without: Noise,
    with_record: Noise,
    one_scale: Sequence[Noise],
    signal: Signal,
    stated: Stated | None,
    *,
    whole: bool,
) -> tuple[Question, ...]:
    """Whether noise is shared between coordinates, or depends on the batch or the record.

    ``whole`` says that every batch is the dataset, so that nothing but noise varies on any coordinate.

    """
    deviation, standard = None if stated is None else stated.deviation, _standardised(one_scale)
    sampled = stated is not None and stated.rate < 1
    noisy, empty = [presence.with_noise(side) for side in (without, with_record)], None
    if stated is not None and signal.rounds == 1:
        silent_trials = len(without.outputs) - len(noisy[0].outputs)
        expected = len(without.outputs) * (1 - stated.rate) ** signal.records >= MANY_EMPTY
        empty = silent_trials > 0 if expected or silent_trials else None
    return (
        lambda risk: dependence.shared_noise(
            standard, released=unmoved_noise(without, with_record, signal, whole=whole), risk=risk
        ),
        lambda risk: scale.depends_on_batch(*noisy, deviation=deviation, empty=empty, risk=risk),
        lambda risk: scale.depends_on_record(without, with_record, sampled=sampled, risk=risk),
    )


def _shape_questions(
    without: Noise, with_record: Noise, one_scale: Sequence[Noise], law: Law | Literal["coarse"]
) -> tuple[Question, ...]:
    """Whether the noise has the stated law; of noise that takes a few values, only how few."""
    standard = _standardised((without, with_record))
    deviation = math.sqrt(min(without.variance, with_record.variance))
    values = without.outputs if without.rotated else without.beside
    if law == "coarse":
        return (lambda risk: distribution.grained(values, deviation, coarse=True, risk=risk),)
    questions_of_law: dict[Law, tuple[Question, ...]] = {
        "normal": (lambda risk: distribution.not_normal(standard, risk=risk),),
        "laplace": (lambda risk: laplace.not_laplace(without, with_record, risk=risk),),
        "any": (),
    }
    return (
        lambda risk: distribution.grained(values, deviation, risk=risk),
        lambda risk: distribution.cut_tails([presence.with_noise(side).rest for side in one_scale], risk=risk),
        *questions_of_law[law],
    )


def _movement_questions(
    without: Noise, with_record: Noise, signal: Signal, stated: Stated, *, rate_told: bool
) -> tuple[Question, ...]:
    """Whether the record moves the sum as stated; without a stated rate, batches that vary are not called wrong."""
    measured = sensitivity.movement(without, with_record, signal)

    def sampled_as_stated(risk: float) -> Diagnosis:
        beyond = noise_or_sum.noise_over_sensitivity(measured, signal, stated, risk=risk).wrong
        return sensitivity.taken_at_stated_rate(measured, signal, stated, beyond=beyond, risk=risk)

    def batches_vary(risk: float) -> Diagnosis:
        answer = batches.batches_vary(without, with_record, signal, stated, risk=risk)
        return answer if rate_told else batches.at_no_stated_rate(answer)

    one_step = (batches_vary, sampled_as_stated) if rate_told else (batches_vary,)

    def noise_or_sum_is_off(risk: float) -> Diagnosis:
        ask = functools.partial(noise_or_sum.noise_over_sensitivity, measured, signal, stated, risk=risk)
        found = ask()
        if not found.wrong or not rate_told or stated.rate < 1 or signal.rounds > 1:
            return found
        # in full batches nothing but noise varies
        skewness = distribution.known_skewness((without.outputs, with_record.outputs), risk=OF_SKEWNESS * risk)
        return ask(skewness=skewness) if skewness else found

    in_steps = (lambda risk: batches.steps_apart(without, with_record, signal, risk=risk),)
    return (
        *(one_step if signal.rounds == 1 else in_steps),
        noise_or_sum_is_off,
    )


def _standardised(sides: Sequence[Noise]) -> Array:
    """Standardised noise of the trials that have any: a skipped update says nothing about the noise of others."""
    rows = np.concatenate([side.standard for side in sides])
    noisy = rows[np.any(rows != 0, axis=1)]
    return noisy if len(noisy) > 1 else rows


def drawn_at_once(layout: Layout, trials: int) -> int:
    """How many of ``trials`` outputs to draw at once."""
    return int(np.clip(CHUNK_ENTRIES // layout.entries, 1, min(PIECE, trials)))


def drawn_in_time(
    sides: BothSides, keys: tuple[jax.Array, jax.Array], trials: int, *, deadline: float | None
) -> tuple[Array, Array]:
    """Draw equally many outputs of both sides; raise TimeoutError where the deadline leaves too few."""
    first, second = sides.outputs(keys, trials, size=drawn_at_once(sides.layout(), trials), deadline=deadline)
    count = min(len(first), len(second))
    if count < FEWEST_TRIALS:
        raise TimeoutError(f"the time budget ran out after {count} trials per side.")
    return first[:count], second[:count]


@contained()
@checked
def diagnose_mechanism(
    mechanism: Auditable,
    neighbours: Neighbours,
    *,
    key: jax.Array,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    rate: Rate = 1.0,
    trials: int = 1000,
    risk: Share = 0.01,
    deadline: float | None = None,
    read_as: Neighbours | None = None,
    executor: Executor = LOCAL,
    law: Law = "normal",
    epsilon: Positive | None = None,
) -> tuple[Diagnosis, ...]:
    """Draw outputs on both datasets and diagnose them: which part of the noise or of the sum looks wrong.

    Each answer is a test of its own under the assumption that it states. Answers explain and never decide: a verdict is
    ``run_audit``'s, and "nothing wrong" does not mean private.

    Args:
      mechanism: what ``audit.run_audit`` takes.
      neighbours: the pair of datasets.
      key: made by ``jax.random.key``; use another key than the audit's for outputs independent of the audit's.
      clip: the bound that the code was given, above 0 and finite; without it and ``noise_multiplier`` only questions
        that need neither are asked.
      noise_multiplier: standard deviation of the noise over ``clip``, above 0 and finite.
      rate: probability with which each record joins the batch, in (0, 1].
      trials: outputs per dataset, at least 20.
      risk: probability that any question is answered "wrong" where nothing is, in (0, 1).
      deadline: a ``time.monotonic()`` value; it may leave fewer trials; which ones does not depend on their outcome.
      read_as: the pair of gradients where ``neighbours`` are records that a network reads; by default what the
        mechanism's own ``gradients=`` makes of them.
      executor: who draws the trials; by default this process.
      law: stated law of the noise; "any" where none is stated.
      epsilon: what Laplace noise should give one output, above 0 and finite; used where ``clip`` and
        ``noise_multiplier`` are not both given.

    Returns:
      One answer a question, the most telling first: ``question``, ``wrong``, ``says``, ``p_value``, ``assumes``.

    Raises:
      ValueError: an argument is out of range.
      TimeoutError: the deadline left fewer than 20 trials per dataset.

    Examples:
      Drawing and testing takes some seconds::

        step = mechanisms.gaussian_mechanism(noise_multiplier=0.5)
        pair = mechanisms.worst_case_pair(records=3, dimension=20, clip=1.0)
        given = dict(clip=1.0, noise_multiplier=1.0, trials=200)  # the noise is said to be twice as large
        for answer in diagnosis.diagnose_mechanism(step, pair, key=jax.random.key(0), **given):
            print(answer.wrong, answer.says)
    """
    require("trials", trials >= FEWEST_TRIALS, f">= {FEWEST_TRIALS}", trials)
    if read_as is None:
        read_as = told_pair(neighbours, mechanism) if mechanism.gradients_told else neighbours
    sides = executor.sides(mechanism, neighbours)
    return diagnose(
        *drawn_in_time(sides, both_keys(key), trials, deadline=deadline),
        read_as,
        clip=clip,
        noise_multiplier=noise_multiplier,
        rate=rate,
        risk=risk,
        layout=sides.layout(),
        law=law,
        epsilon=epsilon,
    )
