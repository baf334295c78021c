"""The tensors that an operation is given, the memory that each looks into, and the noise in it as a linear map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mechanisms.adapters.noise_terms import Terms


def tensors_among(given: Any) -> list[torch.Tensor]:
    """Every tensor in lists, tuples and dictionaries, in order; PyTorch's own walk takes ten times as long."""
    if isinstance(given, torch.Tensor):
        return [given]
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, list | tuple):
        return []
    return [tensor for part in given for tensor in tensors_among(part)]


def elements(tensor: torch.Tensor) -> int:
    """Number of elements of the whole storage that a tensor looks into."""
    return tensor.untyped_storage().nbytes() // max(1, tensor.element_size())


def covers(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    return tensor.numel() >= elements(tensor)


def nothing(*shape: int) -> Terms:
    """Terms without noise."""
    return Terms(np.zeros((*shape, 1), np.int64), np.zeros((*shape, 1)))


def seen(terms: Terms, tensor: torch.Tensor) -> Terms:
    """The part of a storage's terms that a tensor looks at."""
    return terms.changed(lambda array: _window(array, tensor))


def laid(tensor: torch.Tensor, values: Terms, before: Terms | None = None) -> Terms:
    """Terms of a storage with these values where the tensor looks, and ``before`` elsewhere.

    What was before a tensor that is all of its storage does not count. Numbers are known if they are so everywhere.
    """
    rest = before
    if covers(tensor) or rest is None:
        rest = nothing(elements(tensor)) if covers(tensor) else nothing(elements(tensor)).alone
    found = None if values.numbers is None or rest.numbers is None else _laid(tensor, values, rest)
    if found is not None:
        return found
    return Terms(None, _written(rest.alone.times, values.alone.times, tensor, 1))


def _laid(tensor: torch.Tensor, values: Terms, rest: Terms) -> Terms | None:
    width = max(values.times.shape[-1], rest.times.shape[-1])
    return Terms(
        _written(rest.numbers, values.numbers, tensor, width), _written(rest.times, values.times, tensor, width)
    ).bounded()


def side_by_side(parts: Sequence[Terms | None]) -> Terms | None:
    """Coordinates of several tensors, one after the other; None where one is not known, or all are too large."""
    known = [part for part in parts if part is not None and part.numbers is not None]
    if len(known) < len(parts) or not known:
        return None
    width = max(part.times.shape[-1] for part in known)

    def rows(array: np.ndarray) -> np.ndarray:
        flat = array.reshape(-1, array.shape[-1])
        return np.pad(flat, ((0, 0), (0, width - flat.shape[-1])))

    columns = [np.concatenate([rows(getattr(part, name)) for part in known]) for name in ("numbers", "times")]
    return Terms(*columns).bounded()


def variance_in(terms: Terms) -> torch.Tensor:
    """Variance of every element; elements whose variances differ only by rounding get the same one."""
    fraction, exponent = np.frexp(terms.variance)
    return torch.as_tensor(np.ldexp(np.round(fraction * 2.0**20) / 2.0**20, exponent), dtype=torch.float32)


def _written(before: np.ndarray, values: np.ndarray, tensor: torch.Tensor, width: int) -> np.ndarray:
    found = np.zeros((len(before), width), before.dtype)
    found[:, : before.shape[-1]] = before
    window = _window(found, tensor)
    window[...] = 0
    window[..., : values.shape[-1]] = values
    return found


def _window(array: np.ndarray, tensor: torch.Tensor) -> np.ndarray:
    width = array.shape[-1]
    strides = (*(width * stride for stride in tensor.stride()), 1)
    return torch.from_numpy(array).as_strided((*tensor.size(), width), strides, width * tensor.storage_offset()).numpy()
