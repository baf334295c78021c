"""By which number of its own a record is multiplied, as clipping does, and of which numbers that one is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch

from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.storages import covers

WHOLE = -1
"""Row number that means: all of a tensor is the record's, which the other side lacks."""
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
    graded: bool = False
    """Whether it was made of gradients, and not on the way to them."""
    mixed: Stack = ()
    """Where it came to depend on other records, if it does."""
    joined: Stack = ()
    """Where the parts of the record that it was made of were put together, if they were."""


Numbers = tuple[Number, ...]


@dataclasses.dataclass(frozen=True)
class Weight:
    """The record, or one tensor of it, was multiplied by such a number."""

    where: Stack
    before: float
    """Its length; not a number where its loss was multiplied, and its gradient has not been computed yet."""
    by: float
    numbers: Numbers
    """Numbers from which the weight was made, in order; the weight is the last."""
    read: bool = False
    """Whether Python read those numbers, and made of them what it liked."""


def weighed(
    done: Any, row: int | None, *, mixed: Stack = (), backward: bool = False
) -> tuple[Numbers, tuple[Weight, ...]]:
    """The numbers that the result of an operation on data is made of, and what the record was multiplied by.

    In a ``backward`` pass a number of each record that was made of gradients is by what its loss was multiplied.
    ``mixed`` is where the result came to depend on other records.
    """
    own = [(part, cell) for part, cell in done.pairs if cell.data]
    if backward and (weight := _of_loss(done, own, row)) is not None:
        return (), (weight,)
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
    graded = not backward and any(cell.graded for _, cell in own)
    # whoever takes a part of what was put together leaves out the rest
    joined = () if made else next((cell.joined for part, cell in own if cell.joined and covers(part)), ())
    return (*numbers, Number(done.where, value, not made, _is_whole(value, inside), graded, mixed, joined)), ()


def length(weights: Sequence[Weight]) -> float:
    """How long the record is after it was multiplied by all of them."""
    return math.hypot(*(weight.before * weight.by for weight in weights))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number of Python's, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def by_python(done: Any, reads: Sequence[Number]) -> Weight | None:
    """Weights that are numbers of Python's, made of numbers that Python has read."""
    adds = done.name.startswith(("add", "sub"))
    factor = done.kwargs.get("alpha") if adds else next((part for part in done.args if is_number(part)), None)
    part = done.args[-1] if adds else done.args[0]
    cell = done.cell(part) if isinstance(part, torch.Tensor) else None
    if not reads or not is_number(factor) or done.name.rstrip("_") not in ("add", "sub", "mul", "div"):
        return None
    if cell is None or not cell.data or cell.row != WHOLE:
        return None
    by = (1 / factor if factor else math.inf) if done.name.startswith("div") else factor
    return Weight(done.where, float(part.detach().double().norm()), by, tuple(reads), read=True)


def measured(done: Any) -> Stack:
    """Where a number was made of several records by which each is multiplied here; nowhere if it is its own."""
    own = [(part, cell) for part, cell in done.pairs if cell.data]
    if done.name not in WEIGHING or len(own) != 2:
        return ()
    (_, _), (factor, cell) = sorted(own, key=lambda pair: -pair[0].numel())
    if factor.numel() > max(factor.shape, default=1):
        # several numbers of each record, which one of its own was multiplied with
        begun = (number.where for weight in cell.weights for number in weight.numbers if number.first)
        return cell.measured or next(begun, ())
    alone = bool(cell.numbers) and not any(number.mixed for number in cell.numbers)
    return () if alone or factor.numel() == done.out.numel() else cell.summed


def _of_loss(done: Any, own: Sequence[tuple[torch.Tensor, Any]], row: int | None) -> Weight | None:
    rows = len(done.out) if done.out.dim() else 0
    factors = [(part, cell) for part, cell in own if part.numel() == rows and any(one.graded for one in cell.numbers)]
    if len(factors) != 1 or len(own) < 2 or row is None or row == WHOLE or done.out.numel() <= rows:
        return None
    ((factor, cell),) = factors
    number = float(_entries(factor, row, rows).flatten()[0])
    return Weight(done.where, math.nan, number, cell.numbers)


def _weight(done: Any, record: torch.Tensor, factor: torch.Tensor, cell: Any, row: int | None) -> Weight | None:
    row = cell.row if row is None else row
    rows = max(factor.shape, default=1)
    if row is None or factor.numel() != (1 if row == WHOLE else rows):
        return None
    number = float(_entries(factor, row, rows).flatten()[0])
    divides = done.name.startswith("div") and done.args[1] is factor
    by = (1 / number if number else float("inf")) if divides else number
    # factors are spread along the axes before theirs; a product sums over the last axis of its first matrix
    start = record.dim() - factor.dim()
    if done.name in ("mm", "mv", "bmm"):
        start = record.dim() - (1 if done.args[0] is record else 2)
    entries = _entries(record, row, rows, max(0, start))
    return Weight(done.where, float(entries.double().norm()), by, cell.numbers)


def _entries(tensor: torch.Tensor, row: int, rows: int, start: int = 0) -> torch.Tensor:
    """Those of the record: along the first axis from ``start`` on that is as long as there are records."""
    axis = next((axis for axis, length in enumerate(tensor.shape) if length == rows and axis >= start), None)
    detached = tensor.detach()
    return detached if row == WHOLE or axis is None else detached.select(axis, row)


def _is_whole(value: float, inside: Sequence[torch.Tensor]) -> bool:
    """Whether a number is a sum of others, their length or the square of it; of one other it is what it is."""
    if sum(part.numel() for part in inside) < 2:
        return True
    total = sum(float(part.sum()) for part in inside)
    square = sum(float(part.square().sum()) for part in inside)
    return any(abs(value - right) <= NEAR * right for right in (total, square, square**0.5))
