"""Sums to which records or microbatches are added one by one: where their noise comes in, and what clips them."""

from __future__ import annotations

import linecache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import explain

RECORDS = 4


def clipped(row):
    return row / jnp.maximum(1.0, jnp.linalg.norm(row))


def scanned(start, rows):
    return jax.lax.scan(lambda total, row: (jax.tree.map(jnp.add, total, parts(row)), None), start, rows)[0]


def looped(start, rows):
    def add(number, total):
        return jax.tree.map(jnp.add, total, parts(rows[number]))

    return jax.lax.fori_loop(0, len(rows), add, start)


def in_python(start, rows):
    for row in rows:
        start = jax.tree.map(jnp.add, start, parts(row))
    return start


def shown(start, rows):
    def add(total, row):
        total = jax.tree.map(jnp.add, total, parts(row))
        return total, total

    total, before = jax.lax.scan(add, start, rows)
    return total, before["rest"][1]


def parts(row):
    row = clipped(row)
    return {"first": row[:2], "rest": row[2:]}


def told(adding, deviation=1.0):
    def step(key, rows):
        one, other = jax.random.split(key)
        noise = {"first": jax.random.normal(one, (2,)), "rest": jax.random.normal(other, (4,))}
        return adding(jax.tree.map(lambda leaf: deviation * leaf, noise), rows)

    pair = mechanisms.worst_case_pair(records=RECORDS, dimension=6, clip=3.0)
    return explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("adding", [scanned, looped, in_python])
def test_noise_covers_all_records_that_are_added_to_it(adding):
    found = told(adding)
    assert not found.findings
    assert [one.multiplier for one in found.rounds] == [pytest.approx(1.0, rel=1e-4)]


def test_half_of_the_noise_is_too_little():
    assert [one.kind for one in told(scanned, 0.5).findings] == ["too_little_noise"]


def test_sums_that_are_shown_before_all_records_are_added():
    assert told(shown).suspicions[0].kind == "changed_after_release"


WEIGHTS = {
    "last alone": (lambda turn, noise: jnp.where(turn == 3, noise, 0.0), []),
    "last alone, as a factor": (lambda turn, noise: (turn == 3) * noise, []),
    "two of them": (lambda turn, noise: jnp.where(turn >= 2, noise, 0.0), ["key_used_twice"]),
    "none of them": (lambda turn, noise: jnp.where(turn == 9, noise, 0.0), ["released_without_noise"]),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_noise_that_comes_with_some_microbatches(weights):
    weighed, kinds = WEIGHTS[weights]

    def step(key, rows):
        micro = jnp.pad(rows, ((0, 8 - len(rows)), (0, 0))).reshape(4, 2, -1)

        def add(total, given):
            turn, batch = given
            noise = weighed(turn, jax.random.normal(key, total.shape))
            return total + jax.vmap(clipped)(batch).sum(0) + noise, None

        return jax.lax.scan(add, jnp.zeros(rows.shape[1]), (jnp.arange(4), micro))[0]

    pair = mechanisms.worst_case_pair(records=RECORDS, dimension=6, clip=3.0)
    found = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert [one.kind for one in found][:1] == kinds, found


def of_half(row):
    return row / jnp.maximum(1.0, jnp.linalg.norm(row[3:]))  # the line that measures


@pytest.mark.few(2)
@pytest.mark.parametrize("records", [RECORDS, RECORDS + 1], ids=["a microbatch of its own", "beside another"])
@pytest.mark.parametrize("adding", [lambda add, micro: jax.lax.map(add, micro).sum(0), None], ids=["map", "scan"])
def test_the_line_that_measures_a_record_is_named_in_microbatches(adding, records):
    def summed(batch):
        return jax.vmap(of_half)(batch).sum(0)

    def step(key, rows):
        micro = jnp.pad(rows, ((0, len(rows) % 2), (0, 0))).reshape(-1, 2, 6)
        if adding is not None:
            total = adding(summed, micro)
        else:
            total = jax.lax.scan(lambda had, batch: (had + summed(batch), None), jnp.zeros(6), micro)[0]
        return total + jax.random.normal(key, (6,))

    rows = np.random.default_rng(0).normal(size=(records + 1, 6)).astype("f4")
    rows[-1] *= 9
    pair = mechanisms.pair(rows[:-1], rows)
    (found,) = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert found.kind == "too_little_noise"
    assert linecache.getline(*found.lines[0]).rstrip().endswith("# the line that measures")


def test_one_number_of_noise_in_every_round_is_no_noise_of_an_earlier_one():
    def step(key, rows):
        first, second = (jax.random.normal(own, ()) * jnp.ones(6) for own in jax.random.split(key))
        released = jax.vmap(clipped)(rows).sum(0) + first
        return jnp.stack([released, jax.vmap(lambda row: clipped(row + released))(rows).sum(0) + second])

    rows = np.random.default_rng(0).normal(size=(RECORDS + 1, 6)).astype("f4")
    found = explain(step, mechanisms.pair(rows[:-1], rows), key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert {one.kind for one in found.findings} == {"key_used_twice"}
    assert all("one number for 6 coordinates" in one.says for one in found.findings), found
