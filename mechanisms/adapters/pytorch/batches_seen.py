"""How a user's PyTorch training draws its batches and what it divides by, seen in one run: reports say it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from mechanisms.adapters.pytorch.watch import after


class BatchesSeen:
    """The first loader that is read, and the first of Opacus's optimizers that is built."""

    def __init__(self):
        self._loader: Any = None
        self._private: Any = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While a training runs."""
        from torch.utils.data import DataLoader

        original = DataLoader.__iter__

        seen = self

        def read(self: Any) -> Any:
            seen._loader = self if seen._loader is None else seen._loader
            return original(self)

        DataLoader.__iter__ = read
        try:
            with self._opacus():
                yield
        finally:
            DataLoader.__iter__ = original

    def _opacus(self) -> contextlib.AbstractContextManager[None]:
        try:
            from opacus.optimizers import DPOptimizer
        except ImportError:
            return contextlib.nullcontext()
        return after(DPOptimizer, self._private_is_built)

    def _private_is_built(self, optimizer: Any) -> None:
        self._private = optimizer if self._private is None else self._private

    @property
    def told(self) -> Mapping[str, str]:
        """What a record keeps; nothing of a loop that has neither."""
        both = {"sampler": self._sampler(), "divisor": self._divisor()}
        return {name: says for name, says in both.items() if says}

    def _sampler(self) -> str:
        if self._loader is None:
            return ""
        batches = getattr(self._loader, "batch_sampler", None)
        rate = getattr(batches, "sample_rate", None)
        if rate is not None:
            return f"Poisson batches at rate {rate:.4g} ({type(batches).__name__})"
        drawn = getattr(self._loader, "sampler", None)
        again = " with replacement" if getattr(drawn, "replacement", False) else ""
        known = {"RandomSampler": f", shuffled{again}", "SequentialSampler": " in a fixed order"}
        name = type(drawn).__name__
        return f"batches of {getattr(batches, 'batch_size', None) or 1}{known.get(name, '')} ({name})"

    def _divisor(self) -> str:
        if self._private is None:
            return ""
        reduction = getattr(self._private, "loss_reduction", "mean")
        if reduction != "mean":
            return f"none: loss_reduction {reduction}"
        return f"expected_batch_size {getattr(self._private, 'expected_batch_size', None)}, loss_reduction mean"
