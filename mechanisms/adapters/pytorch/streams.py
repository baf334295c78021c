"""The generators that a process has, PyTorch's, NumPy's and Python's: their seeds in a trial, and their states."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mechanisms.adapters.watched_calls import replaced

STREAMS = {"torch": 0x9E3779B97F4A7C15, "numpy": 0xC2B2AE3D27D4EB4F, "random": 0x165667B19E3779F9}
"""Each generator's seed is the trial's, changed by a constant of its own: a user who seeds a loader's generator with
the trial's seed must not get the stream that the noise is drawn from. Different seeds stay different."""

WORDS, BLOCKS = 624, 64
"""Words of a Mersenne twister's state, drawn before they are all replaced; how many times they are followed."""


def stream_of(seed: int) -> int:
    """The seed of PyTorch's own generator in a trial."""
    return seed ^ STREAMS["torch"]


def seed_all(seed: int) -> None:
    """The generators that a process has, each with a seed of its own."""
    import torch

    # torch.manual_seed also queues a seed, with a traceback, for every kind of accelerator
    torch.default_generator.manual_seed(stream_of(seed))
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(stream_of(seed))
    numpy_seed, python_seed = _other_seeds(seed)
    np.random.seed(numpy_seed)  # noqa: NPY002
    random.seed(python_seed)


def _other_seeds(seed: int) -> tuple[int, int]:
    return (seed ^ STREAMS["numpy"]) & 0xFFFFFFFF, seed ^ STREAMS["random"]


def others_drew(seed: int) -> bool:
    """Whether NumPy's or Python's generator has drawn numbers of this seed's stream."""
    numpy_seed, python_seed = _other_seeds(seed)
    numpy, python = np.random.RandomState(numpy_seed), random.Random(python_seed)
    return (
        _advanced(
            _words(np.random.get_state()),  # noqa: NPY002
            lambda: _words(numpy.get_state()),
            lambda: numpy.bytes(4 * WORDS),
        )
        or _advanced(
            random.getstate()[1][:WORDS], lambda: python.getstate()[1][:WORDS], lambda: python.getrandbits(32 * WORDS)
        )
    )


def _words(state: Any) -> tuple[int, ...]:
    return tuple(state[1])


def _advanced(words: tuple[int, ...], state: Callable[[], tuple[int, ...]], draw: Callable[[], Any]) -> bool:
    """Whether a Mersenne twister's words are one of the first blocks after a fresh one's: others were seeded anew."""
    if words == state():
        return False
    for _ in range(BLOCKS):
        draw()
        if words == state():
            return True
    return False


@contextlib.contextmanager
def seeding_what_there_is() -> Iterator[None]:
    """Where there is no accelerator, ``torch.manual_seed`` seeds PyTorch's own generator and nothing else.

    It would queue a call for each kind that might come, with its stack: in an audit a tenth of a small training's time.
    """
    import torch

    present = getattr(torch, "accelerator", torch.cuda).is_available()
    original = torch.manual_seed

    @functools.wraps(original)
    def seeded(seed: int) -> Any:
        return torch.default_generator.manual_seed(int(seed))

    with replaced(torch, "manual_seed", original if present else seeded):
        yield


def states() -> tuple[Any, Any, Any]:
    """Of the generators that a process has."""
    import torch

    return torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def restore(kept: tuple[Any, Any, Any]) -> None:
    """As they were."""
    import torch

    torch.default_generator.set_state(kept[0])
    np.random.set_state(kept[1])  # noqa: NPY002
    random.setstate(kept[2])


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """The process's own generators, as they were before the trial."""
    kept = states()
    try:
        yield
    finally:
        restore(kept)
