"""Whether a training loop changes its weights between an optimizer's steps: an audit of updates does not see that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from mechanisms.adapters.pytorch.watch import Enough

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
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _end(self, optimizer: Any, *_: Any) -> None:
        self._stepped = [(p, _array(p)) for group in optimizer.param_groups for p in group["params"]]

    def _go_on(self, *_: Any) -> None:
        if self._stepped:
            raise Enough


def _array(parameter: Any) -> np.ndarray:
    return parameter.detach().cpu().float().numpy().copy()
