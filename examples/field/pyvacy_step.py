"""pyvacy 0.0.32: one step of DPSGD on one batch of all rows; clip 1, noise 1.

Promise (pyvacy/optim/dp_optimizer.py:14): 'noise_multiplier: The ratio between the clipping parameter and the std of
noise applied', and its accountant judges a subsampled Gaussian mechanism. It clips the batch's mean gradient, not each
record's, and adds noise of noise_multiplier * clip / sqrt(batch); the project's later code clips each microbatch.
"""

import torch
from pyvacy.optim import DPSGD

torch.set_num_threads(1)


def release(seed, rows):
    torch.manual_seed(seed % 2**63)
    data, weights = torch.tensor(rows), torch.nn.Parameter(torch.zeros(rows.shape[1]))
    optimizer = DPSGD(1.0, 1.0, len(rows), [weights], lr=1.0)
    optimizer.zero_grad()
    (data @ weights).mean().backward()
    optimizer.step()
    return -weights.detach().numpy()
