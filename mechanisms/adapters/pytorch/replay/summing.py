"""Which operations sum over records, which bend what is summed, and which take a tensor as weights."""

from __future__ import annotations

from typing import Any

import torch

from mechanisms.adapters.pytorch.replay import noise
from mechanisms.adapters.pytorch.replay.cells import Operation

PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "mv", "dot"))
STRAIGHT = (
    noise.ADDING
    | noise.SAME
    | noise.MOVING
    | frozenset(("sum", "mean", "view", "index_put_", "index_put", "select_backward", "slice_backward", "cumsum"))
)
"""Linear in what they are given."""
WEIGHING = PRODUCTS | frozenset(
    {"convolution", "convolution_backward", "embedding", "native_layer_norm", "native_group_norm"}
    | {"native_batch_norm", "mul", "div"}
)
"""Where a drawn tensor that meets data is a weight, and no noise that covers them."""


def record_sum(done: Operation) -> bool:
    """Whether this may be where records are summed, by the form of the operation alone (both runs must agree)."""
    data = [part for part, cell in done.pairs if cell.data]
    if done.name in noise.ADDING:
        # records that a loop adds up one by one; a sum and that of an earlier round, as in weights, is none
        return len(data) > 1 and len({cell.round for cell in done.cells if cell.data and cell.summed}) < 2
    fewer = done.out.dim() < max(part.dim() for part in data)
    if done.name in PRODUCTS:
        return fewer or len(data) > 1 or any(done.args[-1] is part for part in data)
    return fewer or done.name.endswith("_backward") or done.name.startswith(("index_add", "scatter_add"))


def bends(done: Operation) -> bool:
    """Whether an operation is not linear in the sums over records that it gets."""
    if done.name in STRAIGHT:
        return False
    return sum(cell.data for cell in done.cells) > 1 or done.name not in noise.SCALING | PRODUCTS


def multiple(done: Operation) -> float | None:
    """By which number a tensor is multiplied or divided; of a mean, by how many records it divides.

    A number of Python's, or one that was drawn, as the size of a batch is.
    """
    if done.name == "mean":
        (part,) = (part for part, cell in done.pairs if cell.data)
        return part.numel() / max(1, done.out.numel())
    given: list[Any] = [done.kwargs.get("alpha")] if done.name in noise.ADDING else []
    given += [*done.args] if done.name in noise.SCALING else []
    for one in given:
        if isinstance(one, int | float) and not isinstance(one, bool):
            return float(one)
        if isinstance(one, torch.Tensor) and one.numel() == 1 and not getattr(done.cell(one), "data", False):
            return float(one)
    return None
