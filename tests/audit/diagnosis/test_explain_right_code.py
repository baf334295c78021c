"""Right code of uncommon styles, of which nothing is said."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain
from guarantees import gaussian, subsampled_gaussian

ROWS = 3 * np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
KEY = jax.random.key(0)


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=-1, keepdims=True))


def record_by_record(key, rows):
    """A loop over records in each step, and noise in two parts."""

    def step(parameters, key):
        def added(number, total):
            slope, offset = jax.grad(lambda own: jnp.sum(jnp.tanh(rows[number] * own[0] + own[1])))(parameters)
            return total + clipped(jnp.concatenate([slope, offset]))

        one, other = (jax.random.normal(own, (8,)) for own in jax.random.split(key))
        total = jax.lax.fori_loop(0, len(rows), added, jnp.zeros(8))
        noisy = total + 0.6 * one + 0.8 * other
        return tuple(own - 0.1 * part for own, part in zip(parameters, jnp.split(noisy, 2), strict=True)), noisy

    return jax.lax.scan(step, (jnp.ones(4), jnp.zeros(4)), jax.random.split(key, 2))[1]


def test_noise_in_parts_covers_records_that_a_loop_takes_one_by_one():
    pair = mechanisms.pair(ROWS[:-1], ROWS, relation="add_remove")
    steps = mechanisms.mechanism(record_by_record, releases="transcript", clip=1.0, noise_multiplier=1.0)
    found = explain(steps, pair, key=KEY)
    assert found.findings == ()
    assert [round(one.multiplier, 3) for one in found.rounds] == [1.0, 1.0]


def masked(key, data):
    return data["mask"] @ clipped(data["rows"]) + jax.random.normal(key, (4,))


def in_a_while_loop(key, rows):
    def step(state):
        number, key, weights = state
        key, noise = jax.random.split(key)
        total = clipped(rows - weights).sum(0)
        return number + 1, key, weights - 0.1 * (total + jax.random.normal(noise, (4,)))

    return jax.lax.while_loop(lambda state: state[0] < 2, step, (0, key, jnp.zeros(4)))[2]


def test_noise_that_a_while_loop_of_the_users_draws_covers_its_steps():
    steps = mechanisms.mechanism(in_a_while_loop, releases="final", clip=1.0, noise_multiplier=1.0)
    found = explain(steps, mechanisms.pair(ROWS[:-1], ROWS, relation="add_remove"), key=KEY)
    assert found.findings == ()
    assert [round(one.multiplier, 3) for one in found.rounds] == [1.0, 1.0]


def at_drawn_weights(key, rows):
    """A scan over records, with weights and offsets that each run draws."""
    slopes, offsets, noise = jax.random.split(key, 3)
    weights = jax.random.normal(slopes, (4,)), jax.random.normal(offsets, (4,))

    def added(total, row):
        parts = jax.grad(lambda own: jnp.sum(jnp.tanh(row * own[0] + own[1])))(weights)
        return total + clipped(jnp.concatenate(parts)), None

    return jax.lax.scan(added, jnp.zeros(8), rows)[0] + jax.random.normal(noise, (8,))


def test_weights_that_are_drawn_are_no_noise_for_records_that_a_loop_takes():
    pair = mechanisms.pair(ROWS[:-1], ROWS, relation="add_remove")
    assert explain(at_drawn_weights, pair, key=KEY, clip=1.0, noise_multiplier=1.0).findings == ()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_mask_of_ones_and_zeros_is_not_made_larger(kind):
    data = {"rows": ROWS, "mask": np.ones(6, kind)}
    pair = mechanisms.zero_out(data, 2, null={"rows": ROWS[2], "mask": kind(0)})
    assert explain(masked, pair, key=KEY, clip=1.0, noise_multiplier=1.0).findings == ()


def test_weights_of_the_data_are():
    data = {"rows": ROWS, "mask": np.linspace(0.5, 1, 6, dtype="f4")}
    pair = mechanisms.zero_out(data, 2, null={"rows": ROWS[2], "mask": np.float32(0)})
    (found,) = explain(masked, pair, key=KEY, clip=1.0, noise_multiplier=1.0).suspicions
    assert found.kind == Kind.NOT_CLIPPED


def of_binomial_size(key, rows):
    """Poisson batches: as many as of coins, the first ones of a drawn order."""
    size, order, noise = jax.random.split(key, 3)
    taken = jax.random.permutation(order, len(rows)) < jax.random.binomial(size, len(rows), 0.4)
    return taken.astype("f4") @ clipped(rows) + jax.random.normal(noise, (4,))


@pytest.mark.long
def test_a_binomial_number_of_many_records_is_followed_or_not_judged():
    rows = np.tile(ROWS, (8, 1))
    claim = subsampled_gaussian(rate=0.4, noise_multiplier=1.0)
    found = explain(of_binomial_size, mechanisms.pair(rows[:-1], rows), key=KEY, claim=claim, clip=1.0)
    assert found.suspicions == ()
    assert "failed" not in str(found)


def by_gaps(key, rows):
    """Poisson batches: the numbers of records between two that are taken have a geometric law."""
    gaps, noise = jax.random.split(key)
    ahead = jnp.floor(jnp.log1p(-jax.random.uniform(gaps, (len(rows),))) / np.log(1 - 0.4)).astype(int) + 1
    taken = jnp.zeros(len(rows)).at[jnp.cumsum(ahead) - 1].set(1.0, mode="drop")
    return taken @ clipped(rows) + jax.random.normal(noise, (4,))


@pytest.mark.few(1)
@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
@pytest.mark.parametrize("step", [of_binomial_size, by_gaps])
def test_poisson_batches_may_be_drawn_in_other_ways(step, relation):
    pair = mechanisms.pair(ROWS[:-1], ROWS) if relation == "add_remove" else mechanisms.zero_out(ROWS, 3)
    claim = subsampled_gaussian(rate=0.4, noise_multiplier=1.0, relation=relation)
    for seed in range(2):
        found = explain(step, pair, key=jax.random.key(seed), claim=claim, clip=1.0)
        assert found.suspicions == ()
        assert "failed" not in str(found)


def of_grid(points):
    def step(key, rows):
        total = jnp.floor(points * clipped(rows)).sum(0)
        return (total + jnp.round(points * jax.random.normal(key, total.shape)).astype(int)) / points

    return step


def test_noise_on_a_fine_grid_is_as_large_as_before():
    (told,) = explain(of_grid(1000), mechanisms.zero_out(ROWS, 3), key=KEY, clip=1.0, noise_multiplier=1.0).rounds
    assert told.exact
    assert told.multiplier == pytest.approx(1.0, abs=2e-3)


def test_a_deviation_that_few_numbers_tell_is_not_printed():
    found = explain(of_grid(3), mechanisms.zero_out(ROWS, 3), key=KEY)
    assert found.rounds[0].error > 0.1
    row = next(line.split() for line in str(found).splitlines() if line.startswith("      1  "))
    assert row[2:4] == ["?", "?"]
    wide = mechanisms.zero_out(np.tile(ROWS, (1, 50)), 3)
    assert explain(of_grid(3), wide, key=KEY).rounds[0].error < 0.1


@pytest.mark.parametrize("part", [jnp.real, jnp.imag])
def test_a_part_of_a_complex_number_is_noise_with_half_of_its_variance(part):
    def step(key, rows):
        return clipped(rows).sum(0) + np.sqrt(2) * part(jax.random.normal(key, (4,), jnp.complex64))

    found = explain(step, mechanisms.pair(ROWS[:-1], ROWS), key=KEY, clip=1.0, noise_multiplier=1.0)
    assert found.findings == ()
    assert found.rounds[0].multiplier == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("added", "kinds"),
    [
        (lambda total, noise: (total + noise, 1 - 0.1 * total - 0.1 * noise), []),
        (lambda total, noise: (noise - total, (3 * total - 3 * noise) / 6), []),
        # their sum has no noise at all
        (lambda total, noise: (total + noise, total - noise), [Kind.KEY_USED_TWICE]),
        (lambda total, noise: (total + noise, 2 * total + noise), [Kind.KEY_USED_TWICE, Kind.TOO_LITTLE_NOISE]),
    ],
)
def test_noise_that_is_added_twice_to_the_same_data_covers_both(added, kinds):
    def step(key, rows):
        return added(clipped(rows).sum(0), jax.random.normal(key, (4,)))

    found = explain(step, mechanisms.pair(ROWS[:-1], ROWS), key=KEY, clip=1.0, noise_multiplier=1.0)
    assert [one.kind for one in found.findings] == kinds
    assert "noise of its own" not in str(found)
    assert "measures" not in str(found)


def drawn(key, like):
    return jax.random.normal(key, like.shape)


AGAIN = [Kind.KEY_USED_TWICE, Kind.TOO_LITTLE_NOISE]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("released", "kinds"),
    [
        (lambda key, total: (total + drawn(key, total), total / 8 + drawn(key, total) / 8), []),
        (lambda key, total: [times * (total + drawn(key, total)) for times in (1, 2, 3)], []),
        (lambda key, total: [times * total + times * drawn(key, total) for times in (1, 2, 3)], []),
        (lambda key, total: (total + drawn(key, total), total / 8 + drawn(key, total) / 4), AGAIN),
        (lambda key, total: (total + drawn(key, total), 2 * total + drawn(key, total)), AGAIN),
        (lambda key, total: (total + drawn(key, total), total[::-1] + drawn(key, total)), AGAIN),
        (lambda key, total: (*[total + drawn(key, total)] * 2, jax.random.normal(key, (4,))), AGAIN[:1]),
        (lambda key, total: [part + drawn(key, part) for part in jnp.split(total, 2)], AGAIN[:1]),
    ],
)
def test_a_key_that_gives_the_same_release_again_in_other_units_is_no_fault(released, kinds):
    def step(key, rows):
        return released(key, clipped(rows).sum(0))

    same = np.tile(ROWS[:, :2], (1, 2))
    for rows in (ROWS, same):
        found = explain(step, mechanisms.pair(rows[:-1], rows), key=KEY, clip=1.0, noise_multiplier=1.0)
        assert [one.kind for one in found.findings][: len(kinds) or None] == kinds


@pytest.mark.few(2)
@pytest.mark.parametrize("pair", [mechanisms.pair(ROWS[:-1], ROWS), mechanisms.zero_out(ROWS, 3)])
@pytest.mark.parametrize(
    "step",
    [
        lambda rows: jnp.stack([clipped(rows[first::3]).sum(0) for first in range(3)]),
        lambda rows: clipped(rows[::-1]).sum(0),
        lambda rows: jnp.flip(clipped(rows), 0)[:, ::2].sum(0),
    ],
)
def test_records_may_be_taken_by_strides_and_backwards(step, pair):
    def noisy(key, rows):
        return step(rows) + drawn(key, step(rows))

    assert explain(noisy, pair, key=KEY, clip=1.0).findings == ()


@pytest.mark.parametrize("bound", [1.0, 2.0])
def test_rows_that_stand_twice_in_one_sum_count_twice(bound):
    def noisy(key, rows):
        twice = jnp.concatenate([clipped(rows), clipped(rows)])
        return twice.sum(0) + drawn(key, rows[0])

    found = explain(noisy, mechanisms.zero_out(ROWS, 3), key=KEY, clip=bound, noise_multiplier=1 / bound).findings
    assert [one.kind for one in found] == ([Kind.TOO_LITTLE_NOISE] if bound == 1.0 else [])
    assert not any("measures" in one.says for one in found)


def test_of_two_noisy_sums_side_by_side_the_one_that_nobody_sees_costs_nothing():
    def noisy(key, rows):
        total, keys = clipped(rows).sum(0), jax.random.split(key)
        return jnp.stack([total + drawn(own, total) for own in keys])[-1]

    claim = gaussian(mu=1.0, relation="zero_out")
    assert explain(noisy, mechanisms.zero_out(ROWS, 3), key=KEY, claim=claim).findings == ()


def test_a_record_that_rounding_hides_is_not_said_to_have_joined_no_batch():
    def step(key, rows):
        total = clipped(rows).sum(0).astype(jnp.bfloat16)
        return total + jax.random.normal(key, total.shape, total.dtype)

    rows = 1 + np.tile(ROWS, (50, 8)) / 30
    (told,) = explain(step, mechanisms.pair(rows[:-1], rows), key=KEY, clip=1.0, noise_multiplier=1.0).findings
    assert "cannot be told from that sum's rounding" in told.says
