"""Which records are in a batch together: Poisson batches take each record by a coin of its own, at the claim's rate."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain
from guarantees import subsampled_gaussian

ROWS = 3 * np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
RATE = 0.4


def one_coin(key, records):
    return jnp.broadcast_to(jax.random.bernoulli(key, RATE), (records,))  # wrong


def pairs(key, records):
    return jnp.repeat(jax.random.uniform(key, ((records + 1) // 2,)), 2)[:records] < RATE  # wrong


def better_of_two(key, records):
    return (jax.random.uniform(key, (2, records)) < RATE).any(0)  # wrong


def inside(key, records):
    return jnp.abs(jax.random.normal(key, (records,))) < 1.0  # wrong


def at_least_one(key, records):
    coins = jax.random.uniform(key, (records,))  # wrong
    return (coins < RATE) | ((coins == coins.min()) & ~(coins < RATE).any())  # wrong


def with_replacement(key, records):
    return jnp.zeros(records).at[jax.random.randint(key, (3,), 0, records)].set(1.0)  # wrong


SAID = {
    one_coin: "holds all of 6 records in at least",
    pairs: "holds both of 2 records in at least",
    better_of_two: "holds the record in at least",
    inside: "of 1,024 runs",
    at_least_one: "holds at least one of 6 records in all 1,024 runs, where a coin for each would give about 976",
    with_replacement: "",
}


def its_own_coin(key, records):
    return jax.random.uniform(key, (records,)) < RATE


def of_two_numbers(key, records):
    one, other = jax.random.uniform(key, (2, records))
    return (one < 0.8) & (other < RATE / 0.8)


def of_bits(key, records):
    return jax.random.bits(key, (records,)) < np.uint32(RATE * 2**32)


def of_a_key_each(key, records):
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(records))
    return jax.vmap(lambda own: jax.random.normal(own) ** 2 < 0.27)(keys)


def step(sampler, dropped=0.0, hides=None):
    def own(key, rows):
        batch, noise, drop = jax.random.split(key, 3)
        if dropped:
            # the same entries of all records
            rows = rows * jax.random.bernoulli(drop, 1 - dropped, rows.shape[1:])
        rows = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
        taken = sampler(batch, len(rows)).astype("f4")
        if hides == "skipped":
            taken = taken * jax.random.bernoulli(drop, 0.8)
        if hides == "tasks":
            taken = taken * (jnp.arange(len(rows)) % 2 == jax.random.randint(drop, (), 0, 2))
        noisy = taken @ rows + jax.random.normal(noise, rows.shape[1:])
        return AFTER.get(hides, lambda noisy: noisy)(noisy)

    return own


AFTER = {
    "vote": jnp.argmax,
    "gate": lambda noisy: jnp.where(noisy.sum() > 0, noisy, 0.0),
    "sign": lambda noisy: jnp.sign(noisy[0]),
    "threshold": lambda noisy: jnp.where(jnp.abs(noisy) > 2.0, noisy, 0.0),
}
"""What is done to the release, so that not every record of the batch is seen."""


def told(sampler, *, seed=0, relation="add_remove", **how):
    pair = mechanisms.pair(ROWS[:-1], ROWS) if relation == "add_remove" else mechanisms.zero_out(ROWS, 3)
    claim = subsampled_gaussian(rate=RATE, noise_multiplier=1.0, relation=relation)
    return explain(step(sampler, **how), pair, key=jax.random.key(seed), claim=claim, clip=1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
@pytest.mark.parametrize("sampler", SAID)
def test_records_that_are_not_drawn_one_by_one_are_found(sampler, relation):
    (found,) = told(sampler, relation=relation).suspicions
    lines, start = inspect.getsourcelines(sampler)
    wrong = [(__file__, start + number) for number, line in enumerate(lines) if "# wrong" in line]
    assert found.kind == Kind.SAMPLED_OTHERWISE
    assert found.lines[0] in wrong, found
    assert SAID[sampler] in found.says


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sampler", [of_two_numbers, of_bits, of_a_key_each, its_own_coin])
def test_nothing_is_said_of_coins_of_their_own(sampler, seed):
    assert told(sampler, seed=seed).findings == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("dropped", [0.2, 0.5])
@pytest.mark.parametrize("sampler", [of_two_numbers, of_bits])
def test_what_is_drawn_for_all_records_besides_is_no_fault(sampler, dropped):
    assert told(sampler, dropped=dropped).findings == ()


@pytest.mark.few(2)
@pytest.mark.parametrize("hides", ["skipped", "tasks", *AFTER])
def test_what_hides_records_is_no_fault(hides):
    assert told(of_two_numbers, hides=hides).suspicions == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("hides", ["skipped", "gate"])
def test_a_shared_coin_is_found_behind_what_hides_records(hides):
    (found,) = told(pairs, hides=hides).suspicions
    assert found.kind == Kind.SAMPLED_OTHERWISE
