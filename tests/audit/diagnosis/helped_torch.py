"""The same small library in PyTorch."""

from __future__ import annotations

import torch

from mechanisms import Neighbours

CLIP, NOISE, COLUMNS = 1.0, 1.0, 4


def rows(count):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, COLUMNS, generator=generator), torch.randn(count, generator=generator)


def pair(records=6):
    x, y = rows(records)
    x[-1], y[-1] = 4 * x[-1], 30.0
    return Neighbours(without=(x[:-1], y[:-1]), with_record=(x, y), relation="add_remove")


def gradients(data):
    x, y = data
    error = x.sum(1) - y
    return {"weight": error[:, None] * x, "bias": error[:, None]}


def clip_records(found):
    norms = torch.sqrt(sum(part.pow(2).sum(1) for part in found.values()))
    return {name: part * (CLIP / norms.clamp(min=CLIP))[:, None] for name, part in found.items()}


def clip_weights(found):
    norms = torch.sqrt(sum(part.pow(2).sum(1) for part in found.values()))
    return {**found, "weight": found["weight"] * (CLIP / norms.clamp(min=CLIP))[:, None]}


def add_noise(total, deviation):
    return {name: part + deviation * torch.randn(part.shape) for name, part in total.items()}


def summed(data, clip=clip_records):
    return {name: part.sum(0) for name, part in clip(gradients(data)).items()}


def right(seed, data):
    torch.manual_seed(seed)
    return add_noise(summed(data), NOISE * CLIP)


def noise_by_the_number_of_records(seed, data):
    torch.manual_seed(seed)
    mean = {name: part.mean(0) for name, part in clip_records(gradients(data)).items()}
    return add_noise(mean, NOISE * CLIP / len(data[0]))  # BUG


def noise_by_the_largest(seed, data):
    torch.manual_seed(seed)
    total = summed(data)
    largest = gradients(data)["weight"].pow(2).sum()  # BUG
    return add_noise(total, NOISE * CLIP + largest)


def biases_not_clipped(seed, data):
    torch.manual_seed(seed)
    return add_noise(summed(data, clip_weights), NOISE * CLIP)
