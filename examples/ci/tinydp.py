"""One private gradient: sample records, clip each gradient, sum, add Gaussian noise."""

import jax
import jax.numpy as jnp


def clip_each(gradients: jax.Array, clip: float) -> jax.Array:
    """Every row shortened to length ``clip`` at most."""
    lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients / jnp.maximum(lengths / clip, 1.0)


def private_gradient(
    key: jax.Array, gradients: jax.Array, *, rate: float, clip: float, noise_multiplier: float
) -> jax.Array:
    """The noisy sum over a batch that takes each record with probability ``rate``."""
    key_batch, key_noise = jax.random.split(key)
    taken = jax.random.bernoulli(key_batch, rate, (gradients.shape[0],))
    total = jnp.sum(taken[:, None] * clip_each(gradients, clip), axis=0)
    return total + noise_multiplier * clip * jax.random.normal(key_noise, total.shape)
