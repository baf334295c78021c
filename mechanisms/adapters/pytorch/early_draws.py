"""Random numbers that a training draws after it has built a module and before it is seen to begin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import overrides

NEW = frozenset(
    {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli"}
    | {"poisson", "multinomial", "binomial"}
)
IN_PLACE = frozenset(
    ("normal_", "uniform_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_")
)


class EarlyDraws(overrides.TorchFunctionMode):
    """Tells of draws from PyTorch's own generator that give no module its weights.

    Those are made while a module is built, or written into a parameter.
    """

    def __init__(self, tell: Callable[[], None], parameters: Callable[[], list[Any]]):
        super().__init__()
        self._tell, self._parameters = tell, parameters

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at the call, and make it."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        drawn = (name in NEW or name in IN_PLACE) and kwargs.get("generator") is None
        if drawn and not self._makes_weights(name, (*args, *kwargs.values())):
            self._tell()
        return func(*args, **kwargs)

    def begin(self) -> None:
        """Look from now on."""
        overrides._push_mode(self)

    def end(self) -> None:
        """Look no longer; modes that a user has put above stay."""
        above: list[Any] = []
        if any(mode is self for mode in overrides._get_current_function_mode_stack()):
            while (mode := overrides._pop_mode()) is not self:
                above.append(mode)
        for mode in reversed(above):
            overrides._push_mode(mode)

    def _makes_weights(self, name: str, args: tuple[Any, ...]) -> bool:
        given = next((one for one in args if isinstance(one, torch.Tensor)), None)
        if given is not None and name in IN_PLACE:
            memory = given.untyped_storage().data_ptr()
            if any(p.untyped_storage().data_ptr() == memory for p in self._parameters()):
                return True
        return _in_construction()


def _in_construction() -> bool:
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
    return False
