"""The same networks in Flax, as functions of one flat vector of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from guarantees.checks import require
from mechanisms.networks import INITIAL_SEED
from mechanisms.pairs.images import PIXELS, SIDE

FLAX_NETWORKS = ("classifier",)


class FlatNetwork(NamedTuple):
    """A network's initial parameters as one vector, and its loss on one row of the dataset."""

    initial: np.ndarray
    loss: Callable[[jax.Array, jax.Array], jax.Array]
    unravel: Callable[[jax.Array], Any]


def classifier() -> Any:
    """The 26,010-parameter network of [tramer2021], layer by layer as in PyTorch."""
    from flax import linen

    class Classifier(linen.Module):
        @linen.compact
        def __call__(self, images: jax.Array) -> jax.Array:
            x = linen.Conv(16, (8, 8), strides=2, padding=2)(images)
            x = linen.max_pool(jnp.tanh(x), (2, 2), strides=(1, 1))
            x = linen.Conv(32, (4, 4), strides=2, padding="VALID")(x)
            x = linen.max_pool(jnp.tanh(x), (2, 2), strides=(1, 1))
            # channels first, so that weights can be moved between the two libraries by transposing alone
            x = jnp.moveaxis(x, -1, -3).reshape(len(x), -1)
            x = jnp.tanh(linen.Dense(32)(x))
            return linen.Dense(10)(x)

    return Classifier()


def flat_network(kind: str) -> FlatNetwork:
    """A network by name, with initial weights drawn once from a fixed seed."""
    require("network", kind in FLAX_NETWORKS, f"one of {FLAX_NETWORKS}", kind)
    try:
        model = classifier()
    except ImportError as error:
        raise ImportError(f"{error}; flax_step needs Flax: pip install flax.") from error
    key = jax.random.key(INITIAL_SEED, impl="threefry2x32")
    shapes = jax.eval_shape(model.init, key, jnp.zeros((1, SIDE, SIDE, 1)))
    tree = _initial(shapes)
    # callers may be under a trace, and the weights are constants
    with jax.ensure_compile_time_eval():
        flat, unravel = ravel_pytree(tree)

    def loss(parameters: jax.Array, row: jax.Array) -> jax.Array:
        logits = model.apply(unravel(parameters), row[:PIXELS].reshape(1, SIDE, SIDE, 1))[0]
        return -jax.nn.log_softmax(logits)[row[PIXELS].astype(jnp.int32)]

    return FlatNetwork(np.asarray(flat), loss, unravel)


def _initial(shapes: Any) -> Any:
    """Normal kernels of variance 1 / fan-in and zero biases, drawn by NumPy: nothing is compiled for them."""
    random = np.random.default_rng(INITIAL_SEED)

    def draw(leaf: Any) -> np.ndarray:
        if len(leaf.shape) == 1:
            return np.zeros(leaf.shape, np.float32)
        return random.standard_normal(leaf.shape, np.float32) / np.sqrt(np.prod(leaf.shape[:-1]), dtype=np.float32)

    return jax.tree.map(draw, shapes)
