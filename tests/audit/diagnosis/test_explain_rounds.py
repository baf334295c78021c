"""Faults between rounds: sums that are carried on without their noise, and one draw for the batches of all rounds."""

from __future__ import annotations

import functools
import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.jaxprs import replay

COLUMNS, ROUNDS, RATE, KEPT = 3, 2, 0.6, 0.9
KEY = jax.random.key(0)
X, Y = np.random.default_rng(0).normal(size=(6, COLUMNS)).astype("f4"), np.linspace(-1, 5, 6).astype("f4")
PAIR = mechanisms.pair((X[:-1], Y[:-1]), (X, Y))


def total(weights, data, taken=1.0):
    rows = (data[0] @ weights - data[1])[:, None] * data[0]
    clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
    return (clipped * jnp.reshape(taken, (-1, 1))).sum(0)


def momentum(key, data):
    weights = velocity = jnp.zeros(COLUMNS)
    for own in jax.random.split(key, ROUNDS):
        velocity = KEPT * velocity + total(weights, data)  # HERE
        weights = weights - 0.1 * (velocity + jax.random.normal(own, (COLUMNS,)))
    return weights


def momentum_of_batches(key, data, rate=RATE):
    """In microbatches, in which no axis of records is left."""
    batch, noise = jax.random.split(key)
    weights = velocity = jnp.zeros(COLUMNS)
    for step, own in enumerate(jax.random.split(noise, ROUNDS)):
        taken = jax.random.bernoulli(jax.random.fold_in(batch, step), rate, (len(data[1]),))
        columns = [jnp.pad(one, [(0, -len(one) % 8)] + [(0, 0)] * (one.ndim - 1)) for one in (*data, taken)]
        x, y, present = (one.reshape(-1, 4, *one.shape[1:]) for one in columns)
        parts = [total(weights, own_rows, kept) for *own_rows, kept in zip(x, y, present, strict=True)]
        velocity = KEPT * velocity + sum(parts)  # HERE
        weights = weights - 0.1 * (velocity + jax.random.normal(own, (COLUMNS,)))
    return weights


def average_in_a_scan(key, data):
    def step(carry, own):
        weights, average = carry
        average = KEPT * average + (1 - KEPT) * total(weights, data)  # HERE
        weights = weights - average - (1 - KEPT) * jax.random.normal(own, (COLUMNS,))
        return (weights, average), None

    return jax.lax.scan(step, (jnp.zeros(COLUMNS), jnp.zeros(COLUMNS)), jax.random.split(key, ROUNDS))[0][0]


def right_momentum(key, data):
    weights = velocity = jnp.zeros(COLUMNS)
    for own in jax.random.split(key, ROUNDS):
        velocity = KEPT * velocity + total(weights, data) + jax.random.normal(own, (COLUMNS,))
        weights = weights - 0.1 * velocity
    return weights


def one_batch_key(key, data):
    weights, (batch, noise) = jnp.zeros(COLUMNS), jax.random.split(key)
    for own in jax.random.split(noise, ROUNDS):
        taken = jax.random.bernoulli(batch, RATE, (len(data[1]),))  # HERE
        weights = weights - 0.1 * (total(weights, data, taken) + jax.random.normal(own, (COLUMNS,)))
    return weights


def one_batch_key_in_a_transcript(key, data):
    released, (batch, noise) = [], jax.random.split(key)
    for own in jax.random.split(noise, ROUNDS):
        taken = jax.random.uniform(batch, (len(data[1]),)) < RATE  # HERE
        released.append(total(jnp.ones(COLUMNS), data, taken) + jax.random.normal(own, (COLUMNS,)))
    return jnp.stack(released)


def right_column_by_column(key, data):
    """One batch, drawn for each column anew: the same numbers on purpose."""
    weights = jnp.zeros(COLUMNS)
    for own in jax.random.split(key, ROUNDS):
        batch, noise = jax.random.split(own)
        x = data[0] * jax.random.bernoulli(batch, RATE, (len(data[1]),))[:, None]
        y = data[1] * jax.random.bernoulli(batch, RATE, (len(data[1]),))
        weights = weights - 0.1 * (total(weights, (x, y)) + jax.random.normal(noise, (COLUMNS,)))
    return weights


