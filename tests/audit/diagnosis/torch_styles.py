"""Steps in styles that the replay was not written with; wrong ones say what is wrong at the line that is."""

from __future__ import annotations

import torch
from diagnosis.torch_steps import CLIP, COLUMNS, LEARNING, NOISE, START, clipped, gradients, noise, poisson
from torch import nn
from torch.func import grad, jacrev, vmap


def losses(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def right_jacobian(seed, data):
    torch.manual_seed(seed)
    batch = poisson(data)
    return clipped(jacrev(lambda weights: losses(weights, *batch))(START)).sum(0) + noise()


def right_chunks(seed, data):
    torch.manual_seed(seed)
    rows = vmap(grad(losses), (None, 0, 0), chunk_size=3)(START, *poisson(data))
    return clipped(rows).sum(0) + noise()


def right_hooks(seed, data):
    """Per-example gradients of a layer from what hooks keep."""
    torch.manual_seed(seed)
    x, y = poisson(data)
    net, kept = nn.Linear(COLUMNS, 1), {}
    net.register_forward_hook(lambda module, given, out: kept.update(given=given[0].detach()))
    net.register_full_backward_hook(lambda module, back, out: kept.update(out=out[0].detach()))
    ((net(x.requires_grad_()).squeeze(1) - y) ** 2 / 2).sum().backward()
    weight, bias = torch.einsum("ni,nj->nij", kept["out"], kept["given"]), kept["out"]
    norms = (weight.flatten(1).square().sum(1) + bias.square().sum(1)).sqrt()
    factors = (CLIP / norms.clamp(min=1e-9)).clamp(max=1.0)
    total = torch.einsum("n,nij->ij", factors, weight)
    return total + CLIP * NOISE * torch.randn(1, COLUMNS), factors @ bias + CLIP * NOISE * torch.randn(1)


def right_autocast(seed, data):
    torch.manual_seed(seed)
    weights, total = START.clone().requires_grad_(), torch.zeros(COLUMNS)
    for x, y in zip(*poisson(data), strict=True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ((x[None] @ weights[:, None]).squeeze() - y) ** 2 / 2
        (found,) = torch.autograd.grad(loss.float(), weights)
        total = total + found * torch.clamp(CLIP / (found.norm() + 1e-9), max=1.0)
    return weights.detach() - LEARNING * (total + noise())


def right_numbers_of_python(seed, data):
    """One record after the other, by a factor that is a number of Python's: nothing sums the bias but a loop."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(COLUMNS, 2), nn.Tanh(), nn.Linear(2, 1))
    for _ in range(2):
        totals = [torch.zeros_like(part) for part in net.parameters()]
        for x, y in zip(*poisson(data), strict=True):
            found = torch.autograd.grad((net(x) - y) ** 2, list(net.parameters()))
            factor = min(1.0, CLIP / float(torch.sqrt(sum((part**2).sum() for part in found))))
            for total, part in zip(totals, found, strict=True):
                total += part * factor
        with torch.no_grad():
            for part, total in zip(net.parameters(), totals, strict=True):
                part -= LEARNING * total.add_(torch.randn(total.shape), alpha=CLIP * NOISE)
    return [part.detach() for part in net.parameters()]


def right_accumulated(seed, data):
    """Two records at a time, noise once; weight decay that is not part of the gradient."""
    torch.manual_seed(seed)
    weights = nn.Parameter(START.clone())
    optimiser = torch.optim.AdamW([weights], lr=LEARNING, weight_decay=0.1)
    for _ in range(2):
        x, y = poisson(data)
        weights.grad = torch.zeros_like(weights)
        for place in range(0, len(x), 2):
            own = slice(place, place + 2)
            weights.grad += clipped(gradients(weights.detach(), x[own], y[own])).sum(0)
        weights.grad += noise()
        weights.grad /= 6
        optimiser.step()
    return weights.detach()


def right_nesterov(seed, data):
    torch.manual_seed(seed)
    weights = nn.Parameter(START.clone())
    optimiser = torch.optim.SGD([weights], lr=0.2, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 3)
    for _ in range(3):
        weights.grad = (clipped(gradients(weights.detach(), *poisson(data))).sum(0) + noise()) / 6
        optimiser.step()
        schedule.step()
    return weights.detach()


def right_moving_average(seed, data):
    torch.manual_seed(seed)
    weights, average = START.clone(), START.clone()
    for _ in range(3):
        weights = weights - LEARNING * (clipped(gradients(weights, *poisson(data))).sum(0) + noise())
        average.lerp_(weights, 0.1)
    return weights, average


def right_compiled(seed, data):
    torch.manual_seed(seed)
    bounded = torch.compile(clipped, backend="eager")
    return bounded(gradients(START, *poisson(data))).sum(0) + noise()


def right_index_add(seed, data):
    torch.manual_seed(seed)
    rows = clipped(gradients(START, *poisson(data)))
    return torch.zeros(1, COLUMNS).index_add_(0, torch.zeros(len(rows), dtype=torch.long), rows)[0] + noise()


def batch_clipped_by_pytorch(seed, data):
    torch.manual_seed(seed)
    weights = nn.Parameter(START.clone())
    losses(weights, *poisson(data)).sum().backward()
    nn.utils.clip_grad_norm_([weights], CLIP)  # clipped_after_sum
    return weights.grad + noise()


def pairs_clipped(seed, data):
    torch.manual_seed(seed)
    x, y = poisson(data)
    total = torch.zeros(COLUMNS)
    for place in range(0, len(x), 2):
        both = gradients(START, x[place : place + 2], y[place : place + 2]).sum(0)
        total = total + clipped(both[None])[0]  # clipped_after_sum
    return total + noise()


def best_of_three(seed, data):
    """Noise covers all three; which of them is released is not covered."""
    torch.manual_seed(seed)
    weights, best, kept = START.clone(), float("inf"), START
    for _ in range(3):
        weights = weights - LEARNING * (clipped(gradients(weights, *data)).sum(0) + noise())
        loss = losses(weights, *data).mean().item()  # changed_after_release
        best, kept = (loss, weights) if loss < best else (best, kept)
    return kept


def moments_of_raw_sums(seed, data):
    torch.manual_seed(seed)
    weights, moment = START.clone(), torch.ones(COLUMNS)
    for _ in range(2):
        total = clipped(gradients(weights, *poisson(data))).sum(0)
        moment = 0.9 * moment + 0.1 * total**2
        weights = weights - LEARNING * (total + noise()) / moment.sqrt()  # changed_after_release
    return weights


def batch_norm_in_training(seed, data):
    torch.manual_seed(seed)
    x, y = poisson(data)
    x = nn.functional.batch_norm(x, None, None, training=True)  # records_mixed_before_sum
    return clipped(gradients(START, x, y)).sum(0) + noise()


def one_generator_for_each_tensor(seed, data):
    total, released = clipped(gradients(START, *data)).sum(0), []
    for part in (total[:2], total[2:4]):
        generator = torch.Generator().manual_seed(seed)
        released.append(part + CLIP * NOISE * torch.randn(2, generator=generator))  # key_used_twice
    return tuple(released)


WRONG = [
    batch_clipped_by_pytorch,
    pairs_clipped,
    best_of_three,
    moments_of_raw_sums,
    batch_norm_in_training,
    one_generator_for_each_tensor,
]
RIGHT = [value for name, value in list(globals().items()) if name.startswith("right_")]
