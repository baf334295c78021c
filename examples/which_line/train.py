"""Five steps with one bug each: dpsgd-audit explain privacy.toml"""

import jax
import jax.numpy as jnp


def clipped(rows):
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def one_key(key, rows):
    taken = jax.random.bernoulli(key, 0.5, (len(rows), 1))
    noise = jax.random.normal(key, (rows.shape[1],))
    return jnp.sum(taken * clipped(rows), axis=0) + noise


def divided(key, rows):
    key_batch, key_noise = jax.random.split(key)
    taken = jax.random.bernoulli(key_batch, 0.5, (len(rows), 1))
    noisy = jnp.sum(taken * clipped(rows), axis=0) + jax.random.normal(key_noise, (rows.shape[1],))
    return noisy / jnp.maximum(taken.sum(), 1)


def centred(key, rows):
    rows = rows - rows.mean(axis=0)
    return jnp.sum(clipped(rows), axis=0) + jax.random.normal(key, (rows.shape[1],))


def sum_clipped(key, rows):
    total = jnp.sum(rows, axis=0)
    total = total / jnp.maximum(jnp.linalg.norm(total), 1.0)
    return total + jax.random.normal(key, total.shape)


def half(key, rows):
    noise = 0.5 * jax.random.normal(key, (rows.shape[1],))
    return jnp.sum(clipped(rows), axis=0) + noise
