"""Datasets of any kind as records: how many there are, one more, another in a place, and what each one holds.

A dataset is an array, a tuple, dict or other pytree of arrays whose first axis is the record, a list of records, or a
map-style dataset of PyTorch. Tensors of PyTorch stay tensors; other arrays become NumPy's where they are changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsgd_audit.later import jax
from mechanisms.release import PLAIN, host_array, host_bits, is_key, leaves

MOST_READ = 4096
"""Records of a dataset of PyTorch that are read to compare two of them."""
KINDS = "an array, a tuple or dict of arrays with one first axis, a list of records, or a PyTorch dataset with a length"


def records_of(dataset: Any) -> int | None:
    """Number of records; None where a dataset is of no kind that is known here."""
    if isinstance(dataset, list) or is_torch_dataset(dataset):
        return len(dataset) if hasattr(dataset, "__len__") else None
    parts = columns(dataset)
    lengths = {np.shape(column)[:1] for _, column in parts}
    if len(lengths) != 1 or lengths == {()}:
        return None
    return int(lengths.pop()[0])


def refusal(dataset: Any) -> str:
    """What kept something from being a dataset, in words."""
    if isinstance(dataset, str | bytes | os.PathLike):
        return "a path or text; load it first"
    parts = columns(dataset)
    if len({np.shape(column)[:1] for _, column in parts}) > 1:
        sizes = (f"{name!r} with {len(column) if np.ndim(column) else 'no'}" for name, column in parts[:4])
        return " and ".join(sizes) + " records"
    kind = _called(dataset)
    if isinstance(dataset, tuple | dict):
        for name, part in leaves(dataset):
            if not hasattr(part, "shape"):
                return f"{kind} whose part {name!r} is {_called(part)} and no array"
    return kind


def _called(given: Any) -> str:
    kind = type(given).__name__
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def columns(dataset: Any) -> list[tuple[str, Any]]:
    """Every array of a dataset, by its path; no columns where something in it is no array."""
    try:
        parts = leaves(dataset)
    except (TypeError, ValueError):
        return []
    return parts if parts and all(hasattr(part, "shape") and hasattr(part, "dtype") for _, part in parts) else []


def record_shapes(dataset: Any) -> dict[str, tuple[int, ...]] | None:
    """Shape of one record, part by part; None for lists and datasets of PyTorch, whose records may be anything."""
    if isinstance(dataset, list) or is_torch_dataset(dataset):
        return None
    return {name: tuple(np.shape(column)[1:]) for name, column in columns(dataset)} or None


def is_torch_dataset(dataset: Any) -> bool:
    """Whether it is a dataset of PyTorch, which is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dataset, torch.utils.data.Dataset)


def appended(dataset: Any, record: Any) -> Any:
    """The dataset with one more record, the last."""
    if isinstance(dataset, list):
        return [*dataset, record]
    if is_torch_dataset(dataset):
        return _torch_joined(dataset, record, len(dataset), len(dataset))
    return _joined(dataset, record, lambda column, row: [column, row])


def replaced(dataset: Any, index: int, record: Any) -> Any:
    """The dataset with another record in one place."""
    if isinstance(dataset, list):
        return [*dataset[:index], record, *dataset[index + 1 :]]
    if is_torch_dataset(dataset):
        return _torch_joined(dataset, record, index, index + 1)
    return _joined(dataset, record, lambda column, row: [column[:index], row, column[index + 1 :]])


def _joined(dataset: Any, record: Any, pieces: Callable[[Any, Any], list[Any]]) -> Any:
    """Column by column; the record must have the parts and shapes of the dataset's own."""
    shapes = record_shapes(dataset)
    if shapes is None:
        raise TypeError(f"a dataset is {KINDS}, got {refusal(dataset)}.")
    own = dict(leaves(record)) if len(shapes) > 1 or PLAIN not in shapes else {PLAIN: record}
    found = {name: tuple(np.shape(part)) for name, part in own.items()}
    if found != shapes and [*found] == [*shapes] == [PLAIN]:
        raise ValueError(f"a record of this dataset has the shape {shapes[PLAIN]}, got {found[PLAIN]}.")
    if found != shapes:
        raise ValueError(f"a record of this dataset has the parts and shapes {shapes}, got {found}.")
    given, tree = jax.tree.flatten(dataset)
    rows = [_row(column, own[name], name) for name, column in columns(dataset)]
    return jax.tree.unflatten(tree, [_concatenated(pieces(c, r)) for c, r in zip(given, rows, strict=True)])


