"""Small pictures of tensors, to compare two runs without keeping every value."""

from __future__ import annotations

import dataclasses
import functools

import torch

COARSE = (torch.float16, torch.bfloat16)
TOLERANCE = 1e-4
KEPT = 2**14
"""Weights that are made once: making them took half of what a small tensor costs."""


def tolerance(tensor: torch.Tensor) -> float:
    """How far apart two sums of the same numbers may be, over their size."""
    return 2e-2 if tensor.dtype in COARSE else TOLERANCE


@dataclasses.dataclass(frozen=True)
class Picture:
    """Sum and absolute sum of a tensor."""

    shape: tuple[int, ...]
    total: float
    size: float

    def like(self, other: Picture, slack: float) -> bool:
        """Whether two tensors look the same; what is not finite is not compared."""
        if self.shape != other.shape:
            return False
        largest = max(self.size, other.size)
        apart = max(abs(self.total - other.total), abs(self.size - other.size))
        return not (apart > slack * largest)


def picture(tensor: torch.Tensor) -> Picture:
    """The picture of one tensor."""
    values = tensor.detach().to(torch.float64)
    return Picture(tuple(tensor.shape), float(values.sum()), float(values.abs().sum()))


@dataclasses.dataclass(frozen=True)
class Weighed:
    """Sums of a tensor whose numbers have weights, since plain sums of gradients may all be zero."""

    shape: tuple[int, ...]
    by_column: float
    """Every row of the first axis has the same weights: it does not matter where a record stands."""
    by_place: float
    size: float


def _weights(length: int, device: torch.device) -> torch.Tensor:
    """A weight for each place, all of them unlike."""
    return _first_weights(device)[:length] if length <= KEPT else _made(length, device)


@functools.cache
def _first_weights(device: torch.device) -> torch.Tensor:
    return _made(KEPT, device)


def _made(length: int, device: torch.device) -> torch.Tensor:
    return 1.5 + torch.arange(length, dtype=torch.float64, device=device).add(1).cos()


def weighed(tensor: torch.Tensor) -> Weighed:
    """The weighted sums of one tensor."""
    length = len(tensor) if tensor.dim() else 1
    table = tensor.detach().to(torch.float64).reshape(length, tensor.numel() // max(1, length))
    rows, columns = (_weights(length, table.device) for length in table.shape)
    sums = table @ columns
    return Weighed(tuple(tensor.shape), float(sums.sum()), float(sums @ rows), float(table.abs().sum()))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Weighted sums of each row of the first axis."""

    shape: tuple[int, ...]
    totals: torch.Tensor
    sizes: torch.Tensor


def rows(tensor: torch.Tensor) -> Rows:
    """Weighted sums of the rows of a tensor with a first axis."""
    flat = tensor.detach().reshape(len(tensor), -1)
    if flat.dtype in COARSE or flat.dtype == torch.bool:
        flat = flat.float()
    return Rows(tuple(tensor.shape), flat.sum(1), flat.abs().sum(1))


def rows_that_differ(one: Rows, other: Rows, slack: float) -> torch.Tensor:
    """Which of the rows that both have are not the same."""
    common = min(len(one.totals), len(other.totals))
    sizes = torch.maximum(one.sizes[:common], other.sizes[:common])
    largest = sizes.max() if common else torch.tensor(0.0)
    apart = torch.maximum(
        (one.totals[:common] - other.totals[:common]).abs(), (one.sizes[:common] - other.sizes[:common]).abs()
    )
    return apart > slack * largest


def rows_follow(one: Rows, other: Rows, place: int) -> bool:
    """Whether rows from a place on stand one further in the other, as where a record was put in between."""
    rest, moved = one.totals[place:], other.totals[place + 1 :]
    return len(rest) == len(moved) and bool(torch.allclose(rest, moved, TOLERANCE, TOLERANCE * float(one.sizes.max())))
