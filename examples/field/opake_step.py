"""Opake: clipped_grad and gaussian_noise as in its README, clip 1, noise 1, a fixed divisor.

Promise (opake/api/engine/clipping/_clipped_grad.py:139): 'The L2 sensitivity of the returned function with respect to
the batch arguments under add/remove or zero-out differential privacy definitions is guaranteed to be `clipping_norm`'.
"""

import torch
from opake.dpsgd.clipping import clipped_grad
from opake.dpsgd.noise import gaussian_noise
from opake.random import key

torch.set_num_threads(1)


def loss(weights, row):
    return (row @ weights).sum()


GRADIENT, STATE = clipped_grad(loss, clipping_norm=1.0, batch_argnums=(1,), normalize_by=2)


def release(seed, rows):
    clipped, _ = GRADIENT(torch.zeros(rows.shape[1]), torch.tensor(rows), state=STATE)
    noise, state = gaussian_noise(noise_multiplier=1.0, key=key(seed % 2**63))
    noisy, _ = noise(clipped, state)
    return noisy.pytree.numpy()
