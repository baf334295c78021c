"""One operation of PyTorch, with what was known of its tensors before it."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from mechanisms.adapters.noise_terms import Terms
from mechanisms.adapters.pytorch.replay.cells import Cell, Event, terms_of, variance_of
from mechanisms.adapters.pytorch.replay.stacks import Stack


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """Its name and arguments, one of its results, and where it was called."""

    name: str
    args: tuple[Any, ...]
    before: tuple[Any, ...]
    """The arguments as they were, where the operation writes over one that is still needed."""
    kwargs: dict[str, Any]
    out: torch.Tensor
    known: dict[int, Cell | None]
    pairs: list[tuple[torch.Tensor, Cell]]
    """Tensors of which something is known; the others are constants."""
    where: Stack

    @property
    def cells(self) -> list[Cell]:
        """Of all that is no constant."""
        return [cell for _, cell in self.pairs]

    @property
    def draws(self) -> frozenset[int]:
        """All that went into it."""
        return frozenset().union(*(cell.draws for cell in self.cells))

    @property
    def data(self) -> bool:
        """Whether records reach it."""
        return any(cell.data for cell in self.cells)

    @property
    def opaque(self) -> bool:
        """Whether something reached it by a way that is not followed."""
        return any(cell.opaque for cell in self.cells)

    @property
    def events(self) -> tuple[Event, ...]:
        """Releases that it is made of."""
        return tuple(dict.fromkeys(event for cell in self.cells for event in cell.events))

    def cell(self, part: Any) -> Cell | None:
        """What was known of an argument."""
        return self.known.get(id(part))

    def variance(self, part: torch.Tensor) -> torch.Tensor:
        """Of the noise in each element of an argument."""
        return variance_of(self.cell(part), part)

    def terms(self, part: torch.Tensor) -> Terms | None:
        """The same as a sum of independent numbers; None where that is not known."""
        return terms_of(self.cell(part), part)
