"""Shards that add a share of the noise each and are summed before anybody sees them: one release with all of it."""

import math

import jax
import jax.numpy as jnp
import pytest

import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.findings import Kind

PAIR = mechanisms.worst_case_pair(records=7, dimension=5, clip=1.0)


def shards(rows):
    return jnp.pad(rows, ((0, len(rows) % 2), (0, 0))).reshape(2, -1, 5)


def noisy_sum(key, rows, number):
    clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
    return clipped.sum(0) + jax.random.normal(jax.random.fold_in(key, number), (5,)) / math.sqrt(2)


def over_the_axis(reduction):
    def step(key, rows):
        def shard(own):
            return reduction(noisy_sum(key, own, jax.lax.axis_index("shard")), "shard")

        return jax.vmap(shard, axis_name="shard")(shards(rows))[0]

    return step


def by_a_product(key, rows):
    parts = jax.vmap(lambda own, number: noisy_sum(key, own, number))(shards(rows), jnp.arange(2))
    return jnp.einsum("s,sd->d", jnp.ones(2), parts)


def apart(summed):
    """Shards of one ``vmap``, taken together by a function of their stack."""

    def step(key, rows):
        return summed(jax.vmap(lambda own, number: noisy_sum(key, own, number))(shards(rows), jnp.arange(2)))

    return step


def over_a_map(key, rows):
    return jax.lax.map(lambda piece: noisy_sum(key, *piece), (shards(rows), jnp.arange(2))).sum(0)


def of_a_stack(key, rows):
    return jnp.stack([noisy_sum(key, own, number) for number, own in enumerate(shards(rows))]).sum(0)


def into_a_buffer(key, rows):
    def write(number, buffer):
        return buffer.at[number].set(noisy_sum(key, shards(rows)[number], number))

    return jax.lax.fori_loop(0, 2, write, jnp.zeros((2, 5))).sum(0)


def on_devices(key, rows):
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("shard",))
    own = jax.sharding.PartitionSpec("shard")

    def shard(part):
        return jax.lax.psum(noisy_sum(key, part[0], 0), "shard")

    return jax.shard_map(shard, mesh=mesh, in_specs=own, out_specs=jax.sharding.PartitionSpec())(rows[None])


