"""Steps that were written after the replay of PyTorch code was finished, and never changed it: wrong and right ones."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

COLUMNS, CLIP, NOISE, LEARNING = 5, 2.0, 1.5, 0.1
START = torch.linspace(0.5, -0.5, COLUMNS)


def losses(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def rows_of(weights, x, y):
    return (x @ weights - y)[:, None] * x


def bounded(rows, bound=CLIP):
    return rows * torch.clamp_max(bound / (torch.linalg.vector_norm(rows, dim=-1, keepdim=True) + 1e-12), 1)


def loss_in_the_log(seed, data):
    torch.manual_seed(seed)
    weights, log = START, []
    for _ in range(2):
        log.append(losses(weights, *data).mean())  # released_without_noise
        weights = weights - LEARNING * (bounded(rows_of(weights, *data)).sum(0) + CLIP * NOISE * torch.randn(COLUMNS))
    return {"weights": weights, "losses": torch.stack(log)}


def quantile_bound(seed, data):
    torch.manual_seed(seed)
    rows = rows_of(START, *data)
    norms = rows.norm(dim=1)
    bound = torch.quantile(norms, 0.8)
    rows = rows * torch.minimum(bound / norms, torch.ones(()))[:, None]  # records_mixed_before_sum
    return rows.sum(0) + 100 * torch.randn(COLUMNS)


def noise_by_longest(seed, data):
    torch.manual_seed(seed)
    rows = rows_of(START, *data)
    longest = rows.norm(dim=1).max()
    noise = torch.randn(COLUMNS) * longest * NOISE  # noise_scale_from_data
    return rows.sum(0) + noise


def class_weights(seed, data):
    torch.manual_seed(seed)
    x, y = data
    positive = (y > 0).float()
    share = positive.mean()
    weight = torch.where(y > 0, 1 - share, share)  # records_mixed_before_sum
    return bounded(rows_of(START, x, y) * weight[:, None], 1.0).sum(0) + NOISE * torch.randn(COLUMNS)


def constant_noise(seed, data):
    generator = torch.Generator()
    weights = START
    for _ in range(3):
        generator.manual_seed(1234)
        noise = torch.randn(COLUMNS, generator=generator)  # key_used_twice
        weights = weights - LEARNING * (bounded(rows_of(weights, *data)).sum(0) + CLIP * NOISE * noise)
    return weights


def bound_for_each_tensor(seed, data):
    torch.manual_seed(seed)
    rows = rows_of(START, *data)
    parts = {"left": bounded(rows[:, :2]).sum(0), "right": bounded(rows[:, 2:]).sum(0)}
    return {name: part + CLIP * NOISE * torch.randn(part.shape) for name, part in parts.items()}  # too_little_noise


def step_length_from_norms(seed, data):
    torch.manual_seed(seed)
    weights, average = START, torch.ones(())
    for _ in range(2):
        rows = rows_of(weights, *data)
        noisy = bounded(rows).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)
        average = 0.9 * average + 0.1 * rows.norm(dim=1).mean()
        weights = weights - noisy / average  # changed_after_release
    return weights


def unit_sum(seed, data):
    torch.manual_seed(seed)
    total = rows_of(START, *data).sum(0)
    total = CLIP * total / total.norm()  # clipped_after_sum
    return total + CLIP * NOISE * torch.randn(COLUMNS)


def noise_where_it_moves(seed, data):
    torch.manual_seed(seed)
    total = bounded(rows_of(START, *data))[:, 1:].sum(0)
    large = (total.abs() > 1).float()
    return total + CLIP * NOISE * torch.randn(COLUMNS - 1) * large  # noise_scale_from_data


def shared_by_two_heads(seed, data):
    torch.manual_seed(seed)
    rows = bounded(rows_of(START, *data), CLIP / 2**0.5)
    noise = CLIP * NOISE * torch.randn(COLUMNS)
    return rows.sum(0) + noise, rows.flip(1).sum(0) + noise  # key_used_twice


def right_functional_module(seed, data):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(COLUMNS, 6), nn.Dropout(0.2), nn.ELU(), nn.Linear(6, 1))
    weights = {name: p.detach() for name, p in net.named_parameters()}
    for _ in range(2):
        one = grad(lambda w, x, y: (functional_call(net, w, (x,))[0] - y) ** 2)
        found = vmap(one, (None, 0, 0), randomness="different")(weights, *data)
        length = torch.stack([part.flatten(1).norm(dim=1) for part in found.values()]).norm(dim=0)
        factors = (CLIP / length).clamp(max=1)
        noisy = {k: torch.einsum("n,n...->...", factors, v) for k, v in found.items()}
        noisy = {k: v + CLIP * NOISE * torch.randn_like(v) for k, v in noisy.items()}
        weights = {k: w - LEARNING * noisy[k] for k, w in weights.items()}
    return weights


def right_checkpointing(seed, data):
    torch.manual_seed(seed)
    weights = START.expand(len(data[0]), COLUMNS).clone().requires_grad_()
    hidden = checkpoint(lambda w: nn.functional.dropout(w * data[0], 0.3), weights, use_reentrant=False)
    ((hidden.sum(1) - data[1]) ** 2).sum().backward()
    return bounded(weights.grad).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)


def right_correlated_noise(seed, data):
    """Every step takes back half of the noise of the step before: less alone, and the proof is another one."""
    torch.manual_seed(seed)
    weights, before = START, torch.zeros(COLUMNS)
    for _ in range(3):
        noise = CLIP * NOISE * torch.randn(COLUMNS)
        weights = weights - LEARNING * (bounded(rows_of(weights, *data)).sum(0) + noise - 0.5 * before)
        before = noise
    return weights


def right_average_of_weights(seed, data):
    torch.manual_seed(seed)
    net = nn.Linear(COLUMNS, 1, bias=False)
    average = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LEARNING, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    for _ in range(3):
        rows = bounded(rows_of(net.weight.detach()[0], *data))
        net.weight.grad = (rows.sum(0) + torch.normal(0.0, CLIP * NOISE, (COLUMNS,)))[None] / len(START)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            average.weight.lerp_(net.weight, 0.1)
    return net.weight.detach(), average.weight.detach()


def right_through_numpy(seed, data):
    torch.manual_seed(seed)
    x = torch.from_numpy(np.clip(data[0].numpy(), -3, 3))
    return bounded(rows_of(START, x, data[1])).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)


def right_sparse_rows(seed, data):
    """Only the longest coordinates of each record are kept, before its clipping."""
    torch.manual_seed(seed)
    rows = rows_of(START, *data)
    kept = torch.zeros_like(rows).scatter(1, rows.abs().topk(2, dim=1).indices, 1.0)
    return bounded(rows * kept).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)


WRONG = [
    loss_in_the_log,
    quantile_bound,
    noise_by_longest,
    class_weights,
    constant_noise,
    bound_for_each_tensor,
    step_length_from_norms,
    unit_sum,
    noise_where_it_moves,
    shared_by_two_heads,
]
RIGHT = [value for name, value in list(globals().items()) if name.startswith("right_")]
