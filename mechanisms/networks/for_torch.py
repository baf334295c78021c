"""Networks in PyTorch, each with the batch it reads off rows of a dataset and its loss for every example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from guarantees.checks import require
from mechanisms.networks import INITIAL_SEED, NETWORKS
from mechanisms.pairs.images import PIXELS, SIDE

CHANNELS = (24, 80, 304)
"""Of the denoiser at 28, 14 and 7 pixels; with the two widths below they add up to 1,485,217 parameters."""
LEVEL_FEATURES, LEVEL_WIDTH = 8, 368
LEVEL_MEAN, LEVEL_DEVIATION, PIXEL_DEVIATION = -1.2, 1.2, 0.5
"""ln of the noise level is normal, as in [karras2022, table 1]."""


class Network(NamedTuple):
    """A model and what one step needs to know of it."""

    model: Any
    batch: Callable[[Any], tuple[tuple[Any, ...], Any]]
    """Rows of the dataset to the model's inputs and the target."""
    losses: Callable[[Any, Any], Any]
    """Outputs and target to one loss for every example."""


def network(kind: str, *, columns: int, layers: int = 1) -> Network:
    """A network by name, with its fixed initial weights: zero for the linear one, drawn from one seed for others."""
    import torch

    require("network", kind in NETWORKS, f"one of {NETWORKS}", kind)
    if kind == "linear":
        return _linear(columns, layers)
    require("dataset", columns == PIXELS + 1, f"rows of {PIXELS} pixels and a label (image_pair)", columns)
    require("layers", layers == 1, "1 for a network, whose layers are its own", layers)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(INITIAL_SEED)
        if kind == "classifier":
            return Network(classifier(), _labelled, _cross_entropy)
        return Network(denoiser(), _noised, _squared_error)


def mean_or_sum(losses: Callable[[Any, Any], Any], reduction: str) -> Any:
    """A loss module as PyTorch's are: Opacus reads, and for ghost clipping sets, its ``reduction``."""
    import torch

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.reduction = reduction

        def forward(self, outputs: Any, target: Any) -> Any:
            each = losses(outputs, target)
            return {"mean": each.mean, "sum": each.sum, "none": lambda: each}[self.reduction]()

    return Loss()


def per_example_gradients(trained: Network, rows: Any) -> np.ndarray:
    """The gradient of every row's loss at the model's weights, shape (records, parameters)."""
    import torch

    weights = list(trained.model.parameters())

    def gradient(row: Any) -> Any:
        inputs, target = trained.batch(row[None])
        parts = torch.autograd.grad(trained.losses(trained.model(*inputs), target).sum(), weights)
        return torch.cat([part.ravel() for part in parts])

    return torch.stack([gradient(row) for row in rows]).numpy()


def parameters_of(model: Any) -> Any:
    """All parameters as one vector, a copy."""
    import torch

    return torch.cat([parameter.detach().ravel() for parameter in model.parameters()])


def reset_parameters(model: Any, start: Any) -> None:
    """Back to the weights that a trial starts from."""
    import torch

    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, part in zip(parameters, start.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(part.view_as(parameter))


def _linear(dimension: int, layers: int) -> Network:
    """``sum_k <w_k, x_k>`` over ``layers`` slices of the row: its gradient at x is x itself, wherever w is."""
    import torch

    class LinearModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = [len(part) for part in np.array_split(np.arange(dimension), layers)]
            self.parts = torch.nn.ModuleList(torch.nn.Linear(size, 1, bias=False) for size in self.sizes)
            for weights in self.parts.parameters():
                torch.nn.init.zeros_(weights)

        def forward(self, x: Any) -> Any:
            slices = torch.split(x, self.sizes, dim=1)
            return torch.stack([part(piece)[:, 0] for part, piece in zip(self.parts, slices, strict=True)]).sum(0)

    return Network(LinearModel(), lambda rows: ((rows,), torch.ones(len(rows))), lambda outputs, ones: outputs * ones)


def classifier() -> Any:
    """The convolutional network with tanh that DPSGD-HF and DPSUR train on 28 x 28 images: 26,010 parameters.

    [tramer2021], with the padding of their code.
    """
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def _labelled(rows: Any) -> tuple[tuple[Any, ...], Any]:
    return (rows[:, :PIXELS].reshape(-1, 1, SIDE, SIDE),), rows[:, PIXELS].long()


def _cross_entropy(outputs: Any, labels: Any) -> Any:
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, labels, reduction="none")


def denoiser() -> Any:
    """A small U-Net that names the noise in an image, given its level: 1,485,217 parameters.

    The size is that of the diffusion models of DP-FETA and PrivImage; the architecture is ours. Only layers whose
    per-example gradients every Opacus knows: convolutions, linear layers, group normalisation.
    """
    import torch
    from torch import nn
    from torch.nn.functional import interpolate, silu

    fine, middle, coarse = CHANNELS

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.level = nn.Sequential(
                nn.Linear(LEVEL_FEATURES, LEVEL_WIDTH), nn.SiLU(), nn.Linear(LEVEL_WIDTH, coarse)
            )
            self.enter = _block(1, fine)
            self.down = _block(fine, middle, stride=2)
            self.deep = _block(middle, coarse, stride=2)
            self.inner = _block(coarse, coarse)
            self.up = _block(coarse + middle, middle)
            self.leave = _block(middle + fine, fine)
            self.last = nn.Conv2d(fine, 1, 3, padding=1)

        def forward(self, images: Any, levels: Any) -> Any:
            first = silu(self.enter(images))
            second = silu(self.down(first))
            third = silu(self.deep(second) + self.level(levels)[:, :, None, None])
            third = silu(self.inner(third))
            back = silu(self.up(torch.cat([interpolate(third, scale_factor=2), second], dim=1)))
            return self.last(silu(self.leave(torch.cat([interpolate(back, scale_factor=2), first], dim=1))))

    return Denoiser()


def _block(channels_in: int, channels_out: int, stride: int = 1) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1), nn.GroupNorm(8, channels_out)
    )


def _noised(rows: Any) -> tuple[tuple[Any, ...], Any]:
    """Images in [-1, 1] plus noise at a level of their own, scaled to unit size; the target is the noise."""
    import torch

    images = 2 * rows[:, :PIXELS].reshape(-1, 1, SIDE, SIDE) - 1
    log_level = LEVEL_MEAN + LEVEL_DEVIATION * torch.randn(len(rows), 1)
    noise = torch.randn(images.shape)
    level = torch.exp(log_level)[:, :, None, None]
    angles = log_level * math.pi * 2.0 ** -torch.arange(LEVEL_FEATURES // 2)
    features = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
    return ((images + level * noise) / torch.sqrt(level**2 + PIXEL_DEVIATION**2), features), noise


def _squared_error(outputs: Any, noise: Any) -> Any:
    return ((outputs - noise) ** 2).mean(dim=(1, 2, 3))
