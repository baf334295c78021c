"""Bugs of a library with an engine object, a tree of gradients, microbatches and a momentum: the line to look at first.

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
from audit.diagnosis.explain import Kind, explain

pytestmark = pytest.mark.long

BOUND, ROUNDS, PIXELS, KEPT = 2.0, 3, 12, 0.9
WEIGHTS = {
    "hidden": 0.3 * jax.random.normal(jax.random.key(5), (PIXELS, 8)),
    "out": 0.5 * jax.random.normal(jax.random.key(6), (8, 3)),
}
IMAGES = np.random.default_rng(3).normal(size=(5, PIXELS)).astype(np.float32)
PAIR = mechanisms.add_record(
    {"image": IMAGES, "label": (np.arange(5) % 3).astype(np.int32)},
    {"image": -20 * IMAGES[0], "label": np.int32(1)},
)
CLAIM = guarantees.poisson_training(rate=0.5, noise_multiplier=1.0, steps=ROUNDS, accountant="certified")


def loss(weights, record):
    logits = jnp.tanh(record["image"] @ weights["hidden"]) @ weights["out"]
    return -jax.nn.log_softmax(logits)[record["label"]]


def clip_to(tree, bound):
    length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
    factor = jnp.minimum(1.0, bound / jnp.maximum(length, 1e-12))
    return scaled(tree, factor)


def scaled(tree, factor):
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def sum_of_clipped(weights, batch, shares, bound):
    rows = jax.vmap(lambda record, share: scaled(clip_to(jax.grad(loss)(weights, record), bound), share))(batch, shares)
    return jax.tree.map(lambda leaf: leaf.sum(axis=0), rows)


def gaussian_like(key, tree, deviation):
    keys = jax.random.split(key, len(tree))
    return {name: deviation * jax.random.normal(own, tree[name].shape) for name, own in zip(tree, keys, strict=True)}


def add_noise(key, total, bound, multiplier):
    return jax.tree.map(jnp.add, total, gaussian_like(key, total, bound * multiplier))


def add_noise_of_the_multiplier(key, total, bound, multiplier):
    deviation = multiplier
    noise = gaussian_like(key, total, deviation)  # wrong
    return jax.tree.map(jnp.add, total, noise)


class Sampler:
    def __call__(self, key, data):
        coins = jax.random.uniform(key, data["label"].shape)
        return (coins < 0.5).astype(jnp.float32)


class Engine:
    """One round, as it should be."""

    add_noise = staticmethod(add_noise)

    def __init__(self):
        self.sampler = Sampler()
        self.batch_key = jax.random.key(0)

    def shares(self, key, data):
        return self.sampler(key, data)

    def total(self, state, data, shares):
        return sum_of_clipped(WEIGHTS, data, shares, BOUND)

    def train(self, key, data):
        def one_round(state, own):
            key_batch, key_noise = jax.random.split(own)
            total = self.total(state, data, self.shares(key_batch, data))
            return total, self.add_noise(key_noise, total, BOUND, 1.0)

        _, released = jax.lax.scan(one_round, jax.tree.map(jnp.zeros_like, WEIGHTS), jax.random.split(key, ROUNDS))
        return jnp.concatenate([leaf.reshape(ROUNDS, -1) for leaf in jax.tree.leaves(released)], axis=1)


class IgnoresAnArgument(Engine):
    add_noise = staticmethod(add_noise_of_the_multiplier)


class KeepsAKey(Engine):
    def shares(self, key, data):
        return self.sampler(self.batch_key, data)  # wrong


class MomentumBeforeNoise(Engine):
    def total(self, state, data, shares):
        return jax.tree.map(lambda own, old: own + KEPT * old, super().total(state, data, shares), state)  # wrong


def in_chunks(tree):
    return jax.tree.map(lambda leaf: leaf.reshape(-1, 2, *leaf.shape[1:]), tree)


class Microbatches(Engine):
    def total(self, state, data, shares):
        def body(total, chunk):
            return jax.tree.map(jnp.add, total, self.of_part(*chunk)), None

        data, shares = jax.tree.map(
            lambda leaf: jnp.pad(leaf, [(0, -len(leaf) % 2)] + [(0, 0)] * (leaf.ndim - 1)), (data, shares)
        )
        return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, WEIGHTS), in_chunks((data, shares)))[0]

    def of_part(self, part, shares):
        return sum_of_clipped(WEIGHTS, part, shares, BOUND)


class ClipsTheMicrobatch(Microbatches):
    def of_part(self, part, shares):
        return clip_to(sum_of_clipped(WEIGHTS, part, shares, 1e9), BOUND)  # wrong


class ForgetsTheMask(Microbatches):
    def of_part(self, part, shares):
        everybody = jnp.ones_like(shares)  # wrong
        return sum_of_clipped(WEIGHTS, part, everybody, BOUND)


def told(engine):
    step = mechanisms.mechanism(engine().train, releases="transcript", clip=BOUND, noise_multiplier=1.0)
    return explain(step, PAIR, key=jax.random.key(0), claim=CLAIM)


def wrong_line(part) -> int:
    source, start = inspect.getsourcelines(part)
    return start + next(number for number, line in enumerate(source) if "# wrong" in line)


BUGS = [
    (IgnoresAnArgument, add_noise_of_the_multiplier, Kind.TOO_LITTLE_NOISE),
    (KeepsAKey, KeepsAKey, Kind.IN_EVERY_BATCH),
    (MomentumBeforeNoise, MomentumBeforeNoise, Kind.TOO_LITTLE_NOISE),
    (ClipsTheMicrobatch, ClipsTheMicrobatch, Kind.CLIPPED_AFTER_SUM),
    (ForgetsTheMask, ForgetsTheMask, Kind.IN_EVERY_BATCH),
]


@pytest.mark.parametrize(("engine", "part", "kind"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_the_wrong_line_stands_first(engine, part, kind):
    first = told(engine).findings[0]
    assert (first.kind, first.lines[0]) == (kind, (__file__, wrong_line(part))), first.says


@pytest.mark.parametrize("engine", [Engine, Microbatches])
def test_nothing_is_said_of_the_right_engine(engine):
    assert told(engine).findings == ()
