"""Where a generator last got its state, seen by Python's profiler: a generator's own methods cannot be replaced."""

from __future__ import annotations

import contextlib
from types import FrameType
from typing import Any

import torch

from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.watched_calls import calls_told_to

SEEDING = frozenset(("manual_seed", "seed", "set_state"))


class Seedings:
    """Watches this thread's calls, which costs a run about half its time again."""

    def __init__(self) -> None:
        # by address: PyTorch wraps a generator anew for every call; kept, so that none gets the address of another
        self._places: dict[int, tuple[torch.Generator, Stack]] = {}

    def of(self, generator: torch.Generator | None) -> Stack:
        """Where this one was seeded; nowhere if it was not since the watch began."""
        return () if generator is None else self._places.get(_address(generator), (None, ()))[1]

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Watch meanwhile."""
        return calls_told_to(self._called)

    def _called(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in SEEDING:
            generator = getattr(function, "__self__", None)
            if isinstance(generator, torch.Generator):
                self._places[_address(generator)] = generator, stack(frame)


def _address(generator: Any) -> int:
    return generator._cdata
