"""Statistics that are no sums of clipped records, with noise once: right code is not accused, DP-SGD still is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

NUMBERS = mechanisms.replace_record(np.array([3.0, 8, 1, 9, 4, 6, 2, 5, 7], np.float32), 0, 7.0)
X = np.random.default_rng(3).normal(size=(6, 8)).astype(np.float32)
LABELLED = mechanisms.add_record({"x": X, "y": np.sign(X[:, 0])}, {"x": 20 * X[0], "y": np.float32(-np.sign(X[0, 0]))})
CLAIMS = {"pure": guarantees.randomised_response(epsilon=1.0), "gaussian": guarantees.gaussian(mu=1.0), "none": None}


def deviation(key, numbers):
    return jnp.std(jnp.clip(numbers, 0, 10)) + 20 * jax.random.normal(key)


def largest(key, numbers):
    return jax.nn.logsumexp(jnp.clip(numbers, 0, 10)) + 20 * jax.random.laplace(key)


def fitted(key, data, *, noise=4.0):
    rows = data["x"] / jnp.maximum(1.0, jnp.linalg.norm(data["x"], axis=1, keepdims=True))

    def objective(weights):
        return jnp.sum(jax.nn.softplus(-data["y"] * (rows @ weights))) + 5.0 * weights @ weights

    step = jax.grad(objective)
    weights = lax.fori_loop(0, 8, lambda _, weights: weights - 0.05 * step(weights), jnp.zeros(8))
    return weights + noise * jax.random.normal(key, (8,))


def smooth(key, numbers):
    ordered, at = jnp.sort(jnp.clip(numbers, 0, 10)), jnp.arange(4)
    wide = jnp.max(jnp.exp(-0.16 * at) * (ordered[4 + at] - ordered[4 - at]))
    return jnp.median(numbers) + 6 * wide * jax.random.cauchy(key)


def centred(key, data, *, clip=1.0):
    rows = data["x"] - data["x"].mean(0)
    factors = jnp.minimum(1.0, clip / jnp.linalg.norm(rows, axis=1))
    return factors @ rows + 4 * jax.random.normal(key, (8,))


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize(("step", "pair"), [(deviation, NUMBERS), (largest, NUMBERS), (fitted, LABELLED)])
def test_other_statistics_with_noise_once_are_left_to_trials(step, pair, claim):
    told = explain(step, pair, key=jax.random.key(0), claim=CLAIMS[claim])
    assert told.suspicions == ()
    assert "trials tell" in told.not_judged[0].says


def test_smooth_sensitivity_is_left_to_trials_under_a_claim_of_epsilon_alone():
    claim = guarantees.randomised_response(epsilon=1.0)
    assert explain(smooth, NUMBERS, key=jax.random.key(0), claim=claim).suspicions == ()
    found = explain(smooth, NUMBERS, key=jax.random.key(0), claim=CLAIMS["gaussian"]).suspicions
    assert Kind.NOISE_SCALE_FROM_DATA in {one.kind for one in found}


@pytest.mark.parametrize("step", [centred, fitted])
def test_code_that_is_said_to_clip_is_accused_of_the_same(step):
    found = explain(step, LABELLED, key=jax.random.key(0), clip=1.0, noise_multiplier=4.0).suspicions
    assert found[0].kind in (Kind.RECORDS_MIXED_BEFORE_SUM, Kind.RELEASED_WITHOUT_NOISE)


def test_records_that_are_clipped_after_they_were_mixed_are_accused_whatever_is_stated():
    assert explain(centred, LABELLED, key=jax.random.key(0)).suspicions[0].kind == Kind.RECORDS_MIXED_BEFORE_SUM


def test_too_little_noise_once_is_still_accused():
    """The record moves the weights by more than the claim covers: whatever they are, that is too much."""
    step = lambda key, data: fitted(key, data, noise=1e-3)  # noqa: E731
    assert explain(step, LABELLED, key=jax.random.key(0), claim=CLAIMS["gaussian"]).suspicions
