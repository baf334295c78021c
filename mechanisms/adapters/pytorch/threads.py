"""How many of PyTorch's threads a trial takes: those of a small training mostly wait for each other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numpy as np

Trial = Callable[[], dict[str, np.ndarray]]

SHORT = 1.0
"""Seconds beyond which a trial keeps the process's threads: threads help there, and trying costs too much."""
SLOWER = 1.1
"""How many times as long a trial may take in one thread."""
TINY = 0.3
"""CPU seconds below which a run that is watched takes one: noting what its operations do takes longer than they do."""


class Threads:
    """Decides with the first trials whether one thread does: it must release the same bits, and take no longer."""

    def __init__(self) -> None:
        self._one: bool | None = None

    @contextlib.contextmanager
    def chosen(self, *trials: Trial) -> Iterator[None]:
        """Draw inside with the threads that do best; the first trials that are given decide it, once."""
        if self._one is None and trials:
            self._one = _one_does(trials)
        with threads(1) if self._one else contextlib.nullcontext():
            yield


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads inside one operation of PyTorch."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def one_if_tiny(run: Callable[[], object]) -> Iterator[None]:
    """One thread inside if a run in it takes next to no time; the first run also imports and allocates."""
    with threads(1):
        tiny = any(_seconds(run) < TINY for _ in range(2))
    with threads(1) if tiny else contextlib.nullcontext():
        yield


def _seconds(run: Callable[[], object]) -> float:
    # the clock runs on while other processes have the cores
    began = time.thread_time()
    run()
    return time.thread_time() - began


def _one_does(trials: tuple[Trial, ...]) -> bool:
    import torch

    if torch.get_num_threads() == 1:
        return False
    # the first call of a training also imports and allocates
    _, seconds = _timed(trials[:1])
    if seconds > SHORT:
        return False
    several, most = _timed(trials)
    with threads(1):
        single, alone = _timed(trials)
    same = all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
        for one, other in zip(several, single, strict=True)
    )
    return same and alone <= SLOWER * most


def _timed(trials: tuple[Trial, ...]) -> tuple[list[dict[str, np.ndarray]], float]:
    began = time.perf_counter()
    return [trial() for trial in trials], time.perf_counter() - began
