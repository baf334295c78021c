"""Both sides on the same draws: by how much a record moves a release, without the noise."""

from __future__ import annotations

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from distinguishers.battery import default_battery
from mechanisms.adapters.same_draws import MOST_RUNS, movement
from mechanisms.contract import mechanism

KEY = jax.random.key(5)
OWN = np.array([3.0, -4.0, 0.0], np.float32)
HAS_TORCH = importlib.util.find_spec("torch") is not None


def pair(index: int = -1) -> mechanisms.Neighbours:
    """Four records, and a fifth of length 5 in between or last."""
    others = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    rows = np.concatenate([others, OWN[None]]) if index == -1 else np.insert(others, index, OWN, axis=0)
    return mechanisms.Neighbours(without=others, with_record=rows, relation="add_remove", index=index)


def sampled(key, rows):
    """A right step at rate .3."""
    key_batch, key_noise = jax.random.split(key)
    taken = jax.random.bernoulli(key_batch, 0.3, (len(rows), 1))
    clipped = rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return {"weights": jnp.sum(taken * clipped, axis=0) + jax.random.normal(key_noise, (3,))}


@pytest.mark.few(1)
@pytest.mark.parametrize("index", [-1, 1])
def test_the_direction_is_the_clipped_gradient_wherever_the_record_stands(index):
    found = movement(mechanism(sampled), pair(index), key=KEY)
    np.testing.assert_allclose(found.row, OWN / 5, atol=1e-5)
    assert found.told == f"2 of 3 coordinates move, {MOST_RUNS} runs of each side"


def scaled(key, rows):
    """Noise over the number of records: the record moves it differently in every run."""
    return jax.random.normal(key, (30,)) / len(rows)


def numpy_step(seed, rows):
    """Draws that only NumPy knows."""
    return rows.sum(axis=0) + np.random.default_rng(seed).normal(size=3)


def breaks(key, rows):
    """Code that cannot be traced for one more record."""
    return rows.sum(axis=0) if len(rows) < 5 else None


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (mechanism(scaled), "differently in every run"),
        (mechanisms.callable_step(numpy_step), "draws nothing with PyTorch" if HAS_TORCH else "cannot be repeated"),
        (mechanisms.callable_step(numpy_step, workers=1), ""),
        (mechanism(breaks), ""),
    ],
    ids=["no_direction", "numpy", "workers", "error"],
)
def test_where_there_is_none_it_says_why_and_raises_nothing(step, why):
    found = movement(step, pair(), key=KEY)
    assert found.row is None
    assert why in found.told
    assert found.told.startswith("no direction: ")


def test_draws_of_pytorch_are_handed_out_again():
    pytest.importorskip("torch")
    import torch

    def step(seed, rows):
        noise = torch.Generator().manual_seed(seed % 2**63)
        return torch.tensor(rows).sum(0) + torch.randn(3, generator=noise)

    found = movement(mechanisms.callable_step(step), pair(), key=KEY)
    np.testing.assert_allclose(found.row, OWN, atol=1e-5)
    assert found.runs == 1


def learnt(replay: bool):
    """The battery of a step whose records are told to be no gradients, from 30 outputs a side."""
    step = mechanism(sampled)
    rows = np.random.default_rng(1).normal(size=(2, 30, 3)).astype(np.float32)
    learner = default_battery(pair(), mechanism=step, replay=replay)
    return learner.learn(KEY, *({"weights": side} for side in rows), _layout(step))


def _layout(step):
    from mechanisms.release import layout_of

    return layout_of(jax.eval_shape(step, KEY, pair().without))


def test_a_replay_is_asked_for_and_recorded_and_changes_nothing_else():
    plain, along = learnt(replay=False), learnt(replay=True)
    assert "replay" not in plain.parameters
    assert along.parameters["replay"] is True
    assert along.parameters["replayed"].startswith("2 of 3 coordinates move")
    names = [member.name for member in along.members]
    assert "learned whitened_replayed" in names
    assert not any("replayed" in member.name for member in plain.members)


def test_a_replay_needs_something_to_run():
    with pytest.raises(ValueError, match="replay must be False without a mechanism"):
        default_battery(pair(), replay=True)
