"""A small network that tells two samples of features apart: trained with a key, stopped where held-out rows say so."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WIDTH = 64
"""Features are padded to a multiple of this, so that the training is compiled once."""
HIDDEN = 32
STEPS = 300
RATE = 1e-2
DECAY = 1e-2
HELD_OUT = 0.3
"""Of the rows, for deciding where to stop."""
BEND = 3.0
"""Deviations beyond which a standardised feature counts by its logarithm."""


@functools.cache
def _network() -> Any:
    """A linear score and a hidden layer beside it; Flax is imported by audits that learn, and by no others."""
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            bent = jnp.tanh(linen.Dense(HIDDEN, name="hidden")(x))
            return (linen.Dense(1, name="linear")(x) + linen.Dense(1, name="bent")(bent))[..., 0]

    return Network()


class Scaling(NamedTuple):
    """What makes features comparable."""

    location: np.ndarray
    scale: np.ndarray

    def __call__(self, features: jax.Array) -> jax.Array:
        """Standardised and bent at the ends, padded to the network's width."""
        shape = (1,) * (features.ndim - 1) + (-1,)
        location, scale = (jnp.asarray(v, jnp.float32).reshape(shape) for v in (self.location, self.scale))
        x = (features - location) / scale
        bent = BEND * jnp.arcsinh(x / BEND)
        return jnp.pad(bent, [(0, 0)] * (bent.ndim - 1) + [(0, -bent.shape[-1] % WIDTH)])


def find_scaling(features: np.ndarray) -> Scaling:
    """Median and deviation without the outermost rows; a constant feature gets a scale that keeps it small."""
    low, middle, high = np.quantile(features.astype(np.float64), [0.01, 0.5, 0.99], axis=0)
    inner = np.clip(features, low, high).std(axis=0, dtype=np.float64)
    outer = features.std(axis=0, dtype=np.float64)
    scale = np.where(inner > 0, inner, np.where(outer > 0, outer, 1.0))
    return Scaling(location=middle, scale=np.maximum(scale, 1e-6 * np.maximum(np.abs(middle), 1e-24)))


@functools.partial(jax.jit, static_argnames="steps")
def _train(start: Any, x: jax.Array, y: jax.Array, weights: jax.Array, held: jax.Array, *, steps: int) -> Any:
    """The parameters with the least loss on held-out rows, among those after each step."""
    import optax

    network = _network()
    tool = optax.adamw(optax.cosine_decay_schedule(RATE, steps), weight_decay=DECAY)

    def losses(parameters: Any) -> tuple[jax.Array, jax.Array]:
        each = optax.sigmoid_binary_cross_entropy(network.apply(parameters, x), y)
        return jnp.sum(weights * each), jnp.sum(held * each)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        parameters, state, best, least = carry
        (_, outside), gradient = jax.value_and_grad(losses, has_aux=True)(parameters)
        better = outside < least
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), parameters, best)
        changes, state = tool.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, changes), state, best, jnp.minimum(outside, least)), None

    carry, _ = jax.lax.scan(step, (start, tool.init(start), start, jnp.float32(jnp.inf)), length=steps)
    return carry[2]


def train(key: jax.Array, without: np.ndarray, with_record: np.ndarray) -> tuple[Scaling, Any]:
    """Scaling and parameters of a network whose score is larger with the record; rows are trials."""
    scaling = find_scaling(np.concatenate([without, with_record]))
    total = len(without) + len(with_record)
    # rows are padded to a power of two and weigh nothing there, so that few shapes are compiled
    size = 1 << (total - 1).bit_length()
    x = np.zeros((size, without.shape[1]), np.float32)
    x[:total] = np.concatenate([without, with_record])
    y = (np.arange(size) >= len(without)).astype(np.float32)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    chance = rng.random(size)
    held = (chance < HELD_OUT) & (np.arange(size) < total)
    used = (chance >= HELD_OUT) & (np.arange(size) < total)
    parameters = _train(
        _start(rng, x.shape[1]),
        scaling(jnp.asarray(x)),
        jnp.asarray(y),
        jnp.asarray(_even(used, y)),
        jnp.asarray(_even(held, y)),
        steps=STEPS,
    )
    return scaling, jax.tree.map(np.asarray, parameters)


def _start(rng: np.random.Generator, features: int) -> Any:
    """Initial weights drawn on the host: Flax's own draws would be compiled for this one use."""
    row = jnp.zeros((1, features + -features % WIDTH))
    shapes = jax.eval_shape(_network().init, jax.random.key(0, impl="threefry2x32"), row)

    def draw(path: Any, leaf: Any) -> jax.Array:
        # the score starts at zero: only the hidden layer's weights differ from it
        hidden = "hidden" in jax.tree_util.keystr(path) and len(leaf.shape) == 2
        scale = 1 / np.sqrt(leaf.shape[0]) if hidden else 0.0
        return jnp.asarray(scale * rng.standard_normal(leaf.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def _even(chosen: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weights of one half for each side."""
    weights = np.zeros(len(y), np.float32)
    for label in (0.0, 1.0):
        own = chosen & (y == label)
        weights[own] = 0.5 / max(int(own.sum()), 1)
    return weights


def apply(scaling: Scaling, parameters: Any, features: jax.Array) -> jax.Array:
    """The score of one row of features."""
    return _network().apply(parameters, scaling(features))
