"""A release that is no number with the record: the operation that made it is named, not one that passes it on."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import Kind, explain


def in_jax(key, rows):
    lengths = jnp.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / lengths  # BUG: no number for a gradient of zero
    total = (units * jnp.minimum(lengths, 1.0)).reshape(len(rows), -1).sum(axis=0)
    return total + jax.random.normal(key, total.shape)


def in_torch(seed, rows):
    import torch

    torch.manual_seed(seed)
    rows = torch.as_tensor(rows)
    lengths = rows.norm(dim=1, keepdim=True)
    units = rows / lengths  # BUG: no number for a gradient of zero
    total = (units * lengths.clamp(max=1.0)).reshape(len(rows), -1).sum(dim=0)
    return total + torch.randn(rows.shape[1:])


def told(step, record):
    if step is in_torch:
        pytest.importorskip("torch")
    pair = mechanisms.add_record(np.ones((3, 3), np.float32), np.full(3, record, np.float32))
    mechanism = mechanisms.callable_step(step) if step is in_torch else step
    return explain(mechanism, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)


@pytest.mark.parametrize("step", [in_jax, in_torch])
def test_the_operation_that_makes_it_stands_first(step):
    (found,) = told(step, 0.0).findings
    lines, first = inspect.getsourcelines(step)
    (bug,) = [first + number for number, line in enumerate(lines) if "# BUG" in line]
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert found.lines[0] == (__file__, bug)
    assert f"NaN or infinite from test_explain_not_a_number.py:{bug} on: no noise hides that" in found.says
    assert told(step, 2.0).findings == ()


def text(key, rows):
    return "noisy"


def nothing(key, rows):
    rows.sum(0) + jax.random.normal(key, rows.shape[1:])


def never_a_number(key, rows):
    return jnp.nan * rows.sum(0) + jax.random.normal(key, rows.shape[1:])


def no_number_after_noise(key, rows):
    clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
    return jnp.nan * (clipped.sum(0) + jax.random.normal(key, rows.shape[1:]))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (
            no_number_after_noise,
            "the output is no number (NaN), with and without the record: there is nothing to compare",
        ),
        (text, "it returns a str, and a step must return an array or a tree of arrays"),
        (nothing, "it returns nothing, and a step must return an array or a tree of arrays"),
        (never_a_number, "the output is no number (NaN), with and without the record: there is nothing to compare"),
    ],
)
def test_what_is_no_release_is_told_as_that(step, why):
    pair = mechanisms.worst_case_pair(records=2, dimension=2, clip=1.0)
    assert [one.says for one in explain(step, pair, key=jax.random.key(0)).findings] == [f"Not judged: {why}."]


def test_a_number_is_no_key():
    with pytest.raises(TypeError, match=r"key must be made with jax.random.key\(seed\), got 0"):
        explain(text, mechanisms.worst_case_pair(records=2, dimension=2, clip=1.0), key=0)


def test_a_text_is_no_claim():
    pair = mechanisms.worst_case_pair(records=2, dimension=2, clip=1.0)
    with pytest.raises(TypeError, match="claim must be one of guarantees, got str"):
        explain(text, pair, key=jax.random.key(0), claim="gaussian")
