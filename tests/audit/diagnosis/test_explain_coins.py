"""Coins that answer for records, or stand in for noise: no line of right code is named; the rest is not followed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = np.random.default_rng(3).normal(size=(10, 5)).astype("f4")
PAIRS = {
    "add_remove": mechanisms.pair(ROWS[:-1], ROWS),
    "substitution": mechanisms.replace_record(ROWS, 9, -ROWS[9]),
}
HEADS, ONE, OTHER = (
    lambda key, like, rate=0.25, own=own: jax.random.bernoulli(_own(key, own), rate, like.shape) for own in range(3)
)


def _own(key, number):
    return jax.random.fold_in(key, number)


def yes(rows):
    return rows[:, 0] > 0


def signs(rows):
    return jnp.where(yes(rows), 1.0, -1.0)


def kinds(rows):
    return jax.nn.one_hot(jnp.argmax(rows, axis=1), 5)


def one_by_one(key, rows):
    total = 0.0
    for row in rows:
        key, own = jax.random.split(key)
        answer = (row[0] > 0).astype("f4")
        total = total + jnp.where(jax.random.bernoulli(own, 0.75), answer, 1 - answer)
    return total


def branches(key, rows):
    def add(state, row):
        total, key = state
        key, coin, own = jax.random.split(key, 3)
        told = jax.lax.cond(jax.random.bernoulli(coin), lambda: row[0] > 0, lambda: jax.random.bernoulli(own))
        return (total + told, key), None

    return jax.lax.scan(add, (0, key), rows)[0][0]


def bits(key, shape):
    return jax.random.bernoulli(key, 0.5, shape)


RIGHT = {
    "the other answer": lambda key, rows: jnp.where(HEADS(key, yes(rows)), ~yes(rows), yes(rows)).mean(),
    "flipped": lambda key, rows: (yes(rows) ^ HEADS(key, yes(rows))).sum(),
    "compared": lambda key, rows: (yes(rows) != HEADS(key, yes(rows))).sum(),
    "subtracted": lambda key, rows: jnp.abs(yes(rows) - HEADS(key, yes(rows)).astype("f4")).sum(),
    "signs": lambda key, rows: signs(rows) @ (2.0 * HEADS(key, yes(rows), 0.75) - 1),
    "a coin's answer": lambda key, rows: jnp.where(ONE(key, yes(rows)), HEADS(key, yes(rows)), yes(rows)).sum(),
    "one of two": lambda key, rows: ((yes(rows) & ONE(key, yes(rows))) | (~yes(rows) & HEADS(key, yes(rows)))).sum(),
    "two rates": lambda key, rows: jnp.where(kinds(rows) > 0, ONE(key, kinds(rows), 0.5), OTHER(key, kinds(rows))).sum(
        0
    ),
    "each kind": lambda key, rows: jnp.where(HEADS(key, kinds(rows)), 1 - kinds(rows), kinds(rows)).sum(0),
    "a rate for each": lambda key, rows: jax.random.bernoulli(key, 0.5 + 0.49 * jnp.sign(rows[:, 0])).mean(),
    "sampled answers": lambda key, rows: (ONE(key, yes(rows), 0.5) * (yes(rows) ^ HEADS(key, yes(rows)))).sum(),
    "coins for noise": lambda key, rows: (rows > 0).sum(0) + bits(key, (200, 5)).sum(0),
    "a binomial number": lambda key, rows: (rows > 0).sum(0) + jax.random.binomial(key, 100, 0.5, (5,)),
    "one by one": one_by_one,
    "branches": branches,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("relation", PAIRS)
@pytest.mark.parametrize("answers", RIGHT)
def test_no_line_is_named_where_coins_answer_for_records(answers, relation):
    found = explain(RIGHT[answers], PAIRS[relation], key=jax.random.key(0))
    assert found.suspicions == ()
    assert "noise reaches the output in a way that is not followed" in str(found)
    assert "failed" not in str(found)


ANSWER = mechanisms.replace_record(np.array([0]), 0, 3)
VOTES = mechanisms.replace_record(np.array([0, 2]), 0, 2)
BESIDE = {
    "raw answer": (lambda key, x: {"raw": x[0], "told": x[0] ^ HEADS(key, x[0]).astype(int)}, ANSWER),
    "dropped": (lambda key, x: jnp.where(HEADS(key, x[0]), x[0], 0), ANSWER),
    "sampled sum": (lambda key, x: (HEADS(key, x) * x).sum(), mechanisms.add_record(np.array([1, 1, 1]), 1)),
    "largest": (lambda key, x: (jnp.argmax(jnp.bincount(x, length=4)), HEADS(key, x)), VOTES),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("release", BESIDE)
def test_data_beside_coins_are_found(release):
    step, pair = BESIDE[release]
    found = [explain(step, pair, key=jax.random.key(seed)).suspicions for seed in range(3)]
    assert Kind.RELEASED_WITHOUT_NOISE in {one.kind for told in found for one in told}


NUMBERED = {
    "a rate": lambda key, x: jax.random.bernoulli(key, jax.nn.sigmoid(len(x) - 3.5)),
    "added coins": lambda key, x: len(x) + jax.random.bernoulli(key, 0.5, (64,)).sum(),
}


@pytest.mark.parametrize("answer", NUMBERED)
def test_coins_that_answer_for_the_number_of_records_are_not_judged(answer):
    pair = mechanisms.add_record(np.array([1, 1, 1]), 1)
    (found,) = explain(NUMBERED[answer], pair, key=jax.random.key(0)).findings
    assert found.kind == Kind.NOT_FOLLOWED
    assert "the number of records changes what a random choice makes of the output" in found.says


SAMPLED = {
    "product": lambda taken, rows: (taken[:, None] * rows).sum(0),
    "choice": lambda taken, rows: jnp.where(taken[:, None], rows, 0.0).sum(0),
    "matrix": lambda taken, rows: taken.astype("f4") @ rows,
    "mean": lambda taken, rows: (taken[:, None] * rows).sum(0) / jnp.maximum(1, taken.sum()),
    "turned": lambda taken, rows: jnp.where(taken[:, None], rows[:, ::-1], rows).sum(0),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("batch", SAMPLED)
def test_coins_that_take_records_or_turn_pictures_cover_none(batch):
    def step(key, rows):
        rows = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
        return SAMPLED[batch](jax.random.bernoulli(key, 0.5, (len(rows),)), rows)

    (found,) = explain(step, PAIRS["substitution"], key=jax.random.key(0)).suspicions
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE


def test_keys_that_are_made_of_an_identity_for_each_record_are_no_fault():
    data = {"id": 7 * np.arange(10, dtype="i4"), "row": ROWS}
    pair = mechanisms.pair({name: column[:-1] for name, column in data.items()}, data)

    def step(key, data):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, data["id"])
        taken = jax.vmap(jax.random.bernoulli)(keys)
        return taken @ jnp.tanh(data["row"]) + jax.random.normal(_own(key, 2**30), (5,))

    (found,) = explain(step, pair, key=jax.random.key(0)).findings
    assert found.kind == Kind.NOT_FOLLOWED
    assert "independent only if no two records hold the same" in found.says


def test_a_key_that_is_made_of_all_records_is_one():
    def step(key, rows):
        own = jax.random.fold_in(key, jnp.abs(1000 * rows).sum().astype("i4"))
        return jnp.tanh(rows).sum(0) + jax.random.normal(own, (5,))

    (found,) = explain(step, PAIRS["add_remove"], key=jax.random.key(0)).suspicions
    assert found.kind == Kind.RANDOMNESS_FROM_DATA
