"""The network that NumPy trains is the one that JAX and Optax would."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from distinguishers.learned import network


@pytest.mark.long
def test_its_steps_are_those_of_adamw_on_the_gradient_of_its_loss(monkeypatch):
    steps = 3
    monkeypatch.setattr(network, "STEPS", steps)
    # the last step wins: only then all of them show
    rng = np.random.default_rng(0)
    without, with_record = (rng.normal(mean, 1.0, (50, 5)).astype(np.float32) for mean in (0.0, 2.0))
    key = jax.random.key(1)
    scaling, trained = network.train(key, without, with_record)

    own = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    held = own.random(128)[:100] < network.HELD_OUT
    weights = start = network._start(own, network.WIDTH)
    y = np.repeat([0.0, 1.0], 50)
    even = [np.where(chosen, 0.5 / np.where(y, chosen[50:].sum(), chosen[:50].sum()), 0.0) for chosen in (~held, held)]
    rows = np.concatenate([without, with_record])

    def losses(weights):
        scores = jax.vmap(lambda row: network.apply(scaling, weights, row))(rows)
        each = optax.sigmoid_binary_cross_entropy(scores, y)
        return jnp.sum(even[0] * each), jnp.sum(even[1] * each)

    differentiated = jax.jit(jax.value_and_grad(losses, has_aux=True))

    tool = optax.adamw(optax.cosine_decay_schedule(network.RATE, steps), weight_decay=network.DECAY)
    state, seen = tool.init(start), []
    for _ in range(steps):
        (_, outside), gradient = differentiated(weights)
        seen.append((float(outside), weights))
        changes, state = tool.update(gradient, state, weights)
        weights = jax.tree.map(jnp.add, weights, changes)
    assert [outside for outside, _ in seen] == sorted((outside for outside, _ in seen), reverse=True)
    # the last row and number stand for what is always 1: their gradient is 0 but for rounding, which Adam scales up
    for found, expected in zip(trained, seen[-1][1], strict=True):
        np.testing.assert_allclose(found[:-1], expected[:-1], atol=1e-4)
    assert not np.allclose(trained.first, start.first, atol=1e-3)
