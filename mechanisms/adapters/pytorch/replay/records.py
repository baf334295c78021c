"""Datasets as they are handed to PyTorch code: the tensors in them, the record of a pair, and changed copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from mechanisms.adapters.pytorch.streams import generators_kept
from mechanisms.pairs.datasets import records_of
from mechanisms.pairs.datasets import replaced as put_in_place

LEAST_SHARE = 0.6
"""Of its size that every record keeps where they are made unlike one another."""


def tensors_in(
    dataset: Any, first: int = 0, *, alone: bool = False
) -> Iterator[tuple[torch.Tensor | np.ndarray, int, bool]]:
    """Every tensor that can be reached without reading a record: the place of its first, and whether it has no other.

    Arrays, too, of which the code may make tensors. ``first`` and ``alone`` are those of ``dataset`` in a larger one.
    """
    parts: Iterable[tuple[Any, int]] = ()
    if isinstance(dataset, torch.Tensor | np.ndarray):
        yield dataset, first, alone
    elif isinstance(dataset, list):
        parts = [(part, first if alone else first + place) for place, part in enumerate(dataset)]
        alone = True
    elif isinstance(dataset, Subset):
        parts = [(dataset.dataset, first - next(iter(dataset.indices), 0))]
    elif isinstance(dataset, ConcatDataset):
        parts = zip(dataset.datasets, (first + end for end in (0, *dataset.cumulative_sizes)), strict=False)
    elif isinstance(dataset, dict | tuple):
        parts = [(part, first) for part in (dataset.values() if isinstance(dataset, dict) else dataset)]
    elif isinstance(dataset, Dataset):
        # a list of another length has no records
        own = [tuple(a) if isinstance(a, list) and len(a) != records_of(dataset) else a for a in vars(dataset).values()]
        parts = [(part, first) for part in own]
    for part, place in parts:
        yield from tensors_in(part, place, alone=alone)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the record of a pair stands, in the dataset that has it, and how many the other has."""

    index: int
    records: int
    added: bool = True
    """Whether it is one more, or else one in place of another."""


def place_of_record(without: Any, with_record: Any) -> Place | None:
    """Where the two datasets first differ; None where that cannot be read."""
    one, other = _columns(without), _columns(with_record)
    if not one or not other or len(one) != len(other):
        fewer, more = records_of(without), records_of(with_record)
        return None if fewer is None or more is None or more <= fewer else Place(fewer, fewer)
    if any(a.ndim == 0 or a.shape[1:] != b.shape[1:] for a, b in zip(one, other, strict=True)):
        return None
    lengths, longer = {len(a) for a in one}, {len(b) for b in other}
    if len(lengths) != 1 or len(longer) != 1:
        return None
    fewer, common = min(lengths), min(lengths | longer)
    apart = np.zeros(common, bool)
    for a, b in zip(one, other, strict=True):
        apart |= (a[:common] != b[:common]).reshape(common, -1).any(axis=1)
    if apart.any():
        return Place(int(np.argmax(apart)), fewer, longer != lengths)
    return Place(common, fewer) if longer != lengths else None


def rows_read(name: str, args: tuple[Any, ...]) -> list[int]:
    """Which records an operation reads from a tensor of them; empty where it reads them otherwise than by place."""
    if not args[0].dim() or len(args) < 2:
        return []
    records, along = len(args[0]), args[1]
    if name == "index" and isinstance(along[0], torch.Tensor):
        places = along[0].nonzero() if along[0].dtype == torch.bool else along[0]
    elif name == "index_select" and along == 0:
        places = args[2]
    elif name == "select" and along == 0:
        places = torch.tensor(args[2])
    elif name == "slice" and along == 0:
        return [*range(records)[slice(*(args[2:] or (None,)))]]
    else:
        return []
    return (places.flatten() % records).tolist()


def same_batches(one: dict[int, set[int]], other: dict[int, set[int]], place: Place) -> bool:
    """Whether the two sides read the same records between any two releases, but for the one more."""
    if not place.added:
        return one == other
    fewer = {phase: {row - (row > place.index) for row in rows - {place.index}} for phase, rows in other.items()}
    return all(one.get(phase, set()) == fewer.get(phase, set()) for phase in one.keys() | fewer.keys())


def same_orders(one: list[list[int]], other: list[list[int]], place: Place) -> bool:
    """Whether orders into which all records were put are the same, with the one more in its own place."""
    if not place.added:
        return one == other
    own = [[row for row in rows if row != place.index] for rows in other]
    kept = all(rows[place.index : place.index + 1] == [place.index] for rows in other)
    return kept and one == [[row - (row > place.index) for row in rows] for rows in own]


