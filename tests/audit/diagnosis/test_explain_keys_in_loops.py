"""A key for each record, drawn from inside of a loop over the records: right code, and the same code with a fault."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from audit.diagnosis.explain import explain
from guarantees import gaussian, subsampled_gaussian
from mechanisms import mechanism, worst_case_pair

COLUMNS = 6
ZEROS = jnp.zeros(COLUMNS)
SAMPLED = subsampled_gaussian(rate=0.5, noise_multiplier=1.0)


def unit(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=-1, keepdims=True))


def coin(row, key):
    return unit(row) * (jax.random.uniform(key) < 0.5)


def coin_of_bits(row, key):
    return unit(row) * (jax.random.bits(key, (), jnp.uint8) < 128)


def summed_by_scan(each, *columns):
    def add(total, one):
        return total + each(*one), None

    return lax.scan(add, ZEROS, columns)[0]


def scanned(rows, key):
    return summed_by_scan(coin, rows, jax.random.split(key, len(rows)))


def scanned_backwards(rows, key):
    keys = jax.random.split(key, len(rows))
    return lax.scan(lambda total, one: (total + coin(*one), None), ZEROS, (rows, keys), reverse=True)[0]


def scanned_bits(rows, key):
    return summed_by_scan(coin_of_bits, rows, jax.random.split(key, len(rows)))


def scanned_old_keys(rows, key):
    keys = jax.random.split(jax.random.key_data(key), len(rows))
    return summed_by_scan(coin, rows, keys)


def scanned_numbers(rows, key):
    return summed_by_scan(lambda row, i: coin(row, jax.random.fold_in(key, i)), rows, jnp.arange(len(rows)))


def scanned_folded(rows, key):
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(len(rows)))
    return summed_by_scan(coin, rows, keys)


def scanned_alone(rows, key):
    keys = jax.random.split(key, len(rows))
    return summed_by_scan(lambda own, k: jax.vmap(coin)(own, k).sum(0), rows[:, None], keys[:, None])


def scanned_twice(rows, key):
    first, second = (jax.random.split(own, len(rows)) for own in jax.random.split(key))

    def both(row, one, other):
        return lax.scan(lambda total, k: (total + coin(row, k) / 2, None), ZEROS, jnp.stack([one, other]))[0]

    return summed_by_scan(both, rows, first, second)


def scanned_rounds(rows, key):
    def add(total, keys):
        return total + summed_by_scan(coin, rows, keys) / 3, None

    return lax.scan(add, ZEROS, jax.random.split(key, (3, len(rows))))[0]


def mapped(rows, key):
    return lax.map(lambda one: coin(*one), (rows, jax.random.split(key, len(rows)))).sum(0)


def mapped_by_two(rows, key):
    return lax.map(lambda one: coin(*one), (rows, jax.random.split(key, len(rows))), batch_size=2).sum(0)


def joined(rows, key):
    parts = lax.map(lambda one: coin(*one), (rows, jax.random.split(key, len(rows))))
    return lax.associative_scan(jnp.add, parts)[-1]


def looped(rows, key):
    keys = jax.random.split(key, len(rows))
    return lax.fori_loop(0, len(rows), lambda i, total: total + coin(rows[i], keys[i]), ZEROS)


def looped_old_keys(rows, key):
    keys = jax.random.split(jax.random.key_data(key), len(rows))
    return lax.fori_loop(0, len(rows), lambda i, total: total + coin(rows[i], keys[i]), ZEROS)


def looped_splits(rows, key):
    def body(i, total):
        return total + coin(rows[i], jax.random.split(key, len(rows))[i])

    return lax.fori_loop(0, len(rows), body, ZEROS)


def dropped_out(rows, key):
    def one(given):
        row, own = given
        return unit(row * jax.random.bernoulli(own, 0.9, row.shape))

    return lax.map(one, (rows, jax.random.split(key, len(rows)))).sum(0)


LOOPS = [scanned, scanned_backwards, scanned_bits, scanned_old_keys, scanned_numbers, scanned_folded, scanned_alone]
LOOPS += [scanned_twice, scanned_rounds, mapped, mapped_by_two, joined, looped, looped_old_keys, looped_splits]


def told_of(batch, records=3, deviation=1.0, claim=SAMPLED):
    def step(key, rows):
        noise, own = jax.random.split(key)
        return batch(rows, own) + deviation * jax.random.normal(noise, (COLUMNS,))

    return judged(step, records, claim)


def judged(step, records=3, claim=SAMPLED):
    pair = worst_case_pair(records=records, dimension=COLUMNS, clip=1.0)
    return explain(mechanism(step, clip=1.0, noise_multiplier=1.0), pair, key=jax.random.key(0), claim=claim)


@pytest.mark.few(3)
@pytest.mark.parametrize("records", [3, 4])
@pytest.mark.parametrize("batch", LOOPS, ids=lambda batch: batch.__name__)
def test_a_key_for_each_record_is_no_fault_in_a_loop(batch, records):
    assert told_of(batch, records).findings == ()


def test_dropout_inside_of_a_loop_is_no_fault():
    assert told_of(dropped_out, claim=gaussian(mu=1.0)).findings == ()


def with_last_key(key, rows):
    keys = jax.random.split(key, len(rows) + 1)
    return jax.vmap(coin)(rows, keys[:-1]).sum(0) + jax.random.normal(keys[-1], (COLUMNS,))


def test_the_last_key_of_the_records_and_the_noise_is_no_fault():
    assert not judged(with_last_key).findings


def test_keys_in_another_order_with_one_record_more_are_not_judged():
    def backwards(rows, key):
        keys, last = jax.random.split(key, len(rows)), len(rows) - 1
        return lax.fori_loop(0, len(rows), lambda i, total: total + coin(rows[last - i], keys[last - i]), ZEROS)

    (found,) = told_of(backwards).findings
    assert found.kind == "not_followed"


@pytest.mark.parametrize("records", [True, False], ids=["what a record holds", "all records"])
def test_a_key_made_of_all_data_is_found_in_a_loop_and_one_of_the_record_alone_is_not_judged(records):
    def seeded(rows, key):
        if records:
            return summed_by_scan(lambda row: coin(row, jax.random.fold_in(key, jnp.int32(100 * row[0]))), rows)
        own = jax.random.fold_in(key, jnp.int32(1000 * rows.sum()))
        return summed_by_scan(coin, rows, jax.random.split(own, len(rows)))

    found = told_of(seeded)
    assert {one.kind for one in found.findings} == {"not_followed" if records else "randomness_from_data"}
    assert "()" not in str(found)


@pytest.mark.parametrize("batch", [scanned, mapped, looped], ids=lambda batch: batch.__name__)
def test_half_of_the_noise_is_found_behind_such_a_loop(batch):
    (found,) = told_of(batch, deviation=0.5).findings
    assert found.kind == "too_little_noise"