def right_one_order(key, data):
    order, noise = jax.random.split(key)
    x, y = (column[jax.random.permutation(order, len(column))] for column in data)
    return total(jnp.zeros(COLUMNS), (x, y)) + jax.random.normal(noise, (COLUMNS,))


def halved_number(key, data):
    def round_(weights, number):
        own = jax.random.fold_in(key, number // 2)  # HERE
        return weights - 0.1 * (total(weights, data) + jax.random.normal(own, (COLUMNS,))), None

    return jax.lax.scan(round_, jnp.zeros(COLUMNS), jnp.arange(ROUNDS))[0]


def noised(key, own):
    return own + jax.random.normal(key, (COLUMNS,))


def moved_by(weights, own):
    return weights - 0.1 * own


def goes_on_without(key, data):
    weights = jnp.zeros(COLUMNS)
    own = total(weights, data)
    noisy = noised(key, own)
    return {"sum": noisy, "weights": moved_by(weights, own)}  # HERE


def shown_with_noise(key, data):
    weights, shown = jnp.zeros(COLUMNS), []
    for own in jax.random.split(key, ROUNDS):
        clean = total(weights, data)
        shown.append(noised(own, clean / 2.0))
        weights = moved_by(weights, clean)  # HERE
    return jnp.stack(shown)


def record_by_record(key, data):
    """The same where a loop takes one record after the other, and no axis of records is left."""

    def turn(weights, own):
        def add(clean, record):
            gradient = (record[0] @ weights - record[1]) * record[0]
            return clean + gradient / jnp.maximum(1.0, jnp.linalg.norm(gradient)), None

        clean = jax.lax.scan(add, jnp.zeros(COLUMNS), data)[0]
        shown = noised(own, clean)
        return moved_by(weights, clean), shown  # HERE

    return jax.lax.scan(turn, jnp.zeros(COLUMNS), jax.random.split(key, ROUNDS))[1]


def first_round_in_a_branch(key, data):
    def turn(weights, step):
        number, own = step
        clean = jax.lax.fori_loop(
            0, len(data[1]), lambda row, sum_: sum_ + total(weights, [c[row][None] for c in data]), jnp.zeros(COLUMNS)
        )
        shown = jax.lax.cond(number == 0, lambda: noised(own, clean), lambda: clean)  # HERE
        return moved_by(weights, shown), shown

    return jax.lax.scan(turn, jnp.zeros(COLUMNS), (jnp.arange(ROUNDS), jax.random.split(key, ROUNDS)))[1]


def first_round_alone(key, data):
    def turn(weights, step):
        number, own = step
        deviation = jnp.where(number == 0, 1.0, 0.0)  # HERE
        shown = total(weights, data) + deviation * jax.random.normal(own, (COLUMNS,))
        return moved_by(weights, shown), shown

    return jax.lax.scan(turn, jnp.zeros(COLUMNS), (jnp.arange(ROUNDS), jax.random.split(key, ROUNDS)))[1]


WRONG = {
    shown_with_noise: "released_without_noise",
    record_by_record: "released_without_noise",
    first_round_in_a_branch: "released_without_noise",
    first_round_alone: "released_without_noise",
    halved_number: "key_used_twice",
    goes_on_without: "released_without_noise",
    momentum: "too_little_noise",
    momentum_of_batches: "too_little_noise",
    average_in_a_scan: "too_little_noise",
    one_batch_key: "key_used_twice",
    one_batch_key_in_a_transcript: "key_used_twice",
}
TRANSCRIPTS = [one_batch_key_in_a_transcript, *list(WRONG)[:4]]
RIGHT = [right_momentum, right_column_by_column, right_one_order]


def here(step):
    source, start = inspect.getsourcelines(step)
    return __file__, start + next(number for number, text in enumerate(source) if "# HERE" in text)


@pytest.mark.few(3)
@pytest.mark.parametrize("step", WRONG, ids=lambda step: step.__name__)
def test_a_fault_between_rounds_is_named_at_its_line(step):
    given = mechanisms.mechanism(step, releases="transcript" if step in TRANSCRIPTS else "update")
    found, *more = explain(given, PAIR, key=KEY, clip=1.0, noise_multiplier=1.0).findings
    assert {one.kind for one in more} <= {found.kind}
    assert (found.kind, found.lines[0]) == (WRONG[step], here(step)), found


@pytest.mark.few(1)
@pytest.mark.parametrize("step", RIGHT, ids=lambda step: step.__name__)
def test_what_is_right_between_rounds_is_left_alone(step):
    assert not explain(step, PAIR, key=KEY, clip=1.0, noise_multiplier=1.0).findings


def test_with_half_of_the_noise_in_every_round_the_noise_stands_first():
    found = explain(momentum, PAIR, key=KEY, noise_multiplier=2.0).findings[0]
    assert found.lines[0] == (__file__, here(momentum)[1] + 1)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6)])
