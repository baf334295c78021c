"""Opacus: one step of make_private on a linear model, Poisson batches of half the records; clip 1, noise 1.

Promise (privacy_engine.py, make_private): 'Add privacy-related responsibilities to the main PyTorch training objects';
its accountant judges one Poisson-subsampled Gaussian step. Divisor (privacy_engine.py:441): int(N * sample_rate).
"""

import warnings

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)
MADE = {}


def _training(rows, reduction):
    model = torch.nn.Linear(rows.shape[1], 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.tensor(rows)), batch_size=15)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        loss_reduction=reduction,
    )


def _release(seed, rows, reduction):
    key = rows.tobytes()
    if key not in MADE:
        MADE[key] = _training(rows, reduction)
    model, optimizer, loader = MADE[key]
    torch.default_generator.manual_seed(seed % 2**63)
    weight = next(model.parameters())
    with torch.no_grad():
        weight.zero_()
    optimizer.zero_grad()
    (batch,) = next(iter(loader))
    losses = model(batch)
    (losses.mean() if reduction == "mean" else losses.sum()).backward()
    optimizer.step()
    return -weight.detach().numpy().ravel()


def mean(seed, rows):
    return _release(seed, rows, "mean")


def total(seed, rows):
    return _release(seed, rows, "sum")
