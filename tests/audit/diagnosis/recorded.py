"""The kinds of bugs that dp-recorder's own tests show, as steps in JAX without a decorator; lines marked as bugs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

EPSILON, BOUND = 1.0, 5.0


def laplace(key, value, sensitivity, epsilon=EPSILON):
    return value + sensitivity / epsilon * jax.random.laplace(key, jnp.shape(value))


def mean_of_a_private_number(key, data):
    total = jnp.clip(data, -1.0, 1.0).sum()
    return laplace(key, total, 1.0) / len(data)  # BUG


def classes_of_the_data(key, data):
    classes = jnp.unique(data)  # BUG
    return jnp.stack([laplace(key, jnp.sum(data == own), 1.0) for own in classes])


def full_budget_twice(key, data):
    first, second = jax.random.split(key)
    total = laplace(first, jnp.clip(data, -1.0, 1.0).sum(), 1.0)  # BUG
    return total, laplace(second, 1.0 * len(data), 1.0)  # BUG


def not_a_number(key, data):
    total = jnp.clip(data, -BOUND, BOUND).sum()  # BUG
    return laplace(key, total, BOUND)


def no_noise_left(key, data, features=5, kept=5):
    return laplace(key, jnp.clip(data, -1.0, 1.0).sum(), float(features - kept))  # BUG


def sum_of_the_raw(key, data):
    jnp.clip(data, -BOUND, BOUND)
    total = data.sum()  # BUG
    return laplace(key, total, BOUND)


def right_count(key, data):
    return laplace(key, jnp.sum(data == 1.0), 1.0)


def f4(*numbers):
    return np.array(numbers, np.float32)


STEPS = {
    mean_of_a_private_number: (f4(0.5, 0.5), f4(0.5, 0.5, 0.5), "add_remove"),
    classes_of_the_data: (f4(0, 1, 0), f4(0, 1, 0, 2), "add_remove"),
    full_budget_twice: (np.zeros(100, np.float32), f4(*[0] * 100, 1), "add_remove"),
    not_a_number: (f4(1, 2), f4(1, np.nan), "substitution"),
    no_noise_left: (f4(1), f4(1, 1), "add_remove"),
    sum_of_the_raw: (f4(1, -2, 3), f4(1, -2, 100), "substitution"),
    right_count: (f4(0, 1, 0), f4(0, 1, 0, 1), "add_remove"),
}
"""Each with its pair, as their tests have it."""
