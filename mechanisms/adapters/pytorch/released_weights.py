"""What one run of a PyTorch training releases at its end, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechanisms.adapters.pytorch.watch import Watch, plain_name
from mechanisms.release import host_array, leaves


def require_one_form(first: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Every trial releases the same tensors, each of the same shape."""
    if extra := [name for name in other if name not in first]:
        raise ValueError(
            f"a trial releases {', '.join(extra)}, which the first trial does not; every trial must release the same "
            "parts."
        )
    if missing := [name for name in first if name not in other]:
        raise ValueError(
            f"the first trial releases {', '.join(missing)}, which another trial does not; every trial must release "
            "the same parts."
        )
    for name, part in first.items():
        shape = other[name].shape
        if shape != part.shape:
            rounds = shape[1:] == part.shape[1:] and shape[:1] != part.shape[:1]
            hint = "; if the number of steps varies, steps= ends a transcript early" if rounds else ""
            raise ValueError(f"every trial must release {name} in one shape, got {shape} after {part.shape}{hint}.")


def equal(one: list[Any], other: list[Any]) -> bool:
    """Whether two lists of tensors are the same."""
    import torch

    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def ends(watch: Watch) -> list[tuple[str, Any]]:
    """The weights and buffers of the model at its end; or what was given back instead."""
    model = watch.released
    if model is None and watch.given is not None:
        return leaves(watch.given)
    if model is None:
        return list(zip(watch.names, watch.parameters, strict=True))
    state = [*model.named_parameters(), *model.named_buffers()]
    return [(plain_name(name), tensor) for name, tensor in state if tensor.is_floating_point()]


def final(watch: Watch) -> dict[str, np.ndarray]:
    """Start minus end of every weight that is trained, the buffers as they are; or what was given back instead."""
    ended = ends(watch)
    if watch.released is None and watch.given is not None:
        return {name: host_array(leaf).astype(np.float32) for name, leaf in ended}
    if not ended:
        raise ValueError(
            "the training releases nothing: it returned None and built no optimizer of torch.optim; return its weights."
        )
    start = {id(p): before for p, before in zip(watch.parameters, watch.start, strict=True)}
    moved = {name: start[id(end)] - end if id(end) in start else end for name, end in ended}
    return {name: tensor.detach().cpu().float().numpy().copy() for name, tensor in moved.items()}
