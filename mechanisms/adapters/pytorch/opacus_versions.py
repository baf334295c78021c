"""Other versions of Opacus, each in a folder of its own over the installed PyTorch, and the interface before 1.0."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mechanisms.adapters.environments import Environment
from mechanisms.networks.for_torch import Network, mean_or_sum, parameters_of, reset_parameters

LEGACY = ("0.12.0", "0.13.0", "0.14.0", "0.15.0")
"""Versions with PrivacyEngine(module, ...).attach(optimizer); 0.9 to 0.11 cannot take Poisson batches."""
POISSON_FLAG = ("0.14.0", "0.15.0")
MOST_EMPTY = 1000


def environment_of(version: str) -> Environment:
    """A version without its dependencies, over the installed PyTorch."""
    return Environment(packages=(f"opacus=={version}",), beside=True)


def first_batch(batches: Iterable[Any], good: Callable[[Any], bool]) -> Any:
    """The first good batch of an epoch, or of the epochs after it."""
    for _ in range(MOST_EMPTY):
        for batch in batches:
            if good(batch):
                return batch
    raise ValueError(f"{MOST_EMPTY} epochs of Poisson batches were all empty; raise batch_size.")


class LegacyTraining:
    """Opacus before 1.0: a Poisson batch sampler, and an engine attached to the optimiser.

    An empty batch stops the loops of 0.12 and 0.13 and is left out by the sampler of 0.14 and 0.15 (whose engine then
    adds steps of pure noise); here the next batch is taken in all four.
    """

    def __init__(self, version: str, rows: Any, trained: Network, settings: dict[str, Any], rate: float):
        import torch
        from opacus import PrivacyEngine
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler

        self._torch, self._rows, self._network = torch, rows, trained
        self._start = parameters_of(trained.model)
        if version in POISSON_FLAG:
            settings = {**settings, "poisson": True, "sample_size": len(rows)}
        self._criterion = mean_or_sum(trained.losses, settings["loss_reduction"])
        engine: Any = PrivacyEngine
        self.engine = engine(trained.model, sample_rate=rate, **settings)
        self._optimizer = torch.optim.SGD(trained.model.parameters(), lr=1.0)
        # as PyTorch did before 2.0: the engine's steps on empty batches read gradients that were zeroed
        self._optimizer.zero_grad = functools.partial(self._optimizer.zero_grad, set_to_none=False)
        self.engine.attach(self._optimizer)
        self._sampler = UniformWithReplacementSampler(
            num_samples=len(rows), sample_rate=rate, generator=torch.default_generator
        )

    def step(self, seed: int) -> np.ndarray:
        """The update of one call of the optimiser, with the sign of the gradient and learning rate 1."""
        self._torch.default_generator.manual_seed(seed)
        # the number of empty batches is drawn by SciPy
        np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
        reset_parameters(self._network.model, self._start)
        self._optimizer.zero_grad()
        inputs, target = self._network.batch(self._rows[first_batch(self._sampler, bool)])
        self._criterion(self._network.model(*inputs), target).backward()
        self._optimizer.step()
        return (self._start - parameters_of(self._network.model)).numpy()
