"""Per-example gradients of a PyTorch model, from its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from guarantees.checks import require
from mechanisms.pairs.datasets import is_torch_dataset, records_of

AT_ONCE = 2**24
"""Most gradient entries that are held at once."""


def loss_gradients(model: Any, loss: Callable[..., Any], dataset: Any) -> dict[str, np.ndarray]:
    """The gradient of every record's loss at the model's weights, by parameter, each (records, ...).

    ``loss(outputs, target)`` where a record is a pair (inputs, target), otherwise ``loss(model, batch)``; both are
    called with a batch of one record. torch.func computes many at once; what it cannot trace goes record by record.
    """
    batch, size = _whole(dataset)
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    require("model", bool(weights), "one with parameters that require gradients", type(model).__name__)
    at_once = max(1, AT_ONCE // sum(p.numel() for p in weights.values()))
    try:
        found = _traced(model, loss, weights, batch, at_once)
    except (RuntimeError, NotImplementedError):
        found = _one_by_one(model, loss, weights, batch, size)
    return {name: part.detach().cpu().float().numpy() for name, part in found.items()}


def _traced(model: Any, loss: Callable[..., Any], weights: dict[str, Any], batch: Any, at_once: int) -> Any:
    from torch.func import functional_call, grad, vmap

    buffers = dict(model.named_buffers())

    def alone(at: dict[str, Any], record: Any) -> Any:
        def called(*inputs: Any, **named: Any) -> Any:
            return functional_call(model, (at, buffers), inputs, named)

        return _loss_of(called, loss, jax.tree.map(lambda column: column[None], record))

    return vmap(grad(alone), in_dims=(None, 0), randomness="different", chunk_size=at_once)(weights, batch)


def _one_by_one(model: Any, loss: Callable[..., Any], weights: dict[str, Any], batch: Any, size: int) -> Any:
    import torch

    parameters = dict(model.named_parameters())
    rows = []
    for index in range(size):
        record = jax.tree.map(lambda column, place=index: column[place : place + 1], batch)
        parts = torch.autograd.grad(
            _loss_of(model, loss, record), [parameters[name] for name in weights], allow_unused=True
        )
        rows.append([torch.zeros_like(parameters[n]) if g is None else g for n, g in zip(weights, parts, strict=True)])
    return {name: torch.stack([row[place] for row in rows]) for place, name in enumerate(weights)}


def _loss_of(model: Callable[..., Any], loss: Callable[..., Any], batch: Any) -> Any:
    """A scalar: the loss of one record is its sum and its mean alike."""
    found = loss(model(batch[0]), batch[1]) if isinstance(batch, tuple) and len(batch) == 2 else loss(model, batch)
    return found.sum()


def _whole(dataset: Any) -> tuple[Any, int]:
    """All records as one batch of tensors, and how many they are."""
    import torch
    from torch.utils.data import default_collate

    size = records_of(dataset)
    require("dataset", size is not None and size >= 1, "of a known number of records, at least one", size)
    if is_torch_dataset(dataset) or isinstance(dataset, list):
        collated = default_collate([dataset[index] for index in range(size or 0)])
        return (tuple(collated) if isinstance(collated, list) else collated), size or 0
    return jax.tree.map(lambda column: torch.as_tensor(np.asarray(column)), dataset), size or 0
