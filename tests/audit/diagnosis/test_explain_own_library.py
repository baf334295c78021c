"""Bugs of a library that somebody wrote without us: what is said of each is true, and its line stands first.

The wrong line of each ends with ``# wrong``.
"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

SIZE = 6


def clipped(rows, taken):
    return (taken * jnp.minimum(1.0, 1.0 / jnp.linalg.norm(rows, axis=1))) @ rows


def noisy(key, total):
    return total + jax.random.normal(key, total.shape)


def last_always(key, rows):
    chosen, own = jax.random.split(key)
    taken = jax.random.bernoulli(chosen, 0.5, rows.shape[:1]).at[-1].set(True)  # wrong
    return noisy(own, clipped(rows, taken))


def everybody(key, rows):
    chosen, own = jax.random.split(key)
    taken = jax.random.bernoulli(chosen, 1.0, rows.shape[:1])  # wrong
    return noisy(own, clipped(rows, taken))


def fourth_root(key, rows):
    squares = jnp.stack([jnp.sum(jnp.square(part), axis=1) for part in jnp.split(rows, 2, axis=1)])
    lengths = jnp.sum(squares, axis=0) ** 0.25  # wrong
    factors = jnp.minimum(1.0, 1.0 / lengths)
    return noisy(key, factors @ rows)


def masks(key, records):
    keys = jax.random.split(key)
    return jax.vmap(lambda own: jax.random.bernoulli(own, 0.5, (records,)))(keys)


def one_key(key, rows):
    taken = masks(key, len(rows))
    keys = jax.random.split(key)  # wrong
    return jnp.stack([noisy(own, clipped(rows, chosen)) for own, chosen in zip(keys, taken, strict=True)])


def copied_keys(key, rows):
    chosen, own = jax.random.split(key)
    keys = jnp.stack([chosen] * 2)  # wrong
    taken = jax.vmap(lambda one: jax.random.bernoulli(one, 0.5, rows.shape[:1]))(keys)

    def step(weights, given):
        total = clipped(rows + weights, given[0])
        released = noisy(given[1], total)
        return weights - released, released

    return jax.lax.scan(step, jnp.zeros(SIZE), (taken, jax.random.split(own)))[1]


def moment(update, second, raw):
    second = 0.9 * second + raw**2  # wrong
    return update / jnp.sqrt(second + 1), second


def raw_moment(key, rows):
    total = clipped(rows, jnp.ones(len(rows)))
    return moment(noisy(key, total), jnp.zeros(SIZE), total)[0]


def half_box_muller(key, rows):
    one, other = jax.random.split(key)
    radius = jnp.sqrt(-jnp.log(1 - jax.random.uniform(one, (SIZE,))))
    normal = radius * jnp.cos(2 * jnp.pi * jax.random.uniform(other, (SIZE,)))
    return clipped(rows, jnp.ones(len(rows))) + normal  # wrong


KINDS = {
    last_always: "records_mixed_before_sum",
    everybody: "in_every_batch",
    fourth_root: "not_clipped",
    one_key: "key_used_twice",
    copied_keys: "key_used_twice",
    raw_moment: "changed_after_release",
    half_box_muller: "too_little_noise",
}
WRONG = {**{step: step for step in KINDS}, raw_moment: moment}


def pair():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, SIZE)).astype(np.float32)
    return mechanisms.add_record(rows[:4], 9 * rows[4])


def told(step, **stated):
    releases = "transcript" if step in (one_key, copied_keys) else "update"
    mechanism = mechanisms.mechanism(step, releases=releases, clip=1.0, noise_multiplier=1.0)
    return explain(mechanism, pair(), key=jax.random.key(0), **stated)


@pytest.mark.few(3)
@pytest.mark.parametrize("step", KINDS, ids=lambda step: step.__name__)
def test_the_wrong_line_stands_first(step):
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    lines, start = inspect.getsourcelines(WRONG[step])
    found = told(step, **({"claim": claim} if step is everybody else {})).findings[0]
    assert found.kind == KINDS[step]
    assert found.lines[0][1] == start + next(at for at, line in enumerate(lines) if line.endswith("# wrong\n")), found


def test_one_batch_for_both_halves_of_a_sum_is_no_second_use():
    def step(key, rows):
        chosen, own = jax.random.split(key)
        taken = jax.vmap(lambda one: jax.random.bernoulli(one, 0.5, rows.shape[:1]))(jnp.stack([chosen] * 2))
        factors = jnp.minimum(1.0, 1.0 / jnp.linalg.norm(rows, axis=1))
        halves = jnp.stack(jnp.split(factors[:, None] * rows, 2, axis=1))
        return jax.lax.map(lambda given: noisy(given[2], given[0] @ given[1]), (taken, halves, jax.random.split(own)))

    assert told(step).findings == ()


def of_half(row):
    return row / jnp.maximum(1.0, jnp.linalg.norm(row[3:]))  # wrong


def of_the_root(row):
    length = jnp.sqrt(jnp.linalg.norm(row))  # wrong
    return row / jnp.maximum(1.0, length)


def by_coordinate(row):
    return jnp.clip(row, -1.0, 1.0)  # wrong


def mapped(clip, rows):
    return jax.lax.map(clip, rows).sum(0)


def scanned(clip, rows):
    return jax.lax.scan(lambda total, row: (total + clip(row), None), jnp.zeros(SIZE), rows)[0]


def looped(clip, rows):
    return jax.lax.fori_loop(0, len(rows), lambda at, total: total + clip(rows[at]), jnp.zeros(SIZE))


@pytest.mark.few(2)
@pytest.mark.parametrize("going", [mapped, scanned, looped])
@pytest.mark.parametrize("clip", [of_half, of_the_root, by_coordinate])
def test_the_line_that_clips_wrongly_is_named_where_records_come_one_by_one(clip, going):
    lines, start = inspect.getsourcelines(clip)
    found = told(lambda key, rows: noisy(key, going(clip, rows))).findings[0]
    assert found.lines[0][1] == start + next(at for at, line in enumerate(lines) if line.endswith("# wrong\n")), found


def squared(leaf):
    return jnp.vdot(leaf, leaf)


def length(tree):
    return jnp.sqrt(sum(map(squared, jax.tree.leaves(tree))))


def shrink(tree):
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, 0.7 / length(leaf)), tree)  # wrong


def over_leaves(key, tree, spread):
    keys = jax.random.split(key, len(tree))
    drawn = [jax.random.normal(own, leaf.shape) for own, leaf in zip(keys, tree, strict=True)]
    return [spread / len(tree) * own for own in drawn]  # wrong


def in_whole_numbers(key, tree, spread):
    noise = [2 * own for own in over_leaves(key, tree, spread)]
    return [own.astype(jnp.int8) for own in noise]  # wrong


def half_the_noise(key, rows):
    together = jax.vmap(lambda row: row * jnp.minimum(1.0, 0.7 / length(row)))(rows).sum(0)
    noise = over_leaves(key, [together[:4], together[4:]], 0.7)
    return [together[:4] + noise[0], together[4:] + noise[1]]


def cut_noise(key, rows):
    together = jax.vmap(lambda row: row * jnp.minimum(1.0, 0.7 / length(row)))(rows).sum(0)
    noise = in_whole_numbers(key, [together[:4], together[4:]], 0.7)
    return [together[:4] + noise[0], together[4:] + noise[1]]


def each_leaf(key, rows):
    total = jax.vmap(lambda row: jnp.concatenate(shrink([row[:4], row[4:]])))(rows).sum(0)
    return total + 0.7 * jax.random.normal(key, total.shape)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("step", "wrong"), [(half_the_noise, over_leaves), (cut_noise, in_whole_numbers), (each_leaf, shrink)]
)
def test_a_helper_is_blamed_for_what_it_does_itself_and_not_for_what_it_is_given(step, wrong):
    lines, start = inspect.getsourcelines(wrong)
    mechanism = mechanisms.mechanism(step, clip=0.7, noise_multiplier=1.0)
    (found,) = explain(mechanism, pair(), key=jax.random.key(0)).findings
    assert found.kind == "too_little_noise"
    assert found.lines[0][1] == start + next(at for at, line in enumerate(lines) if line.endswith("# wrong\n")), found


def test_a_sum_of_clipped_records_that_raw_data_scale_is_not_called_bounded_after_the_sum():
    def step(key, rows):
        scale = 1 / (1 + jnp.mean(jnp.abs(rows)))
        return noisy(key, scale * clipped(rows, jnp.ones(len(rows))))

    (found,) = told(step).findings
    assert found.kind == "records_mixed_before_sum"
    assert "raw data that are not clipped change the sum of clipped records" in found.says


def test_coordinates_without_noise_are_counted():
    def step(key, rows):
        drawn = jax.random.normal(key, (SIZE,)) * (jnp.arange(SIZE) < 4)
        return clipped(rows, jnp.ones(len(rows))) + drawn

    (found,) = told(step).findings
    assert "deviation 1, and 0 in 2 of 6 coordinates: a noise multiplier of 0, but 1 is stated" in found.says


def test_leaves_that_are_alike_are_counted_one_by_one():
    def step(key, rows):
        leaves = [rows[:, :3], rows[:, 3:], rows[:, :3]]
        total = jnp.concatenate([clipped(leaf, jnp.ones(len(rows))) for leaf in leaves])
        return noisy(key, total)

    (found,) = told(step).findings
    assert "by 1 in each of 3 parts, as if each were clipped on its own" in found.says
