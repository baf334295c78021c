"""Batches of a fixed size by a drawn order: N and N + 1 records choose other records, and no row can be compared."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = np.random.default_rng(0).normal(size=(9, 4)).astype("f4")
SIZE = 4


def clipped(rows):
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def by_product(taken, rows):
    return taken.astype("f4") @ clipped(rows)


def by_choice(taken, rows):
    return jnp.where(taken[:, None], clipped(rows), 0.0).sum(0)


def by_loop(taken, rows):
    return jax.lax.scan(lambda total, own: (total + own[0] * own[1], None), jnp.zeros(4), (taken, clipped(rows)))[0]


def by_padded_parts(taken, rows):
    more = -len(rows) % 4
    masks = jnp.pad(taken.astype("f4"), (0, more)).reshape(-1, 4)
    parts = jnp.pad(rows, [(0, more), (0, 0)]).reshape(-1, 4, 4)
    return jax.lax.scan(lambda total, own: (total + own[0] @ clipped(own[1]), None), jnp.zeros(4), (masks, parts))[0]


def order(key, records):
    return jax.random.permutation(key, records) < SIZE


def half(key, records):
    return jax.random.permutation(key, records) < records // 2


def marks(key, records):
    return jax.random.permutation(key, jnp.arange(records) < SIZE)


def places(key, records):
    return jnp.zeros(records, bool).at[jax.random.choice(key, records, (SIZE,), replace=False)].set(True)


def told(chosen, total, seed, claim=None):
    def step(key, rows):
        batch, noise = jax.random.split(key)
        return total(chosen(batch, len(rows)), rows) + 2.0 * jax.random.normal(noise, (4,))

    pair = mechanisms.add_record(ROWS, np.full(4, 3.0, "f4"))
    return explain(step, pair, key=jax.random.key(seed), clip=1.0, noise_multiplier=2.0, claim=claim)


FORMS = [(order, by_product), (order, by_choice), (order, by_loop), (half, by_product), (marks, by_product)]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(("chosen", "total"), [*FORMS, (places, by_product)])
def test_rows_that_a_drawn_order_chooses_are_not_judged(chosen, total, seed):
    findings = told(chosen, total, seed).findings
    assert {one.kind for one in findings} == {Kind.NOT_FOLLOWED}, findings
    assert "rows cannot be compared" in findings[0].says


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("chosen", "total"), [*((one, by_product) for one in (order, half, marks, places)), (order, by_padded_parts)]
)
def test_batches_of_one_size_are_not_the_poisson_batches_of_a_claim(chosen, total):
    claim = guarantees.subsampled_gaussian(rate=SIZE / 9, noise_multiplier=2.0)
    explanation = told(chosen, total, 0, claim)
    found = explanation.findings[0]
    line = inspect.getsourcelines(chosen)[1] + 1
    assert (found.kind, found.lines[0]) == (Kind.SAMPLED_OTHERWISE, (__file__, line)), found
    assert "of 10 records in all" in found.says
    assert "other units" not in str(explanation)


def rate(key, records):
    return jax.random.bernoulli(key, SIZE / records, (records,))


def test_a_rate_of_the_number_of_records_blames_no_clipping():
    """With this seed the larger batch looks like the smaller one with a record put between two others."""
    kinds = [one.kind for one in told(rate, by_product, 41).findings]
    assert kinds[:1] == [Kind.RANDOMNESS_FROM_DATA]
    assert set(kinds) <= {Kind.RANDOMNESS_FROM_DATA, Kind.NOT_FOLLOWED}


def drawn_in_two_ways(key, records):
    return jax.random.poisson(key, 0.7, (records,)) > 0


def drawn_and_split(key, records):
    return jax.random.uniform(key, (records,)) + jax.random.uniform(jax.random.split(key)[0], (records,)) < 1.0


def test_what_jax_does_with_a_key_in_one_call_is_no_second_use():
    assert not told(drawn_in_two_ways, by_product, 0).findings
    (found, *_) = told(drawn_and_split, by_product, 0).findings
    assert found.kind == Kind.KEY_USED_TWICE


def test_numbers_that_fill_a_tensor_again_and_again_are_found():
    def tiled(key, rows):
        return clipped(rows).sum(0) + jnp.resize(jax.random.normal(key, (2,)), (4,))

    def joined(key, rows):
        parts = [jax.random.normal(each, (2,)) for each in jax.random.split(key)]
        return clipped(rows).sum(0) + jnp.concatenate(parts)

    pair = mechanisms.add_record(ROWS, np.full(4, 3.0, "f4"))
    (found,) = explain(tiled, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert found.kind == Kind.KEY_USED_TWICE
    assert "(2 numbers for 4 coordinates)" in found.says
    assert not explain(joined, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings


def picked(numbers):
    """Rows by numbers that are drawn with replacement."""
    return lambda key, rows: clipped(rows[numbers(key, len(rows))]).sum(0)


def scattered(key, rows):
    return jnp.zeros(len(rows)).at[jax.random.randint(key, (3,), 0, len(rows))].add(1.0) @ clipped(rows)


WITH_REPLACEMENT = {
    "index": picked(lambda key, count: jax.random.randint(key, (3,), 0, count)),
    "choice": picked(lambda key, count: jax.random.choice(key, count, (3,))),
    "remainder": picked(lambda key, count: jax.random.randint(key, (3,), 0, 1000) % count),
    "floor": picked(lambda key, count: jnp.floor(jax.random.uniform(key, (3,)) * count).astype(int)),
    "scatter": scattered,
    "loop": lambda key, rows: sum(clipped(rows[i][None])[0] for i in jax.random.randint(key, (3,), 0, len(rows))),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("total", WITH_REPLACEMENT.values(), ids=WITH_REPLACEMENT)
def test_numbers_that_pick_rows_are_no_noise(total):
    def step(key, rows):
        batch, noise = jax.random.split(key)
        return total(batch, rows) + jax.random.normal(noise, (4,))

    pair = mechanisms.pair(3 * ROWS[:-1], 3 * ROWS, relation="add_remove")
    found = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert [one.kind for one in found] == [Kind.NOT_FOLLOWED], found
    assert "drawn or ordered otherwise" in found[0].says


def test_whole_numbers_that_are_added_to_the_number_of_records_are_noise():
    def step(key, rows):
        noise = jax.random.randint(key, (2,), -8, 9)
        return jnp.where(noise < 0, -1, 1) * (noise + len(rows))

    (one,) = explain(step, mechanisms.pair(ROWS[:-1], ROWS), key=jax.random.key(0), clip=1.0).rounds
    assert one.sensitivity == pytest.approx(2**0.5)


@pytest.mark.parametrize("fault", [False, True])
def test_rows_that_are_sorted_by_what_they_hold_stand_elsewhere_where_the_record_is_empty(fault):
    def step(key, rows):
        batch, noise = jax.random.split(key)
        sizes = rows[:, 0] if not fault else jnp.arange(len(rows))
        rows = clipped(rows[jnp.argsort(sizes)])
        taken = jax.random.bernoulli(batch, 0.5, (len(rows),))
        return jnp.where(taken[:, None], rows, 0.0).sum(0) + (1.0 if fault else 2.0) * jax.random.normal(noise, (4,))

    # the first of all, which stands in the middle without its numbers
    empty = np.where(np.arange(9)[:, None] == np.argmin(ROWS[:, 0]), 0, ROWS)
    pair = mechanisms.pair(empty, ROWS, relation="zero_out")
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=2.0, relation="zero_out")
    (one,) = explain(step, pair, key=jax.random.key(0), claim=claim, clip=1.0).findings
    assert one.kind == (Kind.TOO_LITTLE_NOISE if fault else Kind.NOT_FOLLOWED)
