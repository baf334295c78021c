"""Canaries in a training of a real model, scored along their direction: a right run keeps its claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_rate_is
from jax.flatten_util import ravel_pytree

import audit
import distinguishers
import guarantees
import mechanisms
from mechanisms import sampling

KEY = jax.random.key(12)
RATE, CLIP, NOISE, STEPS = 0.5, 0.5, 1.0, 3
RNG = np.random.default_rng(2)
DATA = (RNG.normal(size=(5, 3)).astype(np.float32), np.array([0, 1, 0, 1, 0]))
START = {"bias": jnp.zeros(2), "kernel": jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32)}


def loss(weights, record):
    return -jax.nn.log_softmax(record[0] @ weights["kernel"] + weights["bias"])[record[1]]


CANARIES = mechanisms.gradient_canaries(START, kind="random", length=10.0)


def training(noise):
    """Three adaptive steps of DP-SGD on Poisson batches; the transcript of noisy sums, as a pytree."""
    per_example = jax.vmap(jax.grad(CANARIES.loss(loss)), in_axes=(None, 0))

    def step(key, dataset):
        weights, released = START, []
        for number in range(STEPS):
            key_batch, key_noise = jax.random.split(jax.random.fold_in(key, number))
            gradients = per_example(weights, dataset)
            sizes = jnp.sqrt(sum(jnp.sum(g.reshape(len(g), -1) ** 2, axis=1) for g in jax.tree.leaves(gradients)))
            kept = jax.random.bernoulli(key_batch, RATE, sizes.shape) / jnp.maximum(1.0, sizes / CLIP)
            total, unravel = ravel_pytree(jax.tree.map(lambda g, kept=kept: jnp.tensordot(kept, g, 1), gradients))
            noisy = unravel(total + noise * CLIP * jax.random.normal(key_noise, total.shape))
            weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, noisy)
            released.append(noisy)
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *released)

    step.kind = step.releases = "transcript"
    return mechanisms.mechanism(step)


def ratio():
    model = mechanisms.many_rounds(
        sampler=sampling.poisson(rate=RATE, steps=STEPS), clip=CLIP, noise_multiplier=NOISE, sees="isolated"
    ).collapsed()
    pair = mechanisms.worst_case_pair(records=4, dimension=1, clip=CLIP, relation="zero_out")
    return distinguishers.along(distinguishers.likelihood_ratio(model, pair), CANARIES.direction())


def judge(noise, trials=6000):
    pair = CANARIES.pair(DATA, others="zero")
    claim = guarantees.poisson_training(
        rate=RATE, noise_multiplier=NOISE, steps=STEPS, relation="zero_out", accountant="certified"
    )
    return audit.run_audit(
        training(noise), pair, ratio(), claim=claim, trials=trials, risk=0.01, key=KEY, diagnose=False
    )


@pytest.mark.long
def test_a_right_training_has_the_tails_of_the_exact_curve_and_keeps_its_claim():
    record = judge(NOISE)
    assert record.verdict == "no_violation_found"
    curve, grid = ratio().curve, record.grids[0]
    middle = len(grid.edges) // 2
    alpha, beta = curve.errors(grid.edges[middle])
    assert_rate_is(sum(grid.without[middle + 1 :]), 3000, float(alpha))
    assert_rate_is(sum(grid.with_record[: middle + 1]), 3000, float(beta))


@pytest.mark.long
def test_half_the_noise_is_found():
    assert judge(NOISE / 2).verdict == "violation"


def test_a_direction_must_be_a_unit_vector_and_the_score_one_of_statistics():
    with pytest.raises(ValueError, match="a unit vector"):
        distinguishers.along(ratio().score, np.ones(8))
    with pytest.raises(ValueError, match="collapsed statistics"):
        distinguishers.along(ratio(), CANARIES.direction())
