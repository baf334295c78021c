"""By which number of its own a record is multiplied, as clipping does, and of which numbers that one is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from mechanisms.adapters.pytorch.replay.stacks import Stack

WHOLE = -1
"""In place of a row: all of a tensor is the record's, which the other side lacks."""
MOST_NUMBERS = 1024
NEAR = 1e-3
"""Relative difference of numbers that are one."""
WEIGHING = frozenset(("mul", "mul_", "div", "div_", "mm", "mv", "bmm"))


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of the record's own, and where it was made."""

    where: Stack
    value: float
    first: bool = False
    """Whether it was made of entries of the record, and not of such numbers."""
    whole: bool = True
    """Whether it is the sum or the length of all that it was made of."""


@dataclasses.dataclass(frozen=True)
class Weight:
    """The record, or one tensor of it, was multiplied by such a number."""

    where: Stack
    before: float
    """Its length."""
    by: float
    numbers: tuple[Number, ...]
    """Of which that number was made, in order; it is the last."""


def weighed(done: Any, row: int | None) -> tuple[tuple[Number, ...], tuple[Weight, ...]]:
    """The numbers that the result of an operation on data is made of, and what the record was multiplied by."""
    own = [(part, cell) for part, cell in done.pairs if cell.data]
    if done.name in WEIGHING and len(own) == 2:
        (record, rest), (factor, cell) = sorted(own, key=lambda pair: len(pair[1].numbers))
        if set(rest.numbers) < set(cell.numbers) and (weight := _weight(done, record, factor, cell, row)) is not None:
            return (), (weight,)
    kept = [cell.weights for _, cell in own if cell.weights]
    together = [weight for found in (kept if done.name in ("cat", "stack") else kept[-1:]) for weight in found]
    weights = tuple(dict.fromkeys(together))
    numbers = tuple(dict.fromkeys(number for _, cell in own for number in cell.numbers))
    made = all(cell.numbers for _, cell in own)
    rows = len(done.out) if done.out.dim() and row != WHOLE else 1
    if row is None or done.out.numel() != rows or len(numbers) >= MOST_NUMBERS or not done.out.is_floating_point():
        return (numbers if made else ()), weights
    if (numbers and not made) or (weights and not any(part.numel() > done.out.numel() for part, _ in own)):
        return (), weights
    value = float(_entries(done.out, row, rows).flatten()[0])
    inside = [_entries(part, row, rows).double().abs() for part, _ in own]
    return (*numbers, Number(done.where, value, first=not made, whole=_is_whole(value, inside))), ()


def _weight(done: Any, record: torch.Tensor, factor: torch.Tensor, cell: Any, row: int | None) -> Weight | None:
    row = cell.row if row is None else row
    rows = max(factor.shape, default=1)
    if row is None or factor.numel() != (1 if row == WHOLE else rows):
        return None
    number = float(_entries(factor, row, rows).flatten()[0])
    divides = done.name.startswith("div") and done.args[1] is factor
    by = (1 / number if number else float("inf")) if divides else number
    return Weight(done.where, float(_entries(record, row, rows).double().norm()), by, cell.numbers)


def _entries(tensor: torch.Tensor, row: int, rows: int) -> torch.Tensor:
    """Those of the record: along the first axis that is as long as there are records, the others' left out."""
    axis = next((axis for axis, length in enumerate(tensor.shape) if length == rows), None)
    detached = tensor.detach()
    return detached if row == WHOLE or axis is None else detached.select(axis, row)


def _is_whole(value: float, inside: Sequence[torch.Tensor]) -> bool:
    """Whether a number is a sum of others, their length or the square of it; of one other it is what it is."""
    if sum(part.numel() for part in inside) < 2:
        return True
    total = sum(float(part.sum()) for part in inside)
    square = sum(float(part.square().sum()) for part in inside)
    return any(abs(value - right) <= NEAR * right for right in (total, square, square**0.5))
