"""Releases that are no numbers with the record alone, and the operation that made the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.names import holding, together
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.pytorch.replay.storages import tensors_among


class _First(TorchDispatchMode):
    """Finds the first operation that makes no number of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Stack = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = not self.made and _holds_none((args, kwargs))
        out = func(*args, **(kwargs or {}))
        # memory that nobody has written to may hold anything
        if not (self.made or given) and "empty" not in func._schema.name and _holds_none(out):
            self.made = stack()
        return out


def not_a_number(run: Run, again: Callable[[], Run | None]) -> list[Fact]:
    """What is no number with the record and is one without; ``again`` runs the code on the same draws."""
    lost = [event for event in run.releases.events if _holds_none(event.difference)]
    if not lost:
        return []
    with _First() as first:
        again()
    names = holding(run, lost)
    stacks = {"made": first.made, "origin": lost[0].origin}
    return [Fact(kind="too_little_noise", stacks=stacks, words={"lost": together(names) if names else "the sum"})]


def _holds_none(parts: Any) -> bool:
    """Whether a tensor among them holds what is no number."""
    tensors = tensors_among(parts)
    return any(bool(part.isnan().any()) for part in tensors if part.is_floating_point())
