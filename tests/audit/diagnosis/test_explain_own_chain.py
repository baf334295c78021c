"""An optimiser whose parts are functions that others make, and that one line calls in turn: who put it together erred.

The wrong line of each ends with ``# wrong``.
"""

from __future__ import annotations

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diagnosis import trees_library
from diagnosis.trees_library import START, clipped, normal, plus, scaled, summed

import mechanisms
from audit.diagnosis.explain import Kind, explain


@dataclasses.dataclass(frozen=True)
class Settings:
    clip: float = 1.0
    noise_multiplier: float = 2.0
    rate: float = 0.4

    @property
    def stddev(self):
        return self.clip * self.noise_multiplier


SET = Settings()


def noise(stddev):
    def update(tree, key):
        key, own = jax.random.split(key)
        return plus(tree, normal(own, tree, stddev)), key

    return lambda key: key, update


def noise_of_the_start(stddev):
    return lambda key: normal(key, START, stddev), lambda tree, drawn: (plus(tree, drawn), drawn)


def momentum(decay):
    def update(tree, velocity):
        velocity = plus(scaled(decay, velocity), tree)
        return velocity, velocity

    return lambda key: scaled(0.0, START), update


def training(parts, steps=3):
    def train(key, data):
        rule = parts()

        def step(carry, _):
            params, states = carry
            tree, after = summed(clipped, params, data), []
            for (_, update), state in zip(rule, states, strict=True):
                tree, state = update(tree, state)
                after.append(state)
            return (plus(params, scaled(-0.1, tree)), after), tree

        return jax.lax.scan(step, (START, [init(key) for init, _ in rule]), length=steps)[1]

    return train


def right():
    return [noise(SET.stddev), momentum(0.9)]


def momentum_first():
    return [
        momentum(0.9),  # wrong
        noise(SET.stddev),
    ]


def other_number():
    return [noise(SET.clip), momentum(0.9)]  # wrong


def drawn_once():
    return [noise_of_the_start(SET.stddev)]


def explained(parts):
    return explain(
        training(parts),
        trees_library.pair(),
        key=jax.random.key(0),
        clip=SET.clip,
        noise_multiplier=SET.noise_multiplier,
    )


def test_nothing_is_said_of_the_right_order():
    assert explained(right).findings == ()


@pytest.mark.parametrize(
    ("parts", "clause"), [(momentum_first, "puts that before the noise"), (other_number, "hands this deviation over")]
)
def test_the_line_that_puts_it_together_stands_first(parts, clause):
    (found,) = explained(parts).findings
    lines, start = inspect.getsourcelines(parts)
    (wrong,) = [start + number for number, line in enumerate(lines) if line.rstrip().endswith("# wrong")]
    assert (found.kind, found.lines[0]) == (Kind.TOO_LITTLE_NOISE, (__file__, wrong)), found
    assert clause in found.says


def test_numbers_that_are_drawn_once_are_said_to_be_added_again():
    (found,) = explained(drawn_once).findings
    added = inspect.getsourcelines(plus)[1] + 1
    assert found.kind == Kind.KEY_USED_TWICE
    assert f"used again at trees_library.py:{added} (drawn once; rounds 1 and 2)" in found.says


def test_the_columns_of_the_table_fit_together():
    def parts(key, rows):
        bounded = rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        one, other = jax.random.split(key)
        total = bounded.sum(0)
        return total[:2] + jax.random.normal(one, (2,)), 0.1 * (total[2:] + jax.random.normal(other, (2,)))

    pair = mechanisms.add_record(np.eye(4, dtype="f4"), np.full(4, 3.0, "f4"))
    (row,) = explain(parts, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).rounds
    assert row.multiplier == pytest.approx(1.0)
    assert row.noise_deviation == pytest.approx(row.sensitivity * row.multiplier)


def coins(key, data):
    return jax.random.bernoulli(key, SET.rate, (len(data["x"]),)).astype("f4")


def carried(noise_key):
    def train(key, data):
        own = noise_key(key)

        def step(carry, _):
            (drawn, noise), params = carry
            drawn, chosen = jax.random.split(drawn)
            noise, now = jax.random.split(noise)
            rows = jax.vmap(clipped, (None, 0))(params, data)
            total = jax.tree.map(lambda leaf: jnp.tensordot(coins(chosen, data), leaf, axes=1), rows)
            tree = plus(total, normal(now, total, SET.stddev))
            return ((drawn, noise), plus(params, scaled(-0.1, tree))), tree

        return jax.lax.scan(step, ((key, own), START), length=2)[1]

    return train


def test_a_key_that_a_loop_begins_with_twice_is_named_where_it_is_copied():
    words = {"key": jax.random.key(0), "clip": SET.clip, "noise_multiplier": SET.noise_multiplier}
    # folding in 0 or 1 would give the two keys that the loop splits off
    assert not explain(carried(lambda key: jax.random.fold_in(key, 7)), trees_library.pair(), **words).findings
    (found,) = explain(carried(lambda key: key), trees_library.pair(), **words).findings
    line = inspect.getsourcelines(carried)[1] + 2
    assert (found.kind, found.lines[0]) == (Kind.KEY_USED_TWICE, (__file__, line)), found
    assert "copies the key, which the loop begins with twice" in found.says
