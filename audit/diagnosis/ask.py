"""Ask every question: of given outputs, or of fresh ones drawn for the purpose."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.diagnosis import dependence, distribution, scale
from audit.diagnosis.answer import Diagnosis
from audit.diagnosis.noise import Array, read_noise
from audit.trials.workers import Batch, drawer
from distinguishers.directions import span_of
from guarantees.checks import require
from mechanisms.contract import BatchMechanism, Mechanism
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.neighbours import Neighbours, materialise, prepare

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

    ``clip`` and ``noise_multiplier`` are what the code was told; without both, only questions that need neither are
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
    mechanism: Mechanism | BatchMechanism,
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
    step = as_mechanism(mechanism)
    draw = _foreign if isinstance(step, BatchMechanism) else _traced
    first, second = draw(key, step, neighbours, trials, size, deadline)
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


def _traced(
    key: jax.Array, mechanism: Any, neighbours: Neighbours, trials: int, size: int, deadline: float | None
) -> list[Array]:
    """Full outputs of both sides of an ordinary mechanism, ``size`` at a time, kept on the host."""

    def side(own: jax.Array, dataset: Any) -> Array:
        data = prepare(mechanism, dataset)

        @jax.jit
        def outputs(first: jax.Array) -> jax.Array:
            numbers = first + jnp.arange(size, dtype=jnp.uint32)
            return jax.vmap(lambda trial: mechanism(jax.random.fold_in(own, trial), data))(numbers)

        pieces = []
        for start in range(0, trials, size):
            if deadline is None or time.monotonic() < deadline:
                pieces.append(np.asarray(outputs(jnp.uint32(start))))
        return np.concatenate(pieces)[:trials] if pieces else np.zeros((0, 1), np.float32)

    # two programs to compile, which takes longer than the draws
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(side, jax.random.split(key), (neighbours.without, neighbours.with_record)))


def _foreign(
    key: jax.Array, mechanism: Any, neighbours: Neighbours, trials: int, size: int, deadline: float | None
) -> list[Array]:
    """Full outputs of both sides of foreign code, in turns, until the trials or the time are used up."""
    datasets = {}
    for name, dataset in (("without", neighbours.without), ("with", neighbours.with_record)):
        given = materialise(dataset)
        datasets[name] = np.asarray(given) if isinstance(given, jax.Array) else given
    words = {
        n: np.asarray(jax.random.key_data(k)).ravel() for n, k in zip(datasets, jax.random.split(key), strict=True)
    }
    source = drawer(mechanism, datasets)
    found: dict[str, list[Array]] = {name: [] for name in datasets}
    for start in range(0, trials, size):
        for name, pieces in found.items():
            if deadline is None or time.monotonic() < deadline:
                batch = Batch(name, words[name], start, min(start + size, trials))
                source.draw([batch], lambda _, outputs, own=pieces: own.append(outputs))
    return [np.concatenate(pieces) if pieces else np.zeros((0, 1), np.float32) for pieces in found.values()]
