"""Datasets as they are handed to PyTorch code: the tensors in them, the record of a pair, and changed copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from mechanisms.pairs.datasets import records_of


def tensors_in(dataset: Any) -> Iterator[torch.Tensor]:
    """Every tensor that can be reached without reading a record."""
    if isinstance(dataset, torch.Tensor):
        yield dataset
    elif isinstance(dataset, TensorDataset):
        yield from dataset.tensors
    elif isinstance(dataset, Subset):
        yield from tensors_in(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from tensors_in(part)
    elif isinstance(dataset, dict):
        for part in dataset.values():
            yield from tensors_in(part)
    elif isinstance(dataset, list | tuple):
        for part in dataset:
            yield from tensors_in(part)
    elif isinstance(dataset, Dataset):
        for part in vars(dataset).values():
            yield from tensors_in(part)


def place_of_record(without: Any, with_record: Any) -> int | None:
    """Where the two datasets first differ; None where that cannot be read."""
    fewer, more = records_of(without), records_of(with_record)
    if fewer is None or more is None:
        return None
    one, other = _columns(without), _columns(with_record)
    if one is None or other is None or len(one) != len(other):
        return fewer if more > fewer else None
    common = min(fewer, more)
    apart = np.zeros(common, bool)
    for a, b in zip(one, other, strict=True):
        if a.shape[1:] != b.shape[1:]:
            return None
        apart |= (a[:common] != b[:common]).reshape(common, -1).any(axis=1)
    return int(np.argmax(apart)) if apart.any() else (common if more != fewer else None)


def enlarged(dataset: Any, index: int, factor: float) -> Any:
    """A copy in which one record is larger; None where there is nothing to multiply."""
    changed = False

    def larger(column: Any) -> Any:
        nonlocal changed
        floating = column.is_floating_point() if isinstance(column, torch.Tensor) else column.dtype.kind == "f"
        if not floating:
            return column
        changed = True
        copy = column.clone() if isinstance(column, torch.Tensor) else column.copy()
        copy[index] *= factor
        return copy

    found = _mapped(dataset, larger)
    return found if changed else None


def among_others(dataset: Any, index: int | None) -> Any:
    """A copy in which one record is where it was, and half of the others stand twice; None where there are too few.

    The others must not only change places: a sum over all of them would not.
    """
    count = records_of(dataset) or 0
    others = [place for place in range(count) if place != index]
    if len(others) < 2:
        return None
    order = np.arange(count)
    order[others] = [others[number - number % 2] for number in range(len(others))]
    if isinstance(dataset, list):
        return [dataset[place] for place in order]
    found = _mapped(dataset, lambda column: column[order])
    if found is None and isinstance(dataset, Dataset):
        return Subset(dataset, order.tolist())
    return found


def _mapped(dataset: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(dataset, torch.Tensor | np.ndarray):
        return change(dataset)
    if isinstance(dataset, TensorDataset):
        return TensorDataset(*(change(column) for column in dataset.tensors))
    if isinstance(dataset, dict):
        parts = {name: _mapped(part, change) for name, part in dataset.items()}
        return None if any(part is None for part in parts.values()) else parts
    if isinstance(dataset, tuple) and not hasattr(dataset, "_fields"):
        parts = [_mapped(part, change) for part in dataset]
        return None if any(part is None for part in parts) else tuple(parts)
    return None


def _columns(dataset: Any) -> list[np.ndarray] | None:
    found: list[np.ndarray] = []

    def kept(column: Any) -> Any:
        found.append(np.asarray(column.detach().cpu() if isinstance(column, torch.Tensor) else column))
        return column

    return None if _mapped(dataset, kept) is None else found