def test_momentum_is_found_whatever_batches_are_drawn(seed):
    (found,) = explain(momentum_of_batches, PAIR, key=jax.random.key(seed), clip=1.0, noise_multiplier=1.0).findings
    assert (found.kind, found.lines[0]) == ("too_little_noise", here(momentum_of_batches)), found


@pytest.mark.long
def test_where_the_record_is_in_one_round_alone_momentum_is_not_judged():
    rare = functools.partial(momentum_of_batches, rate=0.05)
    (found,) = explain(rare, PAIR, key=jax.random.key(1), clip=1.0, noise_multiplier=1.0).findings
    assert (found.kind, found.lines[0]) == ("not_followed", here(momentum_of_batches)), found


def test_a_sum_that_gets_noise_and_is_used_without_it_is_told_as_that():
    (found,) = explain(goes_on_without, PAIR, key=KEY, clip=1.0, noise_multiplier=1.0).findings
    assert "adds noise to that sum, but the release uses the sum without it" in found.says
    assert "others" not in found.says


def test_the_rounds_without_noise_are_told():
    given = mechanisms.mechanism(first_round_alone, releases="transcript")
    assert "in round 2," in explain(given, PAIR, key=KEY, clip=1.0, noise_multiplier=1.0).findings[0].says


def once(key, records):
    return jax.random.bernoulli(key, RATE, (records,))


def one_draw(key, data):
    taken = once(jax.random.fold_in(key, 7), len(data[1]))  # HERE

    def turn(weights, own):
        shown = noised(own, total(weights, data, taken))
        return moved_by(weights, shown), shown

    return jax.lax.scan(turn, jnp.zeros(COLUMNS), jax.random.split(key, ROUNDS))[1]


def right_all_coins_at_once(key, data):
    coins, noise = jax.random.split(key)
    taken = jax.random.uniform(coins, (ROUNDS, len(data[1]))) < RATE
    weights, shown = jnp.zeros(COLUMNS), []
    for own, chosen in zip(jax.random.split(noise, ROUNDS), taken, strict=True):
        shown.append(noised(own, total(weights, data, chosen)))
        weights = moved_by(weights, shown[-1])
    return jnp.stack(shown)


def right_one_augmentation(key, data):
    """Records are flipped once for all rounds, and each round draws its own batch."""
    signs, coins, noise = jax.random.split(key, 3)
    data = data[0] * jax.random.rademacher(signs, (len(data[1]), 1), "f4"), data[1]

    def turn(weights, own):
        shown = noised(own[1], total(weights, data, once(own[0], len(data[1]))))
        return moved_by(weights, shown), shown

    keys = jax.random.split(coins, ROUNDS), jax.random.split(noise, ROUNDS)
    return jax.lax.scan(turn, jnp.zeros(COLUMNS), keys)[1]


def told_with_a_claim(step):
    claim = guarantees.poisson_training(rate=RATE, noise_multiplier=1.0, steps=ROUNDS, accountant="certified")
    given = mechanisms.mechanism(step, releases="transcript", clip=1.0, noise_multiplier=1.0)
    return explain(given, PAIR, key=KEY, claim=claim).findings


def test_one_draw_for_the_batches_of_all_rounds_is_named_where_it_is_called():
    (found,) = told_with_a_claim(one_draw)
    assert (found.kind, found.lines[0]) == ("sampled_otherwise", here(one_draw)), found
    assert "the record is in all of them or in none" in found.says


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [right_all_coins_at_once, right_one_augmentation], ids=lambda step: step.__name__)
def test_a_draw_that_several_rounds_read_is_not_always_one_batch(step):
    assert not told_with_a_claim(step)