def enlarged(dataset: Any, index: int, factor: float, *, turned: bool = False) -> Any:
    """A copy in which one record is larger; None where there is nothing to multiply.

    ``turned`` reads its numbers from the last to the first, so that its gradient has another direction.
    """
    changed = False

    def longer(part: Any) -> Any:
        nonlocal changed
        if isinstance(part, dict):
            return {name: longer(one) for name, one in part.items()}
        if isinstance(part, list | tuple):
            return part if hasattr(part, "_fields") else type(part)(map(longer, part))
        if not _floating(part):
            return part
        changed = True
        if turned and np.ndim(part):
            part = part.flip(-1) if isinstance(part, torch.Tensor) else np.flip(part, -1)
        return factor * part

    def larger(column: Any) -> Any:
        if not _floating(column):
            return column
        copy = column.clone() if isinstance(column, torch.Tensor) else column.copy()
        copy[index] = longer(column[index])
        return copy

    found = _mapped(dataset, larger)
    if _is_read(dataset):
        found = put_in_place(dataset, index, longer(_record(dataset, index)))
    return found if changed else None


def others_apart(dataset: Any, place: Place, factor: float) -> Any:
    """A copy in which every other record is a little smaller than the one before, and the record ``factor`` times.

    None where the others do not stand in the same places of both datasets.
    """
    columns = _columns(dataset)
    if not columns or place.index < place.records < len(columns[0]):
        return None
    shares = np.linspace(1.0, LEAST_SHARE, place.records + 1)
    shares[place.index] = factor

    def unlike(column: Any) -> Any:
        if not _floating(column):
            return column
        rows = shares[: len(column)].reshape(-1, *[1] * (column.ndim - 1))
        return column * (torch.as_tensor(rows, dtype=column.dtype) if isinstance(column, torch.Tensor) else rows)

    return _mapped(dataset, unlike)


def among_others(dataset: Any, index: int | None) -> Any:
    """A copy in which one record is where it was, and half of the others stand twice; None where there are too few.

    The others must not only change places: a sum over all of them would not. None of them stays where it was (of
    three or more): the one that stays could be the only one that the record meets.
    """
    columns = _columns(dataset)
    count = (records_of(dataset) or 0) if not columns else len(columns[0])
    others = [place for place in range(count) if place != index]
    if len(others) < 2:
        return None
    order = np.arange(count)
    order[others] = [others[(number - number % 2 + 2) % len(others)] for number in range(len(others))]
    found = _mapped(dataset, lambda column: column[order])
    if found is None and isinstance(dataset, list):
        return [dataset[place] for place in order]
    if found is None and isinstance(dataset, Dataset):
        return Subset(dataset, order.tolist())
    return found


def replaced(dataset: Any, index: int) -> Any:
    """A copy in which another record stands in place of one; None where there is none."""
    records, other = records_of(dataset) or 0, 0 if index else 1
    if records < 2:
        return None
    if _is_read(dataset):
        return put_in_place(dataset, index, _record(dataset, other))
    order = np.arange(records)
    order[index] = other
    return _mapped(dataset, lambda column: column[order])


def _mapped(dataset: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(dataset, torch.Tensor | np.ndarray):
        return change(dataset)
    if isinstance(dataset, TensorDataset):
        return TensorDataset(*(change(column) for column in dataset.tensors))
    if isinstance(dataset, dict):
        parts = {name: _mapped(part, change) for name, part in dataset.items()}
        return None if any(part is None for part in parts.values()) else parts
    # a list has no columns but records
    if isinstance(dataset, tuple) and not hasattr(dataset, "_fields"):
        parts = [_mapped(part, change) for part in dataset]
        return None if any(part is None for part in parts) else tuple(parts)
    return None


def _is_read(dataset: Any) -> bool:
    """Whether its records are read one by one."""
    own = isinstance(dataset, list) or (isinstance(dataset, Dataset) and not isinstance(dataset, TensorDataset))
    return own and records_of(dataset) is not None


def _record(dataset: Any, index: int) -> Any:
    with generators_kept():
        return dataset[index]


def _floating(part: Any) -> bool:
    return part.is_floating_point() if isinstance(part, torch.Tensor) else np.asarray(part).dtype.kind == "f"


def _columns(dataset: Any) -> list[np.ndarray] | None:
    found: list[np.ndarray] = []

    def kept(column: Any) -> Any:
        found.append(np.asarray(column.detach().cpu() if isinstance(column, torch.Tensor) else column))
        return column

    return None if _mapped(dataset, kept) is None else found
