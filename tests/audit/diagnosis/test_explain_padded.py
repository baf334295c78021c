"""Padded Poisson batches share their draws: they are followed and judged."""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diagnosis import padded, replayed

import mechanisms
from audit.diagnosis.explain import explain


def told(step, seed=3):
    return explain(step, replayed.added(), key=jax.random.key(seed), noise_multiplier=replayed.NOISE)


@pytest.mark.few(1)
@pytest.mark.parametrize("padding", padded.RIGHT)
def test_nothing_is_said_about_a_padded_batch(padding):
    explanation = told(padded.RIGHT[padding])
    assert explanation.findings == (), explanation.findings[0].says
    assert [one.multiplier for one in explanation.rounds] == pytest.approx([replayed.NOISE], rel=0.02)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", padded.FAULTY)
def test_faults_of_a_padded_batch_are_found(kind):
    found = told(padded.FAULTY[kind]).findings
    assert [one.kind for one in found][:1] == [kind], found


def test_padding_that_is_summed_is_found():
    found = told(padded.UNMASKED).findings
    assert [one.kind for one in found] == ["too_little_noise"], found


SEEDS = [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", padded.SORTED)
def test_nothing_is_said_about_a_batch_that_is_sorted_to_the_front(form, seed):
    explanation = told(padded.SORTED[form], seed)
    assert explanation.findings == (), explanation.findings[0].says
    assert min(one.multiplier for one in explanation.rounds) == pytest.approx(replayed.NOISE, rel=0.02)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", padded.SORTED_FAULTY)
def test_faults_of_a_sorted_batch_are_found(kind, seed):
    found = told(padded.SORTED_FAULTY[kind], seed).findings
    assert [one.kind for one in found][:1] == [kind], found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", padded.CUT_FAULTY)
def test_faults_of_a_sorted_batch_with_empty_rows_behind_it_that_are_cut_are_found(kind, seed):
    found = told(padded.CUT_FAULTY[kind], seed).findings
    assert [one.kind for one in found][:1] == [kind], found


MIDDLE = [("reversed", 2), ("permutation", 2), ("by their number", 2), ("filled up", 2)]
"""Seeds with which the record does not stand at the end of its batch."""


@pytest.mark.few(1)
@pytest.mark.parametrize(("taking", "seed"), MIDDLE)
def test_batches_in_which_the_taken_records_move_are_not_judged(taking, seed):
    explanation = told(padded.NOT_JUDGED[taking], seed)
    assert [one.kind for one in explanation.findings] == ["not_followed"], explanation.findings
    assert not any(one.judged for one in explanation.rounds)
    assert str(explanation).count("(not judged)") == 1


def test_a_round_that_is_followed_is_judged_beside_one_that_is_not():
    explanation = told(padded.half_the_noise_later)
    assert [one.kind for one in explanation.findings] == ["too_little_noise", "not_followed"], explanation.findings
    assert [one.judged for one in explanation.rounds] == [False, True]


@pytest.mark.long
@pytest.mark.parametrize("taking", padded.NOT_JUDGED)
def test_batches_in_which_the_taken_records_move_are_never_accused(taking):
    for seed in (1, 3, 4, 5):
        assert told(padded.NOT_JUDGED[taking], seed).suspicions == ()


def cut_by_a_loop(key, rows, *, bound, take):
    places = jnp.pad(rows, [(0, 8 - len(rows)), (0, 0)])
    places = places if take is by_offset else places.reshape(4, 2, -1)

    def add(turn, total):
        part = take(places, turn)
        size = jnp.linalg.norm(part, axis=1)
        factor = jnp.minimum(1.0, bound / jnp.maximum(size, 1e-12))  # THE BOUND
        return total + factor @ part

    total = jax.lax.fori_loop(0, 4, add, jnp.zeros(rows.shape[1]))
    return total + jax.random.normal(key, total.shape)


def by_offset(places, turn):
    return jax.lax.dynamic_slice_in_dim(places, 2 * turn, 2)


def by_number(places, turn):
    return places[turn]


@pytest.mark.few(2)
@pytest.mark.parametrize("take", [by_offset, by_number])
@pytest.mark.parametrize("bound", [1.0, 2.0])
def test_what_a_loop_cuts_from_a_batch_keeps_its_records(bound, take):
    rows = np.random.default_rng(1).normal(size=(6, 3)).astype("f4") * 9
    step = functools.partial(cut_by_a_loop, bound=bound, take=take)
    told = explain(step, mechanisms.pair(rows[:-1], rows), key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    source, start = inspect.getsourcelines(cut_by_a_loop)
    (line,) = [start + number for number, text in enumerate(source) if "# THE BOUND" in text]
    assert [one.lines[0] for one in told.findings] == ([] if bound == 1.0 else [(__file__, line)])
