"""deepee: one step of PrivacyWrapper on a batch of all rows from its UniformDataLoader, clip 1, noise 2.

Promise (deepee/wrapper.py): 'returns a model suitable for DP-SGD learning'; its watchdog accounts batches drawn 'by
uniform sampling without replacement' (deepee/watchdog.py:73). The relation is not stated: batches of a fixed size are
judged by one record exchanged, at twice the mu of one more. No seed is given to the wrapper.
"""

import torch
from deepee import PrivacyWrapper, UniformDataLoader
from torch.utils.data import TensorDataset

torch.set_num_threads(1)


class Linear(torch.nn.Module):
    def __init__(self, dimension):
        super().__init__()
        self.layer = torch.nn.Linear(dimension, 1, bias=False)
        torch.nn.init.zeros_(self.layer.weight)

    def forward(self, rows):
        return self.layer(rows)


def release(seed, rows):
    torch.manual_seed(seed % 2**63)
    model = PrivacyWrapper(Linear(rows.shape[1]), num_replicas=len(rows), L2_clip=1.0, noise_multiplier=2.0)
    (batch,) = next(iter(UniformDataLoader(TensorDataset(torch.tensor(rows)), len(rows), pin_memory=False)))
    model(batch).sum().backward()
    model.clip_and_accumulate()
    model.noise_gradient()
    return model.wrapped_model.layer.weight.grad.numpy().ravel()