@pytest.mark.parametrize("last_bits", [-1e-7, 1e-7])
def test_of_runs_that_the_record_moves_alike_the_one_with_most_places_is_compared(last_bits):
    """Which of them is the largest is decided by the last bits, and the findings must not be."""

    def run(*costs):
        releases = [types.SimpleNamespace(cost=cost) for cost in costs]
        return types.SimpleNamespace(lockstep=types.SimpleNamespace(meetings=types.SimpleNamespace(releases=releases)))

    runs = [run(0.9, 0.0, 0.0), run(0.9 + last_bits, 0.5, 0.9), run(0.5, 0.5, 0.5)]
    assert replay._tells_most(runs) == 1


@pytest.mark.parametrize("deviation", [2.0, 4.0])
def test_a_sum_that_is_released_several_times_is_not_called_clipped_in_parts(deviation):
    def four_times(key, data):
        noises = [deviation * jax.random.normal(own, (COLUMNS,)) for own in jax.random.split(key, 4)]
        return jnp.stack([total(jnp.zeros(COLUMNS), data) + noise for noise in noises])

    told = explain(four_times, PAIR, key=KEY, claim=guarantees.gaussian(mu=0.5)).findings
    assert bool(told) == (deviation < 4)
    assert not told or "since it is released 4 times, each with noise of its own" in told[0].says
    assert not told or told[0].lines[0][1] == inspect.getsourcelines(four_times)[1] + 2


@pytest.mark.few(1)
@pytest.mark.parametrize(("width", "share", "accused"), [(2, 1.0, 0), (4, 1.0, 0), (9, 0.4, 4)])
def test_a_deviation_that_few_numbers_tell_accuses_nobody_by_chance(width, share, accused):
    """Right noise by Box and Muller was accused with 16 of 25 keys where a release has two coordinates."""

    def bell(key):
        one, two = jax.random.split(key)
        radius = jnp.sqrt(-2 * jnp.log(jax.random.uniform(one, (width,), minval=1e-20)))
        return radius * jnp.cos(2 * jnp.pi * jax.random.uniform(two, (width,)))

    def step(key, rows):
        return (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(0) + share * bell(key)

    pair = mechanisms.add_record(np.ones((4, width), "f4"), -5 * np.ones(width, "f4"))
    claim = guarantees.gaussian(mu=1.0)
    told = [explain(step, pair, key=jax.random.key(seed), claim=claim, clip=1.0) for seed in range(4)]
    assert sum(bool(one.suspicions) for one in told) == accused


@pytest.mark.parametrize(
    ("deviation", "cumulated", "accused"), [(1.0, False, True), (2.0, False, False), (2.0, True, False)]
)
def test_a_mu_is_of_all_rounds_together(deviation, cumulated, accused):
    def steps(key, data):
        sums = jnp.tile(total(jnp.zeros(COLUMNS), data), (4, 1))
        keys = jax.random.split(key, 4)
        noise = deviation * jnp.stack([jax.random.normal(own, (COLUMNS,)) for own in keys])
        return jnp.cumsum(sums, 0) + jnp.cumsum(noise, 0) if cumulated else jnp.stack([*map(jnp.add, sums, noise)])

    training = mechanisms.mechanism(steps, releases="transcript", clip=1.0)
    found = explain(training, PAIR, key=KEY, claim=guarantees.gaussian(mu=1.0))
    assert ["cost mu = 2 together" in one.says for one in found.findings] == [True] * accused


def test_rounds_that_share_noise_are_counted_and_not_told_to_be_composed():
    def tree(key, rows):
        kept, levels = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True)), jnp.arange(3)

        def take(carried, item):
            low = jnp.argmax((item[0] >> levels) & 1)
            fresh = jax.random.normal(jax.random.fold_in(key, item[0]), (COLUMNS,))
            nodes = jnp.where((levels < low)[:, None], 0.0, carried[1])
            carried = carried[0] + item[1], jnp.where((levels == low)[:, None], fresh, nodes)
            return carried, carried[0] + carried[1].sum(0)

        return jax.lax.scan(take, (jnp.zeros(COLUMNS), jnp.zeros((3, COLUMNS))), (jnp.arange(1, 5), kept))[1]

    pair = mechanisms.zero_out(10 * np.random.default_rng(0).normal(size=(4, COLUMNS)).astype("f4"), 0)
    training = mechanisms.mechanism(tree, releases="transcript")
    (found,) = explain(training, pair, key=KEY, claim=guarantees.gaussian(mu=1.0)).findings
    assert "The 4 rounds cost mu = 1.732 together" in found.says
    assert "compose" not in found.says