def _row(column: Any, part: Any, name: str) -> Any:
    """One record's part in the form of its column; a number that the column's dtype cannot hold is refused."""
    if hasattr(column, "detach"):
        import torch

        return torch.as_tensor(part).to(column.dtype)[None]
    if is_key(column) or is_key(part):
        if getattr(part, "dtype", None) != column.dtype:
            raise ValueError(f"the part {name!r} of the record must be {column.dtype}, as the dataset's, got {part!r}.")
        return part[None]
    value, dtype = host_array(part), np.dtype(column.dtype)
    lossy = dtype.kind in "iubfc" and value.dtype.kind not in "iubfc"
    with np.errstate(all="ignore"):
        row = value if lossy else value.astype(dtype)
    lossy = lossy or (dtype.kind in "iub" and not np.array_equal(row.astype(np.float64), value.astype(np.float64)))
    if lossy:
        raise ValueError(f"the part {name!r} of the record does not fit the dataset's {dtype}: {value!r}.")
    return row[None]


def _concatenated(pieces: list[Any]) -> Any:
    if hasattr(pieces[0], "detach"):
        import torch

        return torch.cat(pieces)
    if is_key(pieces[0]):
        return jax.numpy.concatenate(pieces)
    return np.concatenate([np.asarray(piece) for piece in pieces])


def _torch_joined(dataset: Any, record: Any, first: int, last: int) -> Any:
    """Records up to ``first``, the given one, those from ``last`` on: in PyTorch's own classes, which travel."""
    from torch.utils.data import ConcatDataset, Subset, TensorDataset

    if isinstance(dataset, TensorDataset):
        own = record if isinstance(record, tuple | list) else (record,)
        return TensorDataset(
            *_joined(dataset.tensors, tuple(own), lambda column, row: [column[:first], row, column[last:]])
        )
    parts = [Subset(dataset, range(first)), [record], Subset(dataset, range(last, len(dataset)))]
    return ConcatDataset([part for part in parts if len(part)])


def contents(dataset: Any) -> list[bytes] | None:
    """The bytes of every record, for comparing; None where records cannot be read twice alike."""
    size = records_of(dataset)
    if size is None:
        return None
    if isinstance(dataset, list) or (is_torch_dataset(dataset) and not hasattr(dataset, "tensors")):
        if size > MOST_READ:
            return None
        try:
            first, second = ([_record_bytes(dataset[i]) for i in range(size)] for _ in range(2))
        except Exception:
            return None
        return first if first == second else None
    parts = [host_bits(column) for _, column in columns(getattr(dataset, "tensors", dataset))]
    flat = [np.ascontiguousarray(part).reshape(size, -1) for part in parts]
    return [b"|".join(part[i].tobytes() for part in flat) for i in range(size)]


def _record_bytes(record: Any) -> bytes:
    """Names and bytes of a record's arrays; text as it is."""
    parts = [(name, host_bits(part)) for name, part in leaves(record)]
    if any(part.dtype.kind == "O" for _, part in parts):
        raise TypeError("a record of unknown objects")
    return b"|".join(name.encode() + str(part.dtype).encode() + part.tobytes() for name, part in parts)


def not_finite(dataset: Any) -> str | None:
    """Where a number is NaN or infinite, in words; None where all are finite or cannot be read."""
    if is_torch_dataset(dataset):
        dataset = getattr(dataset, "tensors", None)
    if dataset is None:
        return None
    if isinstance(dataset, list):
        found = ((f"record {i}", leaves(record)) for i, record in enumerate(dataset))
    else:
        found = [("", columns(dataset))]
    for where, parts in found:
        for name, part in parts:
            array = host_bits(part)
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
                own = where or f"record {place[0]}"
                return f"{array[place]} in {own}" + ("" if name == PLAIN else f", part {name!r}")
    return None
