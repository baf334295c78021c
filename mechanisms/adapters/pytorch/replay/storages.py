"""The memory that a tensor looks into."""

from __future__ import annotations

import torch


def elements(tensor: torch.Tensor) -> int:
    """Of the whole storage that a tensor looks into."""
    return tensor.untyped_storage().nbytes() // max(1, tensor.element_size())


def covers(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    return tensor.numel() >= elements(tensor)


def seen_through(shadow: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The part of a storage's shadow that a tensor looks at."""
    return shadow.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
