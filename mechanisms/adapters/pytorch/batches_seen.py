"""What one run of a PyTorch training shows: how it draws batches, what it divides by, changes outside of its steps."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mechanisms.adapters.pytorch.watch import Enough, after
from mechanisms.adapters.watched_calls import removed_after, replaced


class BatchesSeen:
    """The loaders that are read, and the first of Opacus's optimizers that is built."""

    def __init__(self):
        self._loaders: list[Any] = []
        self._private: Any = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While a training runs."""
        from torch.utils.data import DataLoader

        original = DataLoader.__iter__

        seen = self

        def read(self: Any) -> Any:
            seen._loaders.append(self)
            return original(self)

        with replaced(DataLoader, "__iter__", read), self._opacus():
            yield

    def _opacus(self) -> contextlib.AbstractContextManager[None]:
        if "opacus" not in sys.modules:
            return contextlib.nullcontext()
        from opacus.optimizers import DPOptimizer

        return after(DPOptimizer, self._private_is_built)

    def _private_is_built(self, optimizer: Any) -> None:
        self._private = optimizer if self._private is None else self._private

    @property
    def told(self) -> Mapping[str, str]:
        """What a record keeps; nothing of a loop that has neither."""
        both = {"sampler": self._sampler(), "divisor": self.divisor}
        return {name: says for name, says in both.items() if says}

    @property
    def not_poisson(self) -> str:
        """The sampler where every loader that was read is one of PyTorch's own, in several batches; else nothing."""
        from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

        own = (RandomSampler, SequentialSampler)
        known = [
            type(loader.batch_sampler) is BatchSampler and type(loader.sampler) in own and len(loader) > 1
            for loader in self._loaders
        ]
        return self._sampler() if known and all(known) else ""

    def _sampler(self) -> str:
        """Of the first loader with a sampling rate, or else of the first."""
        if not self._loaders:
            return ""
        rates = [(getattr(loader.batch_sampler, "sample_rate", None), loader) for loader in self._loaders]
        rate, loader = next((each for each in rates if each[0] is not None), rates[0])
        batches = loader.batch_sampler
        if rate is not None:
            return f"Poisson batches at rate {rate:.4g} ({type(batches).__name__})"
        drawn = getattr(loader, "sampler", None)
        again = " with replacement" if getattr(drawn, "replacement", False) else ""
        known = {"RandomSampler": f", shuffled{again}", "SequentialSampler": " in a fixed order"}
        name = type(drawn).__name__
        return f"batches of {getattr(batches, 'batch_size', None) or 1}{known.get(name, '')} ({name})"

    def contradicts(self, *, clip: float | None, noise_multiplier: float | None) -> str:
        """Where Opacus's optimizer has other values than were told of the training; nothing where none were, or where
        it adapts its clipping and with it its noise."""
        if self._private is None or hasattr(self._private, "target_unclipped_quantile"):
            return ""
        noise = getattr(self._private, "noise_multiplier", None)
        norms = np.asarray(getattr(self._private, "max_grad_norm", np.nan), float)
        has = {
            # bounds of single layers bound the whole by the root of their squares
            "clip": (clip, "max_grad_norm", float(np.linalg.norm(norms))),
            "noise_multiplier": (noise_multiplier, "noise_multiplier", noise),
        }
        if getattr(self._private, "normalize_clipping", False):
            del has["clip"]
        wrong = [
            f"{name}={told:g} is told, and {there} of Opacus's optimizer is {value:.4g}"
            for name, (told, there, value) in has.items()
            if told is not None and value is not None and not math.isclose(told, value, rel_tol=1e-3)
        ]
        return "; ".join(wrong)

    @property
    def divisor(self) -> str:
        """What Opacus's optimizer divides by; empty without one."""
        if self._private is None:
            return ""
        reduction = getattr(self._private, "loss_reduction", "mean")
        if reduction != "mean":
            return f"none: loss_reduction {reduction}"
        return f"expected_batch_size {getattr(self._private, 'expected_batch_size', None)}, loss_reduction mean"


def batches_seen(run: Callable[[], None]) -> BatchesSeen:
    """What a run shows; it is made again if the training imports Opacus itself, which takes long for nothing else."""
    known = "opacus" in sys.modules
    seen = BatchesSeen()
    with seen.watched():
        run()
    return seen if known or "opacus" not in sys.modules else batches_seen(run)


SAYS = (
    "the loop changes the weights after optimizer.step(): what it adds there, such as noise, is in no update; audit "
    "the end of the training instead, with releases='final'"
)


class AfterTheStep:
    """Compares the weights at the end of the first step with those that the loop reads next, and ends the run there."""

    def __init__(self):
        self._stepped: list[tuple[Any, np.ndarray]] = []

    @property
    def changed(self) -> bool:
        """Whether the weights are no longer those of the step."""
        return any(not np.array_equal(_array(p), kept, equal_nan=True) for p, kept in self._stepped)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While a training runs."""
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        hooks = [
            register_optimizer_step_post_hook(self._end),
            register_optimizer_step_pre_hook(self._go_on),
            register_module_forward_pre_hook(self._go_on),
        ]
        with removed_after(*hooks):
            yield

    def _end(self, optimizer: Any, *_: Any) -> None:
        self._stepped = [(p, _array(p)) for group in optimizer.param_groups for p in group["params"]]

    def _go_on(self, *_: Any) -> None:
        if self._stepped:
            raise Enough


def _array(parameter: Any) -> np.ndarray:
    return parameter.detach().cpu().float().numpy().copy()