STEPS = {
    "map": over_a_map,
    "one by one": apart(lambda parts: parts[0] + parts[1]),
    "running sums": apart(lambda parts: jnp.cumsum(parts, axis=0)[-1]),
    "turned and joined in pairs": apart(lambda parts: jax.lax.associative_scan(jnp.add, parts[::-1])[-1]),
    "stack": of_a_stack,
    "buffer": into_a_buffer,
    "neighbours": over_the_axis(lambda part, axis: part + jax.lax.ppermute(part, axis, [(0, 1), (1, 0)])),
    "scattered": over_the_axis(
        lambda part, axis: jax.lax.all_gather(
            jax.lax.psum_scatter(jnp.pad(part, (0, 1)), axis, tiled=True), axis, tiled=True
        )[:5]
    ),
    "psum": over_the_axis(jax.lax.psum),
    "psum of a tree": over_the_axis(lambda part, axis: jax.lax.psum({"sum": part, "twice": 2 * part}, axis)["sum"]),
    "pmean": over_the_axis(jax.lax.pmean),
    "all_gather": over_the_axis(lambda part, axis: jax.lax.all_gather(part, axis).sum(0)),
    "product": by_a_product,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", STEPS)
def test_shards_that_are_summed_unseen_have_the_noise_of_all(name):
    told = explain(STEPS[name], PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert not told.findings
    assert [one.multiplier for one in told.rounds] == [pytest.approx(1.0, rel=1e-5)]


def test_shards_whose_noise_is_too_little_together_are_named():
    told = explain(STEPS["psum"], PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.5)
    assert [one.kind for one in told.findings] == [Kind.TOO_LITTLE_NOISE]
    assert "multiplier of 1," in told.findings[0].says


SEEN = {
    "both": lambda parts: parts,
    "in two outputs": lambda parts: {"first": parts[0], "second": parts[1]},
    "the last": lambda parts: parts[-1],
    "one and the sum": lambda parts: (parts[0], parts.sum(0)),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SEEN)
def test_a_shard_that_is_seen_by_itself_has_its_own_noise(name):
    told = explain(apart(SEEN[name]), PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in told.findings] == [Kind.TOO_LITTLE_NOISE]
    assert "multiplier of 0.7071," in told.findings[0].says


def test_shards_are_not_judged_where_the_replay_ends_before_their_sum():
    def step(key, rows):
        parts = jax.lax.map(lambda piece: noisy_sum(key, *piece), (shards(rows), jnp.arange(2)))
        longest = 20 * jnp.abs(rows).sum()
        turns = jax.lax.while_loop(lambda number: number < longest, lambda number: number + 1.0, parts[0, 0] * 0)
        return parts.sum(0) + 0 * turns

    told = explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert {one.kind for one in told.findings} == {Kind.NOT_FOLLOWED}
    assert "number of steps of a loop depends on the data" in told.findings[0].says


def test_shards_on_devices_are_not_judged_and_it_is_said_why():
    told = explain(on_devices, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in told.findings] == [Kind.NOT_FOLLOWED]
    assert "several devices" in told.findings[0].says


@pytest.mark.parametrize("deviation", [1.0, 0.5])
def test_steps_that_do_not_read_the_weights_are_rounds_of_one_sum(deviation):
    def training(key, rows):
        weights = jnp.zeros(5)
        for number in range(3):
            noise = deviation * jax.random.normal(jax.random.fold_in(key, number), (5,))
            weights -= 0.1 * ((rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(0) + noise)
        return weights

    told = explain(training, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in told.findings] == [Kind.TOO_LITTLE_NOISE] * (deviation < 1)
    assert [one.multiplier for one in told.rounds] == [pytest.approx(deviation)] * 3


def clipped_sum(rows):
    return (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(0)


def sum_of_a_share_for_each(key, rows):
    return clipped_sum(rows) + jax.random.normal(key, (len(rows), 5)).sum(0) / math.sqrt(len(rows))


def mean_of_a_share_for_each(key, rows):
    return clipped_sum(rows) + math.sqrt(len(rows)) * jax.random.normal(key, (len(rows), 5)).mean(0)


def in_pieces(share):
    """A scan over as many pairs of records as there are, each with its share of the noise."""

    def step(key, rows):
        pieces = jnp.pad(rows, ((0, len(rows) % 2), (0, 0))).reshape(-1, 2, 5)

        def add(total, piece):
            own, records = piece
            return total + clipped_sum(records) + jax.random.normal(own, (5,)) * share(len(pieces)), None

        return jax.lax.scan(add, jnp.zeros(5), (jax.random.split(key, len(pieces)), pieces))[0]

    return step


@pytest.mark.parametrize("step", [sum_of_a_share_for_each, mean_of_a_share_for_each])
def test_noise_made_of_as_many_shares_as_there_are_records_is_as_large_whatever_their_number_is(step):
    found = explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert found.findings == ()
    assert [one.multiplier for one in found.rounds] == [pytest.approx(1.0)]


EVEN = mechanisms.worst_case_pair(records=4, dimension=5, clip=1.0)
"""The larger side has one piece more."""


def test_pieces_with_their_shares_of_noise_of_which_one_side_has_more_are_not_judged():
    found = explain(in_pieces(lambda k: 1 / math.sqrt(k)), EVEN, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in found.findings] == [Kind.NOT_FOLLOWED]
    assert "with the record a loop takes more steps" in found.findings[0].says
    assert [(one.number, one.last, one.judged) for one in found.rounds] == [(1, 1, False)]


def test_too_small_shares_are_named_and_not_called_no_noise():
    found = explain(in_pieces(lambda k: 1 / k), EVEN, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in found.suspicions] == [Kind.NOISE_SCALE_FROM_DATA]


def test_one_noise_over_the_root_of_the_number_of_records_is_still_named():
    def step(key, rows):
        return clipped_sum(rows) + jax.random.normal(key, (5,)) / math.sqrt(len(rows))

    found = explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in found.suspicions] == [Kind.NOISE_SCALE_FROM_DATA]
