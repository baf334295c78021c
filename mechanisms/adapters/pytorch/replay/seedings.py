"""Where a generator last got its state, seen by Python's profiler: a generator's own methods cannot be replaced."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any, Self

import torch

from mechanisms.adapters.pytorch.replay.stacks import Stack, stack

SEEDING = frozenset(("manual_seed", "seed", "set_state"))


class Seedings:
    """Watches this thread's calls, which costs a run about half its time again."""

    def __init__(self) -> None:
        # by address: PyTorch wraps a generator anew for every call; kept, so that none gets the address of another
        self._places: dict[int, tuple[torch.Generator, Stack]] = {}
        self._before: Any = None

    def of(self, generator: torch.Generator | None) -> Stack:
        """Where this one was seeded; nowhere if it was not since the watch began."""
        return () if generator is None else self._places.get(_address(generator), (None, ()))[1]

    def __enter__(self) -> Self:
        """Begin."""
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        sys.setprofile(self._before)

    def _called(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in SEEDING:
            generator = getattr(function, "__self__", None)
            if isinstance(generator, torch.Generator):
                self._places[_address(generator)] = generator, stack(frame)


def _address(generator: Any) -> int:
    return generator._cdata
