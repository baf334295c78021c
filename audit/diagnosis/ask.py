"""Ask every question: of given outputs, or of fresh ones drawn for the purpose."""

from __future__ import annotations

import math

import jax
import numpy as np

from audit.diagnosis import dependence, distribution, scale
from audit.diagnosis.noise import Array, read_noise
from audit.record.answer import Diagnosis
from audit.trials.both_sides import Auditable, both_sides
from distinguishers.directions import span_of
from guarantees.checks import require
from mechanisms.neighbours import Neighbours

FEWEST_TRIALS = 20
PIECE = 64
"""Trials drawn between two looks at the clock, at most."""
CHUNK_ENTRIES = 2**20
"""Output coordinates drawn at once."""
QUESTIONS, NOMINAL_QUESTIONS = 8, 4


def diagnose(
    outputs_without: Array,
    outputs_with: Array,
    neighbours: Neighbours,
    *,
    clip: float | None = None,
    noise_multiplier: float | None = None,
    rate: float = 1.0,
    risk: float = 0.05,
) -> tuple[Diagnosis, ...]:
    """Every diagnosis of outputs of both sides, sharing ``risk`` evenly.

    ``clip`` and ``noise_multiplier`` are what the code was given; without both, only questions that need neither are
    asked. ``rate`` is the rate at which records are sampled. Use outputs that were not used to choose what to ask.
    """
    require("risk", 0 < risk < 1, "in (0, 1)", risk)
    require("rate", 0 < rate <= 1, "in (0, 1]", rate)
    for name, value in (("clip", clip), ("noise_multiplier", noise_multiplier)):
        require(name, value is None or 0 < value < math.inf, "> 0 and finite, or None", value)
    for name, outputs in (("outputs_without", outputs_without), ("outputs_with", outputs_with)):
        require(name, len(outputs) >= 2, "two trials or more", len(outputs))
    without, with_record = read_noise(outputs_without, neighbours), read_noise(outputs_with, neighbours)
    standard = _moving(np.concatenate([without.standard, with_record.standard]))
    nominal = clip is not None and noise_multiplier is not None
    share = risk / (QUESTIONS + NOMINAL_QUESTIONS * nominal)
    answers = (
        scale.depends_on_record(without, with_record, risk=share),
        scale.depends_on_batch(without, risk=share),
        dependence.shared_noise(standard, risk=share),
        dependence.copied_noise(standard, risk=share),
        dependence.repeated_noise(standard, risk=share),
        distribution.not_normal(standard, risk=share),
        distribution.cut_tails(standard, risk=share),
        distribution.grained(_moving(np.concatenate([without.rest, with_record.rest])), risk=share),
    )
    if clip is None or noise_multiplier is None:
        return answers
    deviation = clip * noise_multiplier
    most = clip * (2.0 if neighbours.relation == "substitution" else 1.0)
    return (
        scale.noise_scale(without, deviation, side="without", risk=share),
        scale.noise_scale(with_record, deviation, side="with", risk=share),
        scale.divisors_found(without, with_record, deviation, risk=share),
        scale.record_moves(without, with_record, deviation=deviation, rate=rate, most=most, risk=share),
        *answers,
    )


def _moving(rows: Array) -> Array:
    """Trials with any noise: an update that was skipped says nothing about the noise of others."""
    moving = rows[np.any(rows != 0, axis=1)]
    return moving if len(moving) > 1 else rows


def diagnose_mechanism(
    mechanism: Auditable,
    neighbours: Neighbours,
    *,
    key: jax.Array,
    clip: float | None = None,
    noise_multiplier: float | None = None,
    rate: float = 1.0,
    trials: int = 300,
    risk: float = 0.05,
    deadline: float | None = None,
    read_as: Neighbours | None = None,
) -> tuple[Diagnosis, ...]:
    """Draw ``trials`` outputs a side, apart from those of any audit with another key, and diagnose them.

    ``read_as`` is the pair of gradients where ``neighbours`` are records that a network reads (gradient_pair).
    ``deadline`` (a time.monotonic() value) may leave fewer, which has nothing to do with what they are.
    """
    require("trials", trials >= FEWEST_TRIALS, f">= {FEWEST_TRIALS}", trials)
    seen = read_as or neighbours
    size = int(np.clip(CHUNK_ENTRIES // span_of(seen)[0].dimension, 1, min(PIECE, trials)))
    first, second = both_sides(mechanism, neighbours).outputs(key, trials, size=size, deadline=deadline)
    count = min(len(first), len(second))
    if count < FEWEST_TRIALS:
        raise TimeoutError(f"the time budget was over after {count} trials a side.")
    return diagnose(
        first[:count],
        second[:count],
        seen,
        clip=clip,
        noise_multiplier=noise_multiplier,
        rate=rate,
        risk=risk,
    )
