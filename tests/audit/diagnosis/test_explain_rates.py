"""A record that is in every batch, where the claim has Poisson batches that hold it now and then."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.replay import without_consequences

ROWS = np.random.default_rng(1).normal(size=(8, 5)).astype("f4")
ROWS[-1] *= 4
RATE = 0.5


def clipped(rows):
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def masked(key, rows):
    batch, noise = jax.random.split(key)
    taken = jax.random.bernoulli(batch, RATE, (len(rows), 1))
    return (taken * clipped(rows)).sum(0) + jax.random.normal(noise, (5,))


def filled_and_masked(key, rows):
    batch, noise = jax.random.split(key)
    taken = jax.random.bernoulli(batch, RATE, (len(rows),))
    order = jnp.nonzero(taken, size=len(rows), fill_value=0)[0]
    there = jnp.arange(len(rows)) < taken.sum()
    return (there[:, None] * clipped(rows[order])).sum(0) + jax.random.normal(noise, (5,))


def filled(key, rows):
    batch, noise = jax.random.split(key)
    taken = jax.random.bernoulli(batch, RATE, (len(rows),))
    order = jnp.nonzero(taken, size=len(rows), fill_value=0)[0]
    return clipped(rows[order]).sum(0) + jax.random.normal(noise, (5,))  # HERE


def in_order(key, rows):
    batch, noise = jax.random.split(key)
    taken = jax.random.bernoulli(batch, RATE, (len(rows),))
    order = jnp.argsort(~taken, stable=True)
    return clipped(rows[order]).sum(0) + jax.random.normal(noise, (5,))  # HERE


def everybody(key, rows):
    return clipped(rows).sum(0) + jax.random.normal(key, (5,))  # HERE


def one_batch(seed):
    def step(key, rows):
        taken = jax.random.bernoulli(jax.random.key(seed), RATE, (len(rows), 1))  # HERE
        return (taken * clipped(rows)).sum(0) + jax.random.normal(key, (5,))

    return step


def told(step, rate=RATE, seed=0):
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=1.0)
    return explain(step, mechanisms.pair(ROWS[:-1], ROWS), key=jax.random.key(seed), claim=claim)


def here(step) -> int:
    source, start = inspect.getsourcelines(step)
    return start + next(n for n, line in enumerate(source) if "# HERE" in line)


def constant_seed(*, joins: bool) -> int:
    """Of a constant batch that holds the last record of eight, or does not."""
    drawn = (bool(jax.random.bernoulli(jax.random.key(seed), RATE, (8, 1))[-1, 0]) for seed in range(20))
    return next(seed for seed, taken in enumerate(drawn) if taken == joins)


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [filled, in_order, everybody, one_batch(constant_seed(joins=True))])
def test_a_record_that_every_batch_holds_is_found(step):
    (found,) = told(step).findings
    assert found.kind == Kind.IN_EVERY_BATCH
    assert found.lines[0] == (__file__, here(step)), found
    assert "14 runs" in found.says


def test_a_batch_of_a_constant_key_without_the_record_is_not_judged_and_its_line_is_told():
    (found,) = told(one_batch(constant_seed(joins=False))).findings
    assert found.kind == Kind.NOT_FOLLOWED
    assert "the constant key of test_explain_rates.py:" in found.says


@pytest.mark.few(2)
@pytest.mark.parametrize("step", [masked, filled_and_masked])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_of_batches_that_leave_the_record_out(step, seed):
    assert told(step, seed=seed).findings == ()


def test_a_rate_near_one_takes_many_runs_to_see_that_every_batch_holds_the_record():
    (found,) = told(everybody, rate=0.9).findings
    assert found.kind == Kind.SAMPLED_OTHERWISE
    assert "The first batch holds the record in all 1,024 runs" in found.says


def test_nothing_is_said_where_no_number_of_runs_would_show_it():
    assert told(everybody, rate=0.99).findings == ()


def packed(key, rows):
    taken = jax.random.bernoulli(key, RATE, (len(rows),))
    order = jnp.argsort(~taken, stable=True)
    empty = 10 - len(rows)
    return jnp.pad(rows[order], [(0, empty), (0, 0)]), jnp.pad(taken[order].astype("f4"), (0, empty))


def over_the_drawn(key, rows):
    batch, noise = jax.random.split(key)
    picked, mask = packed(batch, rows)
    return (mask @ clipped(picked) + jax.random.normal(noise, (5,))) / mask.sum()


def without_clipping(key, rows):
    batch, noise = jax.random.split(key)
    picked, mask = packed(batch, rows)
    total = mask @ picked  # HERE
    return total + jax.random.normal(noise, (5,))


def test_padding_is_not_called_a_sum_and_does_not_stand_first():
    found = told(without_clipping).findings[0]
    assert found.kind == Kind.NOT_CLIPPED
    assert f"nothing bounds what is summed at test_explain_rates.py:{here(without_clipping)}" in found.says
    assert found.lines[0] == (__file__, here(without_clipping))


def test_the_number_of_drawn_records_is_not_called_that_of_all():
    (found,) = told(over_the_drawn).findings
    assert "(from the number of records)" not in found.says


def test_batches_that_differ_are_not_called_noise_that_is_too_little():
    chosen, little = (
        Finding(kind=kind, lines=(), says="") for kind in (Kind.RANDOMNESS_FROM_DATA, Kind.TOO_LITTLE_NOISE)
    )
    assert without_consequences([chosen, little], uncoupled=True) == [chosen]
    assert without_consequences([little], uncoupled=True) == [little]


def from_below(key, records):
    return jax.random.uniform(key, (records,)) < np.sqrt(RATE)  # HERE


def from_above(key, records):
    return jax.random.uniform(key, (records,)) > 1 - 1.4 * RATE  # HERE


def by_coins(key, records):
    return jax.random.bernoulli(key, 1.2 * RATE, (records,))  # HERE


def in_logarithms(key, records):
    return jnp.log(jax.random.uniform(key, (records,))) < np.log(1.5 * RATE)  # HERE


def key_by_key(key, records):
    return jax.vmap(lambda own: jax.random.uniform(own, minval=-1.0) < 0.4)(jax.random.split(key, records))  # HERE


def by_whole_numbers(key, records):
    return jax.random.randint(key, (records,), 0, 10) < 6  # HERE


def with_batches(sampler):
    def step(key, rows):
        batch, noise = jax.random.split(key)
        return sampler(batch, len(rows)) @ clipped(rows) + jax.random.normal(noise, (5,))

    return step


@pytest.mark.few(2)
@pytest.mark.parametrize("sampler", [from_below, from_above, by_coins, in_logarithms, key_by_key, by_whole_numbers])
@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
def test_a_record_that_is_taken_more_often_than_claimed_is_found(sampler, relation):
    pair = mechanisms.zero_out(ROWS, 3) if relation == "zero_out" else mechanisms.pair(ROWS[:-1], ROWS)
    claim = guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=1.0, relation=relation)
    (found,) = explain(with_batches(sampler), pair, key=jax.random.key(0), claim=claim).findings
    assert (found.kind, found.lines[0]) == (Kind.SAMPLED_OTHERWISE, (__file__, here(sampler))), found
    assert any(f"with probability {rate}" in found.says for rate in ("0.7", "0.6", "0.75")), found


SEATS = 12


def in_seats(numbers, rate=RATE):
    """A number for each public seat; the records sit in the first ones."""

    def step(key, rows):
        batch, noise = jax.random.split(key)
        seated = jnp.pad(clipped(rows), [(0, SEATS - len(rows)), (0, 0)])
        taken = numbers(batch, rate) & (jnp.arange(SEATS) < len(rows))
        return taken @ seated + jax.random.normal(noise, (5,))

    return step


def one_number_a_seat(key, rate):
    return jax.random.uniform(key, (SEATS,)) < rate


def one_large_number_a_seat(key, rate):
    return jax.random.uniform(key, (SEATS,)) > 1 - rate


def one_coin_a_seat(key, rate):
    return jax.random.bernoulli(key, rate, (SEATS,))


def two_numbers_a_seat(key, rate):
    one, other = jax.random.uniform(key, (2 * SEATS,)).reshape(2, SEATS)
    return (one < 0.8) & (other < rate / 0.8)


@pytest.mark.few(1)
@pytest.mark.parametrize("numbers", [one_number_a_seat, one_large_number_a_seat, one_coin_a_seat])
@pytest.mark.parametrize("records", [3, 8])
def test_a_rate_above_the_claims_is_found_where_seats_are_public(numbers, records):
    claim = guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=1.0)
    pair = mechanisms.pair(ROWS[-records:-1], ROWS[-records:])
    (found,) = explain(in_seats(numbers, 0.7), pair, key=jax.random.key(0), claim=claim).findings
    assert found.kind == Kind.SAMPLED_OTHERWISE
    assert "with probability 0.7," in found.says
    assert explain(in_seats(numbers), pair, key=jax.random.key(0), claim=claim).findings == ()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_record_with_two_numbers_of_one_draw_is_not_said_to_have_the_rate_of_the_first(seed):
    assert told(in_seats(two_numbers_a_seat), seed=seed).findings == ()


def two_coins(key, records):
    one, other = jax.random.uniform(key, (2, records))
    return (one < 0.8) & (other < RATE / 0.8)


def two_draws(key, records):
    one, other = jax.random.split(key)
    return jax.random.bernoulli(one, 0.8, (records,)) & jax.random.bernoulli(other, RATE / 0.8, (records,))


def even_numbers(key, records):
    return jax.random.randint(key, (records,), 0, 10) % 2 == 0


def flipped(key, rows):
    """An augmentation draws a coin for each record, too."""
    coins, rest = jax.random.split(key)
    return masked(rest, jnp.where(jax.random.bernoulli(coins, 0.9, (len(rows), 1)), -rows, rows))


def dropped(key, rows):
    """Units of each record are dropped, with a probability that is no rate."""
    units, rest = jax.random.split(key)
    return masked(rest, rows * jax.random.bernoulli(units, 0.9, rows.shape))


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [*map(with_batches, (two_coins, two_draws, even_numbers)), flipped, dropped])
def test_nothing_is_said_of_coins_that_do_not_take_the_record_too_often(step):
    assert told(step).findings == ()


def test_what_later_rounds_read_without_noise_is_told_of_its_leaf():
    earlier, leaf = (
        Finding(kind=Kind.RELEASED_WITHOUT_NOISE, lines=tuple(("own.py", line) for line in lines), says="")
        for lines in ((7, 12), (7, 20, 12))
    )
    assert without_consequences([earlier, leaf], uncoupled=False) == [leaf]
