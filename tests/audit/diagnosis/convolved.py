"""Steps of small networks with convolutions, whose records ``vmap`` puts among the channels; one fault each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import mechanisms

RECORDS = 4
_keys = jax.random.split(jax.random.key(3), 2)
WEIGHTS = {
    "kernel": 0.5 * jax.random.normal(_keys[0], (3, 3, 2, 4)),
    "bias": jnp.zeros(4),
    "last": 0.3 * jax.random.normal(_keys[1], (36, 3)),
}


def added(shape=(6, 6, 2)):
    """A record more: images and their labels."""
    random = np.random.default_rng(0)
    images = random.normal(size=(RECORDS + 1, *shape)).astype(np.float32)
    labels = random.integers(0, 3, RECORDS + 1).astype(np.int32)
    return mechanisms.pair((images[:-1], labels[:-1]), (images, labels), relation="add_remove")


def _convolved(images, kernel, layout="NHWC", groups=1):
    names = (layout, "HWIO", layout)
    return lax.conv_general_dilated(images, kernel, (2, 2), "SAME", dimension_numbers=names, feature_group_count=groups)


def channels_last(weights, image):
    return jax.nn.relu(_convolved(image[None], weights["kernel"])[0] + weights["bias"]).reshape(-1) @ weights["last"]


def channels_first(weights, image):
    hidden = _convolved(image.transpose(2, 0, 1)[None], weights["kernel"], "NCHW")[0]
    return jax.nn.relu(hidden + weights["bias"][:, None, None]).reshape(-1) @ weights["last"]


def each_channel(weights, image):
    hidden = _convolved(image[None], weights["kernel"].reshape(3, 3, 1, 8)[..., :4], groups=2)[0]
    return jax.nn.relu(hidden + weights["bias"]).reshape(-1) @ weights["last"]


def two_views(weights, image):
    hidden = _convolved(jnp.stack([image, image[:, ::-1]]), weights["kernel"]) + weights["bias"]
    return jax.nn.relu(hidden).mean(0).reshape(-1) @ weights["last"]


def transposed(weights, image):
    hidden = jax.nn.relu(lax.conv_transpose(image[None], weights["kernel"], (1, 1), "SAME")[0] + weights["bias"])
    pooled = lax.reduce_window(hidden, -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "VALID")
    return pooled.reshape(-1) @ weights["last"]


NETWORKS = {one.__name__: one for one in (channels_last, channels_first, each_channel, two_views, transposed)}


def _clipped(gradient):
    length = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(1.0, length), gradient)


def _released(key, gradients):
    leaves, tree = jax.tree.flatten(gradients)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf.sum(0) + jax.random.normal(own, leaf.shape[1:]) for leaf, own in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, noisy)


def step(network, fault=""):
    """One noisy sum of clipped gradients, or with ``kernel`` or ``centred`` a fault."""

    def loss(weights, image, label):
        return -jax.nn.log_softmax(network(weights, image))[label]

    def clipped(image, label):
        gradient = jax.grad(loss)(WEIGHTS, image, label)
        return _clipped(gradient) | ({"kernel": gradient["kernel"]} if fault == "kernel" else {})

    def update(key, data):
        images, labels = data
        images = images - images.mean(0) if fault == "centred" else images
        return _released(key, jax.vmap(clipped)(images, labels))

    return update
