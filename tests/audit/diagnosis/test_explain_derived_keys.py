"""Keys that are derived side by side, and the line that uses one of them twice."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain

ROWS = 3 * np.random.default_rng(0).normal(size=(6, 6)).astype("f4")
PAIR = mechanisms.pair(ROWS[:5], ROWS, relation="add_remove")


def clipped(rows):
    return (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(0)


def normal(key):
    return jax.random.normal(key, (3,))


def normals(keys):
    return jax.vmap(normal)(keys)


def folded(key):
    return jax.vmap(jax.random.fold_in)(jnp.stack([key] * 3), jnp.arange(3))


def split(key):
    return jax.vmap(jax.random.split)(jax.random.split(key, 3)).reshape(-1)


def wrapped(key):
    return jax.random.wrap_key_data(jax.random.key_data(jax.random.split(key, 3)))


def joined(first, second):
    def step(key, rows, derive=folded):
        parts = derive(key)
        noise = jnp.concatenate([normal(parts[first]), normal(parts[second])])  # wrong
        return clipped(rows) + noise

    return step


def one_by_one(second):
    def step(key, rows, derive=folded):
        parts, total = derive(key), clipped(rows)
        return [total[3 * n : 3 * n + 3] + normal(parts[n * second]) for n in range(2)]  # wrong

    return step


def side_by_side(numbers):
    def step(key, rows):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.asarray(numbers))  # wrong
        return clipped(rows).reshape(2, 3) + normals(keys)

    return step


def broadcast(key, rows):
    keys = jnp.broadcast_to(key, (2,))  # wrong
    return clipped(rows) + normals(keys).reshape(6)


def cloned(key, rows):
    total, again = clipped(rows), jax.random.clone(key)
    one = total[:3] + normal(key)
    return one, total[3:] + normal(again)  # wrong


def by_a_counter(grows):
    def step(key, rows):
        keys, total = jax.random.split(key, 4), clipped(rows)
        rounds = jax.lax.scan(lambda n, _: (n + grows, normal(keys[n])), 0, length=2)[1]  # wrong
        return total[:3] + rounds[0], total[3:] + rounds[1]

    return step


def beside_a_loop(key, rows):
    """The loop begins with one key twice, and draws from one of the two alone."""
    loop, other = jax.random.split(key)
    again = loop

    def body(keys, _):
        kept, own = jax.random.split(keys[0])
        return (kept, keys[1]), normal(own)

    rounds = jax.lax.scan(body, (loop, again), length=2)[1]
    parts, total = jax.random.split(other, 3), clipped(rows)
    one = jax.random.fold_in(parts[0], 1)
    two = jax.random.fold_in(parts[0], 1)  # wrong
    return total[:3] + normal(one) + 0 * rounds[0], total[3:] + normal(two) + 0 * rounds[1]


def told(step, **words):
    return explain(
        step if not words else lambda key, rows: step(key, rows, **words), PAIR, key=jax.random.key(0), **SET
    )


SET = {"clip": 1.0, "noise_multiplier": 1.0}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "step", [joined(0, 0), one_by_one(0), side_by_side([2, 2]), broadcast, cloned, by_a_counter(0), beside_a_loop]
)
def test_the_line_that_uses_a_key_again_stands_first(step):
    (found,) = told(step).findings
    lines, start = inspect.getsourcelines(step)
    wrong = start + next(number for number, line in enumerate(lines) if "# wrong" in line)
    assert (found.kind, found.lines[0]) == (Kind.KEY_USED_TWICE, (__file__, wrong)), found


@pytest.mark.parametrize("derive", [folded, split, wrapped])
def test_keys_of_their_own_are_left_alone(derive):
    assert told(joined(0, 1), derive=derive).is_as_stated(1.0)
    assert told(one_by_one(1), derive=derive).is_as_stated(1.0)


@pytest.mark.parametrize("step", [side_by_side([2, 3]), by_a_counter(1)])
def test_keys_that_are_counted_are_left_alone(step):
    assert told(step).is_as_stated(1.0)


def test_noise_that_is_drawn_twice_and_halved_is_noise():
    def step(key, rows):
        noise = [jax.random.normal(own, (6,)) for own in (key, key)]
        return clipped(rows) + (noise[0] + noise[1]) / 2

    assert Kind.TOO_LITTLE_NOISE not in {one.kind for one in told(step).findings}


def keys_of_the_number(key, rows, again=False):
    """Batch and noise from a key that the number of records is folded into: on each side it is a fresh key."""
    own = jax.random.fold_in(key, len(rows))
    batch, noise = (own, own) if again else jax.random.split(own)
    taken = jax.random.bernoulli(batch, 0.5, (len(rows), 1))
    return clipped(taken * rows) + jax.random.normal(noise, (6,))


def test_the_number_of_records_in_a_key_changes_no_law_and_is_no_fault():
    assert not explain(keys_of_the_number, PAIR, key=jax.random.key(0)).findings


def test_a_key_of_the_number_of_records_that_serves_twice_is_a_fault_all_the_same():
    told = explain(lambda key, rows: keys_of_the_number(key, rows, again=True), PAIR, key=jax.random.key(0))
    assert [one.kind for one in told.findings] == [Kind.KEY_USED_TWICE]


def beside_keys(uses, many=1):
    """Noise is drawn from keys that are also split for a loop, which draws from its keys or does not."""

    def step(key, rows):
        keys, total = jax.random.split(key, many), clipped(rows)
        noise = normals(keys).mean(0) * many**0.5
        own = jax.vmap(lambda one: jax.random.split(one, 2))(keys)[0]  # wrong

        def body(kept, given):
            number, one = given
            return kept, number + (normal(one) if uses else 0.0)

        drawn = jax.lax.scan(body, 0, (jnp.arange(2.0), own))[1]
        return total[:3] + noise, total[3:] + drawn.mean() + normal(jax.random.fold_in(key, 7))

    return step


@pytest.mark.parametrize("many", [1, 3])
def test_a_key_that_is_split_into_keys_which_nobody_draws_from_serves_once(many):
    assert told(beside_keys(uses=False, many=many)).is_as_stated(1.0)
    found = told(beside_keys(uses=True, many=many)).findings[0]
    lines, start = inspect.getsourcelines(beside_keys)
    wrong = start + next(number for number, line in enumerate(lines) if "# wrong" in line)
    assert (found.kind, found.lines[0]) == (Kind.KEY_USED_TWICE, (__file__, wrong)), found


class Kept:
    """Keys of a state that does not move on, and keys by their names."""

    def __init__(self, key):
        self.key, self.number = key, 0

    def following(self):
        return jax.random.fold_in(self.key, self.number)  # wrong


def of_a_kept_state(key, rows):
    keys = Kept(key)
    one = clipped(rows)[:3] + normal(keys.following())
    return one, clipped(rows)[3:] + normal(keys.following())


def named(key, name):
    return jax.random.fold_in(key, len(name))  # wrong


def of_names_alike(key, rows):
    one = clipped(rows)[:3] + normal(named(key, "head"))
    return one, clipped(rows)[3:] + normal(named(key, "tail"))


def forgetful(key, number):
    return jax.random.fold_in(key, 1)  # wrong


def of_a_number_that_is_forgotten(key, rows):
    one = clipped(rows)[:3] + normal(forgetful(key, 0))
    return one, clipped(rows)[3:] + normal(forgetful(key, 1))


def of_forgotten_steps(key, rows):
    weights, released = jnp.zeros(6), []
    for step in range(2):
        noisy = clipped(rows + 0.1 * weights)[:3] + normal(forgetful(key, step))
        weights = weights - jnp.tile(noisy, 2)
        released.append(noisy)
    return released


def wide(key, entries):
    own = jax.random.fold_in(key, 1)
    return jax.random.normal(own, (entries,))


def of_one_key_for_two_sizes(key, rows):
    one = clipped(rows)[:2] + wide(key, 2)
    return one, clipped(rows)[2:] + wide(key, 4)  # wrong


def of_one_name(key, rows):
    total = clipped(rows)
    one = total[:3] + normal(named(key, "head"))
    return one, total[3:] + normal(named(key, "head"))  # wrong


def of_kept_noise(key, rows):
    kept = [scale * jax.random.normal(key, (6,)) for scale in (1.0,)]
    weights, released = jnp.zeros(6), []
    for _ in range(2):
        total = clipped(rows + 0.1 * weights)
        noisy = total + kept[0]  # wrong
        weights = weights - noisy
        released.append(noisy)
    return released


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("step", "marked"),
    [
        (of_a_kept_state, Kept),
        (of_names_alike, named),
        (of_one_name, of_one_name),
        (of_kept_noise, of_kept_noise),
        (of_a_number_that_is_forgotten, forgetful),
        (of_forgotten_steps, forgetful),
        (of_one_key_for_two_sizes, of_one_key_for_two_sizes),
    ],
)
def test_the_line_that_comes_by_one_key_again_stands_first(step, marked):
    found = told(step).findings[0]
    lines, start = inspect.getsourcelines(marked)
    wrong = start + next(number for number, line in enumerate(lines) if "# wrong" in line)
    assert (found.kind, found.lines[0]) == (Kind.KEY_USED_TWICE, (__file__, wrong)), found


def test_a_line_that_makes_a_key_of_the_data_is_told_once():
    def step(key, rows):
        own = jax.random.fold_in(key, jnp.sum(rows[:, 0] > 0))
        return clipped(rows) + jax.random.normal(own, (6,))

    rows = np.abs(ROWS)
    (found,) = explain(step, mechanisms.pair(rows[:5], rows), key=jax.random.key(0)).findings
    assert found.kind == Kind.RANDOMNESS_FROM_DATA
    assert " on)" not in found.says


def directions(key, rows):
    direction, noise = jax.random.split(key)
    along = jnp.clip(rows @ jax.random.normal(direction, (6,)), -1.0, 1.0).sum() + jax.random.normal(noise)
    return along * jax.random.normal(direction, (6,))


def signs(key, rows):
    sign, noise = jax.random.split(key)

    def turned(rows):
        return rows * jax.random.rademacher(sign, (6,), rows.dtype)

    return turned(clipped(turned(rows)) + jax.random.normal(noise, (6,)))


def taken_again(key, rows):
    coins, noise, counted = jax.random.split(key, 3)

    def taken():
        return jax.random.bernoulli(coins, 0.5, (len(rows), 1))

    noisy = clipped(taken() * rows) + 2**0.5 * jax.random.normal(noise, (6,))
    return noisy, taken().sum() + 2**0.5 * jax.random.normal(counted)


def direction_is_noise(key, rows):
    along = jnp.clip(rows @ jax.random.normal(key, (6,)), -1.0, 1.0).sum() + jax.random.normal(jax.random.split(key)[0])
    return along * jax.random.normal(key, (6,)) + jax.random.normal(key, (6,))


def noise_again(key, rows):
    coins, noise = jax.random.split(key)
    first = clipped(rows) + jax.random.normal(noise, (6,))
    return first, jnp.sum(jax.random.bernoulli(coins, 0.5, (len(rows), 1)) * rows**2) - jax.random.normal(noise, (6,))


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [directions, signs, taken_again])
def test_what_is_no_noise_may_be_drawn_again_from_its_key(step):
    assert explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).suspicions == ()


@pytest.mark.parametrize("step", [direction_is_noise, noise_again])
def test_noise_may_not(step):
    kinds = {one.kind for one in explain(step, PAIR, key=jax.random.key(0), noise_multiplier=1.0).suspicions}
    assert Kind.KEY_USED_TWICE in kinds
