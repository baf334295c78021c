"""Datasets that code may write into: it gets a copy, so that the pair stays as it was built."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from mechanisms.pairs.datasets import is_torch_dataset

WORD = np.dtype(np.uint64)
"""Arrays are compared as numbers of this type: large datasets are compared after every few trials."""


def copied(dataset: Any) -> Any:
    """The dataset with arrays and tensors of its own; objects of other classes are handed on as they are."""
    if isinstance(dataset, np.ndarray):
        # a file that is only read stays on disk
        return dataset if isinstance(dataset, np.memmap) and not dataset.flags.writeable else dataset.copy()
    if _is_tensor(dataset):
        return dataset.detach().clone()
    if isinstance(dataset, dict):
        twin = copy.copy(dataset)
        twin.update((name, copied(part)) for name, part in dataset.items())
        return twin
    if isinstance(dataset, list | tuple):
        parts = map(copied, dataset)
        return dataset._make(parts) if hasattr(dataset, "_make") else type(dataset)(parts)  # pyright: ignore[reportAttributeAccessIssue]
    return _copied_torch(dataset) if is_torch_dataset(dataset) else dataset


class LentDataset:
    """A copy of a dataset for code that runs many trials on it."""

    def __init__(self, given: Any):
        self.lent = copied(given)
        self._pairs = list(zip(_arrays(self.lent), _arrays(given), strict=True))

    def restore(self) -> bool:
        """Undo what was written into the copy; whether anything was."""
        written = [(lent, given) for lent, given in self._pairs if lent is not given and not _same(lent, given)]
        for lent, given in written:
            lent[...] = given
        return bool(written)


def _copied_torch(dataset: Any) -> Any:
    from torch.utils.data import ConcatDataset, Subset, TensorDataset

    if type(dataset) is TensorDataset:
        return TensorDataset(*map(copied, dataset.tensors))
    if type(dataset) is ConcatDataset:
        return ConcatDataset(list(map(copied, dataset.datasets)))
    if type(dataset) is Subset:
        return Subset(copied(dataset.dataset), dataset.indices)
    return dataset


def _arrays(dataset: Any) -> Iterator[Any]:
    """The arrays that ``copied`` copies, in one order."""
    if isinstance(dataset, np.ndarray) or _is_tensor(dataset):
        yield dataset
        return
    if isinstance(dataset, dict):
        parts: Any = dataset.values()
    elif isinstance(dataset, list | tuple):
        parts = dataset
    elif is_torch_dataset(dataset):
        inner = [getattr(dataset, "dataset", None)]
        parts = getattr(dataset, "tensors", getattr(dataset, "datasets", inner))
    else:
        return
    for part in parts:
        yield from _arrays(part)


def _is_tensor(part: Any) -> bool:
    return hasattr(part, "detach") and hasattr(part, "clone")


def _same(one: Any, other: Any) -> bool:
    """Whether two arrays of one shape hold the same entries; NaN is the same as NaN."""
    if isinstance(one, np.ndarray) and one.dtype.kind in "biufc" and one.nbytes % WORD.itemsize == 0:
        one, other = (np.ascontiguousarray(part).reshape(-1).view(WORD) for part in (one, other))
    return bool((one == other).all()) or bool(((one == other) | ((one != one) & (other != other))).all())
