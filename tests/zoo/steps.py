"""Deliberately wrong releases, each a few lines over the right ones at the top. Table and truths: faulty.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mechanisms.randomness.counts import poisson_batch
from mechanisms.randomness.noise import normal
from mechanisms.simulators.rounds import clip_rows

CLIP = 1.0
NOISE = 1.0
"""Noise multiplier: a right release of the whole dataset is 1-GDP."""
RATE = 0.5
BATCH = 4
LAYERS = 4
STEPS = 2
MICROBATCH = 2
WIDE_CLIP = 2.0
GRAIN = 2.0


def summed(gradients: jax.Array, clip: float = CLIP) -> jax.Array:
    """The sum of clipped gradients."""
    return jnp.sum(clip_rows(gradients, clip), axis=0)


def noisy(key: jax.Array, total: jax.Array, deviation: float | jax.Array = NOISE * CLIP) -> jax.Array:
    """The sum and its noise."""
    return total + deviation * normal(key, total.shape)


def by_step(gradients: jax.Array, steps: int = STEPS) -> jax.Array:
    """Rows that hold a record's gradients at all steps, as (steps, records, coordinates)."""
    return jnp.stack(jnp.split(gradients, steps, axis=1))


# Right releases.


def whole_dataset(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The Gaussian mechanism on the sum."""
    return noisy(key, summed(gradients))


def poisson(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """One round of SGM."""
    batch = poisson_batch(key, records=len(gradients), rate=RATE)
    return noisy(key, batch @ clip_rows(gradients, CLIP))


def every_step(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """All updates, each with its own noise."""
    totals = jnp.stack([summed(step) for step in by_step(gradients)])
    return noisy(key, totals.ravel())


def wide_clip(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The Gaussian mechanism with another clipping norm."""
    return noisy(key, summed(gradients, WIDE_CLIP), NOISE * WIDE_CLIP)


def four_steps_accounted(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Four updates whose noise is twice as large: as private as one."""
    totals = jnp.stack([summed(step) for step in by_step(gradients, 4)])
    return noisy(key, totals.ravel(), 2 * NOISE * CLIP)


# Wrong ones.


def fixed_size_batch(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Batches of a fixed size, drawn without replacement."""
    key_batch, key_noise = jax.random.split(key)
    chosen = jax.random.choice(key_batch, len(gradients), (2,), replace=False)
    return noisy(key_noise, summed(gradients[chosen]))


def first_batch(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Batches in a fixed order; the record is always in this one."""
    return noisy(key, summed(gradients[-2:]))


def mean_loss_gradients(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Gradients of a mean loss are clipped, then multiplied by the batch size."""
    return noisy(key, BATCH * summed(gradients / BATCH))


def noise_of_the_mean(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Noise calibrated to the mean is added to the sum."""
    return noisy(key, summed(gradients), NOISE * CLIP / BATCH)


def key_reused_across_steps(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Every step draws the same noise."""
    return jnp.concatenate([noisy(key, summed(step)) for step in by_step(gradients)])


def key_reused_across_parameters(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Every parameter, a scalar here, draws the same noise."""
    return summed(gradients) + NOISE * CLIP * normal(key, ())


def clipping_ignored(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The clipping norm never reaches the clipping."""
    return noisy(key, jnp.sum(gradients, axis=0))


def bias_left_out(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The norm is computed without the last parameter."""
    weights = jnp.linalg.norm(gradients[:, :-1], axis=1, keepdims=True)
    return noisy(key, jnp.sum(gradients * jnp.minimum(1.0, CLIP / (weights + 1e-6)), axis=0))


def clipped_per_layer(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Every layer is clipped to the whole norm."""
    layers = [summed(layer) for layer in jnp.split(gradients, LAYERS, axis=1)]
    return noisy(key, jnp.concatenate(layers))


def batch_clipped(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The sum is clipped instead of each gradient."""
    return noisy(key, summed(jnp.sum(gradients, axis=0, keepdims=True)))


def microbatches_clipped(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Means of microbatches are clipped; the record shares its microbatch."""
    pieces = [gradients[i : i + MICROBATCH] for i in range(0, len(gradients), MICROBATCH)]
    return noisy(key, summed(jnp.stack([jnp.mean(piece, axis=0) for piece in pieces])))


def noise_shared_by_virtual_steps(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Each of four accumulated pieces brings a quarter of the noise: together half of it."""
    pieces = [noisy(jax.random.fold_in(key, i), jnp.zeros(gradients.shape[1]), NOISE * CLIP / 4) for i in range(4)]
    return summed(gradients) + sum(pieces)


def noise_on_the_last_virtual_step(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Every accumulated piece is released, the last alone with noise."""
    first, last = (summed(step) for step in by_step(gradients))
    return jnp.concatenate([first, noisy(key, last)])


def no_noise(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Noise is switched off."""
    del key
    return summed(gradients)


def noise_below_target(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The search for the noise multiplier stopped at .8 of what was needed."""
    return noisy(key, summed(gradients), 0.8 * NOISE * CLIP)


def bound_of_the_batch(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Clipping norm and noise follow the largest gradient of the batch."""
    bound = jnp.max(jnp.linalg.norm(gradients, axis=1))
    return noisy(key, jnp.sum(gradients, axis=0), NOISE * bound)


def non_finite_skipped(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Gradients are scaled to the norm, a zero one to NaN; a step with NaN is skipped."""
    total = jnp.sum(gradients * (CLIP / jnp.linalg.norm(gradients, axis=1, keepdims=True)), axis=0)
    return jnp.where(jnp.isfinite(total).all(), noisy(key, jnp.nan_to_num(total)), 0.0)


def steps_from_the_dataset_size(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """An epoch has ceil(N / batch) steps: their number tells N."""
    taken = -(-len(gradients) // BATCH)
    totals = jnp.stack([summed(step) * (i < taken) for i, step in enumerate(by_step(gradients))])
    noise = NOISE * CLIP * normal(key, totals.shape) * (jnp.arange(STEPS) < taken)[:, None]
    return (totals + noise).ravel()


def scaled_by_the_data(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Records are scaled by the largest value in the data."""
    return noisy(key, summed(CLIP * gradients / jnp.max(jnp.abs(gradients))))


def grained_noise(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Noise of so few bits that the gradients show between its values."""
    noise = NOISE * CLIP * normal(key, gradients.shape[1:])
    return summed(gradients) + GRAIN * jnp.round(noise / GRAIN)


def four_steps_for_one(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Four updates are released where the accountant counts one accumulated step."""
    totals = jnp.stack([summed(step) for step in by_step(gradients, 4)])
    return noisy(key, totals.ravel())


def noise_without_clip(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """The noise is not multiplied by the clipping norm."""
    return noisy(key, summed(gradients, WIDE_CLIP), NOISE)


def rate_of_the_loader(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Sampled at .7 where the accountant was told .5."""
    batch = poisson_batch(key, records=len(gradients), rate=0.7)
    return noisy(key, batch @ clip_rows(gradients, CLIP), 0.5 * NOISE * CLIP)


def poisson_less_noise(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """One round of SGM at noise multiplier .5."""
    batch = poisson_batch(key, records=len(gradients), rate=RATE)
    return noisy(key, batch @ clip_rows(gradients, CLIP), 0.5 * NOISE * CLIP)


def cut_tails(key: jax.Array, gradients: jax.Array) -> jax.Array:
    """Noise from 23 random bits, which ends at 5.22 standard deviations above and 5.42 below."""
    total = summed(gradients)
    return total + NOISE * CLIP * jax.random.normal(key, total.shape, jnp.float32)
