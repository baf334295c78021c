"""How many of PyTorch's threads a trial takes: those of a small training mostly wait for each other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Trial = Callable[[], object]

SHORT = 1.0
"""CPU seconds of one thread beyond which a trial keeps the process's threads: they help there, and trying is dear."""
LONG = 10.0
"""Seconds by the clock beyond which it keeps them, too: it waits for something else, such as a loader's processes."""
SLOWER = 1.1
"""How many times as long a trial may take in one thread."""
TINY = 0.3
"""CPU seconds below which a run takes one: threads that wait for each other take ten times more on busy cores."""


class Threads:
    """Decides with the first trials whether one thread does, as in a worker process: it must take no longer.

    Sums over several threads may differ in their last bits.
    """

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
    """CPU seconds: the clock runs on while other processes have the cores."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


def _one_does(trials: tuple[Trial, ...]) -> bool:
    import torch

    if torch.get_num_threads() == 1:
        return False
    # the first call of a training also imports and allocates
    with threads(1):
        began = time.perf_counter()
        first = _seconds(trials[0])
        if first > SHORT or time.perf_counter() - began > LONG:
            return False
        if min(first, _seconds(trials[0])) < TINY:
            return True
    most = _clock(trials)
    with threads(1):
        return _clock(trials) <= SLOWER * most


def _clock(trials: tuple[Trial, ...]) -> float:
    began = time.perf_counter()
    for trial in trials:
        trial()
    return time.perf_counter() - began
