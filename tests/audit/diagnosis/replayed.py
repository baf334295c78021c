"""Steps to be replayed. A faulty one marks the lines that a report should name with '# BUG' and says the finding."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mechanisms

WIDTH, CLIP, NOISE, RATE, STEP, EXPECTED, PLACES = 4, 2.0, 1.5, 0.7, 0.1, 6, 12
WEIGHTS = jnp.linspace(-1.0, 1.0, WIDTH)
FAULTY: dict[str, tuple[Callable[..., Any], str]] = {}
RIGHT: dict[str, Callable[..., Any]] = {}


def faulty(kind: str):
    """Register a faulty step, with what should be found."""

    def register(step):
        FAULTY[step.__name__] = (step, kind)
        return step

    return register


def right(step):
    """Register a step about which nothing should be said."""
    RIGHT[step.__name__] = step
    return step


def marked_lines(step) -> set[int]:
    """The lines of a step that are marked as its bug."""
    lines, start = inspect.getsourcelines(step)
    return {start + offset for offset, line in enumerate(lines) if "# BUG" in line}


def rows(records: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Data of a linear regression whose last record is far out."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(records, WIDTH)), random.normal(size=records)
    x[-1] *= 6
    y[-1] = -20
    return x.astype(np.float32), y.astype(np.float32)


def added():
    """A record more."""
    x, y = rows()
    return mechanisms.pair((x[:-1], y[:-1]), (x, y), relation="add_remove")


def loss(weights, x, y):
    return jnp.square(x @ weights - y) / 2


def gradients(weights, data):
    return jax.vmap(jax.grad(loss), (None, 0, 0))(weights, *data)


def clipped(rows, clip=CLIP):
    norms = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows * jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-9))


def joined(key, data):
    return jax.random.bernoulli(key, RATE, (len(data[0]),)).astype(jnp.float32)


def noise(key, shape=(WIDTH,)):
    return CLIP * NOISE * jax.random.normal(key, shape)


def two_tensors(data):
    """Clipped sums of a matrix and a bias."""

    def own(weights, x, y):
        return jnp.square(x @ weights["w"] + weights["b"] - y).sum() / 2

    start = {"w": jnp.ones((WIDTH, 2)), "b": jnp.zeros(2)}
    found = jax.vmap(jax.grad(own), (None, 0, 0))(start, *data)
    norms = jnp.sqrt(sum(jnp.sum(jnp.square(leaf).reshape(len(leaf), -1), axis=1) for leaf in found.values()))
    factor = jnp.minimum(1.0, CLIP / jnp.maximum(norms, 1e-9))
    return {name: jnp.einsum("n...,n->...", leaf, factor) for name, leaf in found.items()}


@faulty("key_used_twice")
def one_key_for_batch_and_noise(key, data):
    batch = joined(key, data)  # BUG
    total = batch @ clipped(gradients(WEIGHTS, data))
    return total + noise(key)  # BUG


@faulty("key_used_twice")
def one_key_drawn_from_and_split(key, data):
    batch = joined(key, data)  # BUG
    sums, keys = two_tensors((data[0] * batch[:, None], data[1] * batch)), jax.random.split(key)  # BUG
    return {name: sums[name] + noise(own, sums[name].shape) for name, own in zip(("w", "b"), keys, strict=True)}


@faulty("key_used_twice")
def one_key_for_two_tensors(key, data):
    sums = two_tensors(data)
    kernel = sums["w"] + CLIP * NOISE * jax.random.normal(key, (WIDTH, 2))  # BUG
    return kernel, sums["b"] + CLIP * NOISE * jax.random.normal(key, (2,))  # BUG


@faulty("key_used_twice")
def one_key_for_all_rounds(key, data):
    def take(weights, _):
        total = clipped(gradients(weights, data)).sum(0)
        return weights - STEP * (total + noise(key)), None  # BUG

    return jax.lax.scan(take, WEIGHTS, None, length=3)[0]


@faulty("key_used_twice")
def one_number_for_all_coordinates(key, data):
    return clipped(gradients(WEIGHTS, data)).sum(0) + noise(key, ())  # BUG


@faulty("randomness_from_data")
def key_from_the_data(key, data):
    own = jax.random.fold_in(key, jnp.sum(data[0] > 0))
    return clipped(gradients(WEIGHTS, data)).sum(0) + CLIP * NOISE * jax.random.normal(own, (WIDTH,))  # BUG


@faulty("released_without_noise")
def bare_bias(key, data):
    sums = two_tensors(data)
    return {"w": sums["w"] + noise(key, (WIDTH, 2)), "b": 1.0 * sums["b"]}


@faulty("released_without_noise")
def sampled_without_noise(key, data):
    return joined(key, data) @ clipped(gradients(WEIGHTS, data))  # BUG


@faulty("released_without_noise")
def noise_of_a_fixed_seed(key, data):
    del key
    total = clipped(gradients(WEIGHTS, data)).sum(0)  # BUG
    return total + noise(jax.random.key(0))


@faulty("changed_after_release")
def divided_by_the_drawn_batch(key, data):
    first, second = jax.random.split(key)
    batch = joined(first, data)
    noisy = batch @ clipped(gradients(WEIGHTS, data)) + noise(second)
    return noisy / jnp.maximum(batch.sum(), 1.0)  # BUG


@faulty("changed_after_release")
def rate_from_the_data(key, data):
    noisy = clipped(gradients(WEIGHTS, data)).sum(0) + noise(key)
    rate = STEP / (1 + jnp.square(data[0]).mean())  # BUG
    return WEIGHTS - rate * noisy  # BUG


@faulty("changed_after_release")
def momentum_of_raw_gradients(key, data):
    def take(state, own):
        weights, momentum = state
        found = gradients(weights, data)
        momentum = 0.9 * momentum + found.sum(0) / EXPECTED  # BUG
        weights = weights - STEP * (clipped(found).sum(0) + noise(own) + momentum)  # BUG
        return (weights, momentum), None

    return jax.lax.scan(take, (WEIGHTS, jnp.zeros(WIDTH)), jax.random.split(key, 3))[0][0]


@faulty("noise_scale_from_data")
def noise_over_the_number_of_records(key, data):
    mean = clipped(gradients(WEIGHTS, data)).mean(0)
    return mean + CLIP * NOISE / len(data[0]) * jax.random.normal(key, (WIDTH,))  # BUG


@faulty("noise_scale_from_data")
def noise_over_the_drawn_batch(key, data):
    first, second = jax.random.split(key)
    batch = joined(first, data)
    size = jnp.maximum(batch.sum(), 1.0)
    return batch @ clipped(gradients(WEIGHTS, data)) / EXPECTED + noise(second) / size  # BUG


@faulty("records_mixed_before_sum")
def normalised_over_the_batch(key, data):
    x, y = data
    x = (x - x.mean(0)) / (x.std(0) + 1e-5)  # BUG
    return clipped(gradients(WEIGHTS, (x, y))).sum(0) + noise(key)


@faulty("records_mixed_before_sum")
def norm_along_the_wrong_axis(key, data):
    found = gradients(WEIGHTS, data)
    norms = jnp.linalg.norm(found, axis=0, keepdims=True)  # BUG
    return (found * jnp.minimum(1.0, CLIP / norms)).sum(0) + noise(key)  # BUG


@faulty("records_mixed_before_sum")
def median_as_the_bound(key, data):
    found = gradients(WEIGHTS, data)
    bound = jnp.minimum(CLIP, jnp.median(jnp.linalg.norm(found, axis=1)))  # BUG
    total = clipped(found, bound).sum(0)
    return total + noise(key)


@faulty("clipped_after_sum")
def mean_clipped(key, data):
    mean = gradients(WEIGHTS, data).sum(0) / EXPECTED
    mean = mean * jnp.minimum(1.0, CLIP / jnp.linalg.norm(mean))  # BUG
    return mean + noise(key) / EXPECTED


def in_groups(data, size, places=PLACES):
    """Padded with records of weight 0, in groups."""
    short = places - len(data[0])
    columns = [jnp.pad(column, [(0, short)] + [(0, 0)] * (column.ndim - 1)) for column in data]
    weights = (jnp.arange(places) < len(data[0])).astype(jnp.float32)
    return tuple(column.reshape(-1, size, *column.shape[1:]) for column in (*columns, weights))


def loss_of_group(weights, x, y, present):
    return present @ jax.vmap(loss, (None, 0, 0))(weights, x, y)


@faulty("clipped_after_sum")
def pairs_clipped_in_a_padded_batch(key, data):
    sums = jax.vmap(jax.grad(loss_of_group), (None, 0, 0, 0))(WEIGHTS, *in_groups(data, 2))
    return clipped(sums).sum(0) + noise(key)  # BUG


@faulty("clipped_after_sum")
def groups_clipped_in_a_loop(key, data):
    first, second = jax.random.split(key)
    x, y, present = in_groups(data, 3)
    taken = jnp.pad(joined(first, data), (0, PLACES - len(data[0]))).reshape(present.shape)

    def add(total, group):
        found = jax.grad(loss_of_group)(WEIGHTS, *group)
        return total + clipped(found[None])[0], None  # BUG

    return jax.lax.scan(add, jnp.zeros(WIDTH), (x, y, taken))[0] + noise(second)


@faulty("not_clipped")
def not_clipped(key, data):
    total = gradients(WEIGHTS, data).sum(0)  # BUG
    return total + noise(key)


@faulty("too_little_noise")
def noise_halved(key, data):
    total = clipped(gradients(WEIGHTS, data)).sum(0)
    return total + 0.5 * noise(key)  # BUG


@faulty("too_little_noise")
def noise_without_the_clip(key, data):
    total = clipped(gradients(WEIGHTS, data)).sum(0)
    return total + NOISE * jax.random.normal(key, (WIDTH,))  # BUG


@faulty("too_little_noise")
def loop_over_records(key, data):
    total = jnp.zeros(WIDTH)
    for record in range(len(data[0])):
        total = total + clipped(gradients(WEIGHTS, (data[0][record][None], data[1][record][None])))[0]
    return total + noise(key) / 2  # BUG


@faulty("too_little_noise")
def workers_that_all_see(key, data):
    rows = clipped(gradients(WEIGHTS, data))
    parts = [rows[worker::4].sum(0) + noise(own) / 2 for worker, own in enumerate(jax.random.split(key, 4))]  # BUG
    return parts[0] + parts[1] + parts[2] + parts[3], parts[0]


# Right ones: nothing is to be said about any of them.


@right
def whole_dataset(key, data):
    return clipped(gradients(WEIGHTS, data)).sum(0) + noise(key)


@right
def regulariser_outside_the_clip(key, data):
    noisy = clipped(gradients(WEIGHTS, data)).sum(0) + noise(key)
    return WEIGHTS - STEP * (noisy + 0.01 * jax.grad(lambda weights: jnp.square(weights).sum())(WEIGHTS))


@right
def poisson_rounds(key, data):
    def take(weights, own):
        first, second = jax.random.split(own)
        total = joined(first, data) @ clipped(gradients(weights, data)) + 0.1 * weights
        return weights - STEP / EXPECTED * (total + noise(second)), None

    return jax.lax.scan(take, WEIGHTS, jax.random.split(key, 3))[0]


def _padded(key, data, fill):
    first, second = jax.random.split(key)
    records = len(data[0])
    mask = joined(first, data) > 0
    index = jnp.nonzero(mask, size=PLACES, fill_value=fill)[0]
    present = (jnp.arange(PLACES) < mask.sum())[:, None]
    batch = tuple(jnp.concatenate([column, jnp.zeros((1, *column.shape[1:]))])[index] for column in data)
    del records
    return (clipped(gradients(WEIGHTS, batch)) * present).sum(0) + noise(second)


@right
def poisson_padded_with_the_first(key, data):
    return _padded(key, data, 0)


@right
def poisson_padded_with_zeros(key, data):
    return _padded(key, data, len(data[0]))


@right
def clipped_per_layer(key, data):
    found = gradients(WEIGHTS, data)
    layers = [clipped(layer, CLIP / jnp.sqrt(2.0)) for layer in jnp.split(found, 2, axis=1)]
    return jnp.concatenate([layer.sum(0) for layer in layers]) + noise(key)


@right
def ghost_clipping(key, data):
    x, y = data
    errors = x @ WEIGHTS - y
    norms = jnp.abs(errors) * jnp.linalg.norm(x, axis=1)
    factor = jax.lax.stop_gradient(jnp.minimum(1.0, CLIP / jnp.maximum(norms, 1e-9)))
    total = jax.grad(lambda weights: jnp.sum(factor * jnp.square(x @ weights - y) / 2))(WEIGHTS)
    return total + noise(key)


@right
def scan_over_records(key, data):
    def add(total, record):
        found = jax.grad(loss)(WEIGHTS, *record)
        return total + found * jnp.minimum(1.0, CLIP / jnp.maximum(jnp.linalg.norm(found), 1e-9)), None

    return jax.lax.scan(add, jnp.zeros(WIDTH), data)[0] + noise(key)


@right
def dropout_per_record(key, data):
    first, second = jax.random.split(key)
    kept = jax.random.bernoulli(first, 0.8, data[0].shape) / 0.8
    return clipped(gradients(WEIGHTS, (data[0] * kept, data[1]))).sum(0) + noise(second)


@right
def clipped_records_in_a_loop_of_groups(key, data):
    first, second = jax.random.split(key)
    x, y, present = in_groups(data, 3)
    taken = jnp.pad(joined(first, data), (0, PLACES - len(data[0]))).reshape(present.shape)

    def add(total, group):
        return total + group[2] @ clipped(gradients(WEIGHTS, group[:2])), None

    return jax.lax.scan(add, jnp.zeros(WIDTH), (x, y, taken))[0] + noise(second)


@right
def clipped_records_in_padded_groups(key, data):
    def own(x, y, present):
        return present @ clipped(gradients(WEIGHTS, (x, y)))

    return jax.vmap(own)(*in_groups(data, 3)).sum(0) + noise(key)


@right
def clipped_in_the_backward_pass(key, data):
    @jax.custom_vjp
    def same(weights):
        return weights

    same.defvjp(lambda weights: (weights, None), lambda _, found: (clipped(found[None])[0],))

    def total(weights):
        own = jax.vmap(same)(jnp.broadcast_to(weights, (len(data[0]), WIDTH)))
        return jax.vmap(loss)(own, *data).sum()

    return jax.grad(total)(WEIGHTS) + noise(key)


def sum_clipped_again_in_earnest(key, data):
    """Right: the sum of clipped records is bounded again, which moves two sums no further apart."""
    total = clipped(gradients(WEIGHTS, data)).sum(0)
    return total * jnp.minimum(1.0, CLIP / jnp.maximum(jnp.linalg.norm(total), 1e-9)) + noise(key)


@right
def noise_before_the_sum(key, data):
    return noise(key) + clipped(gradients(WEIGHTS, data)).sum(0)


@right
def noise_in_two_halves(key, data):
    first, second = jax.random.split(key)
    total = clipped(gradients(WEIGHTS, data)).sum(0) + noise(first) / jnp.sqrt(2.0)
    return total + noise(second) / jnp.sqrt(2.0)


@right
def noise_of_four_workers(key, data):
    rows = clipped(gradients(WEIGHTS, data))
    parts = [rows[worker::4].sum(0) + noise(own) / 2 for worker, own in enumerate(jax.random.split(key, 4))]
    return (parts[0] + parts[1] + parts[2] + parts[3]) / EXPECTED


@right
def noise_of_stacked_workers(key, data):
    rows = clipped(gradients(WEIGHTS, data))
    parts = jnp.stack([rows[worker::4].sum(0) for worker in range(4)])
    return (parts + noise(key, (4, WIDTH)) / 2).sum(0)


@right
def noise_in_every_microbatch(key, data):
    def add(total, piece):
        own, record = piece
        return total + clipped(gradients(WEIGHTS, record)).sum(0) + noise(own) / jnp.sqrt(3.0), None

    short = -len(data[0]) % 3
    pieces = [jnp.pad(column, [(0, short)] + [(0, 0)] * (column.ndim - 1)) for column in data]
    pieces = tuple(column.reshape(3, -1, *column.shape[1:]) for column in pieces)
    return jax.lax.scan(add, jnp.zeros(WIDTH), (jax.random.split(key, 3), pieces))[0]


@right
def momentum_of_noisy_updates(key, data):
    def take(state, own):
        weights, momentum = state
        momentum = 0.9 * momentum + noise(own) + clipped(gradients(weights, data)).sum(0)
        return (weights - STEP * momentum, momentum), momentum

    return jax.lax.scan(take, (WEIGHTS, jnp.zeros(WIDTH)), jax.random.split(key, 3))


@right
def automatic_clipping(key, data):
    found = gradients(WEIGHTS, data)
    scaled = CLIP * found / (jnp.linalg.norm(found, axis=1, keepdims=True) + 0.01)
    return scaled.sum(0) + noise(key)


@right
def mixed_precision(key, data):
    x, y = (column.astype(jnp.bfloat16) for column in data)
    found = gradients(WEIGHTS.astype(jnp.bfloat16), (x, y)).astype(jnp.float32)
    return clipped(found).sum(0) + noise(key)


@right
def mean_of_gradients_times_their_number(key, data):
    total = clipped(gradients(WEIGHTS, data)).mean(0) * len(data[0])
    return total + noise(key)


@right
def jitted_and_flattened(key, data):
    flat, back = jax.flatten_util.ravel_pytree(jax.jit(two_tensors)(data))
    return back(flat + noise(key, flat.shape))


@right
def adam_on_noisy_gradients(key, data):
    optimiser = optax.adam(STEP)
    noisy = clipped(gradients(WEIGHTS, data)).sum(0) / EXPECTED + noise(key) / EXPECTED
    updates, _ = optimiser.update(noisy, optimiser.init(WEIGHTS), WEIGHTS)
    return optax.apply_updates(WEIGHTS, updates)


@right
def sum_clipped_again(key, data):
    total = clipped(gradients(WEIGHTS, data)).sum(0)
    return total * jnp.minimum(1.0, 100 * CLIP / jnp.linalg.norm(total)) + noise(key)


@right
def recomputed_with_dropout(key, data):
    first, second = jax.random.split(key)

    @functools.partial(jax.checkpoint)
    def own(weights, x, y, drop):
        return loss(weights, x * jax.random.bernoulli(drop, 0.8, x.shape), y)

    drops = jax.random.split(first, len(data[0]))
    found = jax.vmap(jax.grad(own), (None, 0, 0, 0))(WEIGHTS, *data, drops)
    return clipped(found).sum(0) + noise(second)


def loop_of_microbatches(key, data):
    """Right on two datasets of one size, in two microbatches."""

    def add(total, batch):
        return total + clipped(gradients(WEIGHTS, batch)).sum(0), None

    pieces = jax.tree.map(lambda column: column.reshape(2, -1, *column.shape[1:]), data)
    return jax.lax.scan(add, jnp.zeros(WIDTH), pieces)[0] + noise(key)


def optax_chain(key, data):
    """Optax's own DP-SGD, right on two datasets of one size: it divides by the number of records."""
    chain = optax.contrib.differentially_private_aggregate(CLIP, NOISE, key=key)
    return chain.update(gradients(WEIGHTS, data), chain.init(WEIGHTS))[0]


def batch_of_fixed_size(key, data):
    """Right on two datasets of one size: which records are drawn does not depend on what they hold."""
    first, second = jax.random.split(key)
    index = jax.random.permutation(first, len(data[0]))[:6]
    return clipped(gradients(WEIGHTS, tuple(column[index] for column in data))).sum(0) + noise(second)


EQUAL_SIZES = (
    whole_dataset,
    loop_of_microbatches,
    optax_chain,
    batch_of_fixed_size,
    poisson_padded_with_zeros,
    sum_clipped_again_in_earnest,
)
"""Right under zero_out, where the number of records is known."""
