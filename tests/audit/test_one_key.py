"""A training whose batches and noise come from generators seeded alike leaks: the noise tells who was taken."""

import jax
import numpy as np
import pytest

import audit
import guarantees
import mechanisms

RATE, NOISE, STEPS = 0.6, 0.1, 2
COORDINATES = 16
"""From 16 numbers on PyTorch draws normal ones in pairs, a radius and an angle from the bits of two uniform ones."""
DATA = np.zeros((2, COORDINATES), np.float32)
DATA[0, 0] = 1.0
PAIR = mechanisms.pair(DATA[1:], DATA, relation="add_remove")


def seeds(seed, step, shared):
    """Of the batch and of the noise of one step."""
    own = (1_000_003 * seed + 2 * step) % 2**32
    return own, own if shared else (own + 1) % 2**32


def numpy_training(seed, data, *, shared):
    releases = []
    for step in range(STEPS):
        batch, noise = seeds(seed, step, shared)
        taken = np.random.RandomState(batch).random_sample(len(data)) < RATE
        releases.append(taken @ data + NOISE * np.random.RandomState(noise).normal(size=data.shape[1]))
    return np.stack(releases)


def torch_training(dataset, seed, *, shared):
    import torch

    data = torch.as_tensor(np.asarray(dataset))
    weights = torch.nn.Parameter(torch.zeros(data.shape[1]))
    optimizer = torch.optim.SGD([weights], lr=1.0)
    for step in range(STEPS):
        batch, noise = seeds(seed, step, shared)
        taken = (torch.rand(len(data), generator=torch.Generator().manual_seed(batch)) < RATE).float()
        drawn = torch.randn(data.shape[1], generator=torch.Generator().manual_seed(noise))
        weights.grad = taken @ data + NOISE * drawn
        optimizer.step()


def through_numpy(shared):
    return mechanisms.callable_step(lambda seed, data: numpy_training(seed, data, shared=shared), releases="transcript")


def through_torch(shared):
    pytest.importorskip("torch")
    return mechanisms.torch_training(
        lambda data, seed: torch_training(data, seed, shared=shared), releases="transcript", steps=STEPS
    )


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("through", [through_numpy, through_torch])
def test_one_key_for_batch_and_noise_leaks_in_a_training_and_two_keys_do_not(through, shared):
    claim = guarantees.poisson_training(rate=RATE, noise_multiplier=NOISE, steps=STEPS, accountant="certified")
    record = audit.run_audit(through(shared), PAIR, claim=claim, trials=6000, risk=1e-3, key=jax.random.key(0))
    assert record.verdict == ("violation" if shared else "no_violation_found"), record.reason
