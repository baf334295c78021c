"""A line that merely hands on key and data does not stand first: a wrapper, or a lambda."""

from __future__ import annotations

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import pytest

from audit.diagnosis.explain import Kind, explain
from mechanisms import worst_case_pair

MULTIPLIER, CLIP = 1.5, 2.0


@dataclasses.dataclass(frozen=True)
class Privacy:
    clip: float = CLIP
    noise_multiplier: float = MULTIPLIER


def total(rows, clip):
    return (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True) / clip)).sum(0)


def by_default(key, rows, privacy=Privacy()):
    own = total(rows, privacy.clip)
    return own + privacy.noise_multiplier * jax.random.normal(key, own.shape)  # wrong


def by_a_number(key, rows, *, multiplier=MULTIPLIER):
    own = total(rows, CLIP)
    return own + multiplier * jax.random.normal(key, own.shape)  # wrong


def by_a_constant(key, rows):
    own = total(rows, CLIP)
    return own + MULTIPLIER * jax.random.normal(key, own.shape)  # wrong


def told(step):
    pair = worst_case_pair(records=4, dimension=10, clip=5 * CLIP)
    (found,) = explain(step, pair, key=jax.random.key(0), clip=CLIP, noise_multiplier=MULTIPLIER).findings
    assert found.kind == Kind.TOO_LITTLE_NOISE
    return found


@pytest.mark.parametrize("step", [by_default, by_a_number, by_a_constant])
def test_a_wrapper_that_hands_on_key_and_data_does_not_stand_first(step):
    def wrapper(key, rows):
        return step(key, rows)

    lines, start = inspect.getsourcelines(step)
    wrong = start + next(number for number, line in enumerate(lines) if "# wrong" in line)
    for own in (step, wrapper, lambda key, rows: step(key, rows)):
        assert told(own).lines[0] == (__file__, wrong)


def test_a_caller_that_hands_over_the_wrong_number_stands_first():
    def wrapper(key, rows):
        return by_a_number(key, rows, multiplier=1.2)

    lines, start = inspect.getsourcelines(wrapper)
    assert told(wrapper).lines[0] == (__file__, start + len(lines) - 1)
