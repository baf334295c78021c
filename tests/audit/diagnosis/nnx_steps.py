"""Private training of a small network in Flax nnx, with four faults to switch on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx

CLIP, SIGMA, RATE = 1.0, 1.1, 0.5


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))[..., 0]


def example_loss(model, x, y):
    return optax.l2_loss(model(x), y)


def private_gradient(model, key, data, *, bug=None):
    x, y = data
    key_batch, key_noise = jax.random.split(key)
    mask = jax.random.bernoulli(key_batch, RATE, y.shape).astype(jnp.float32)
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, x, y):
        return example_loss(nnx.merge(graph, params, rest), x, y)

    grads = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    norms = jax.vmap(optax.tree.norm)(grads)
    if bug == "largest":
        norms = jnp.full_like(norms, norms.max())  # BUG largest
    scale = jnp.minimum(1.0, CLIP / (norms + 1e-6)) * mask
    total = jax.tree.map(lambda g: jnp.einsum("n,n...->...", scale, g), grads)
    leaves, form = jax.tree.flatten(total)
    keys = jax.random.split(key_noise, len(leaves))
    if bug == "one key":
        keys = [key_noise] * len(leaves)  # BUG one key
    sigma = SIGMA * CLIP
    if bug == "batch":
        sigma = sigma / jnp.maximum(mask.sum(), 1)  # BUG batch
    noisy = [g + sigma * jax.random.normal(k, g.shape) for k, g in zip(keys, leaves, strict=True)]
    if bug == "mean":
        noisy = [g / jnp.maximum(mask.sum(), 1) for g in noisy]  # BUG mean
    return jax.tree.unflatten(form, noisy)


def training(key, data, *, bug=None, steps=3):
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    for own in jax.random.split(key, steps):
        optimizer.update(model, private_gradient(model, own, data, bug=bug))
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


def step(key, data, *, bug=None):
    return nnx.to_pure_dict(private_gradient(Net(nnx.Rngs(0)), key, data, bug=bug))
