"""Any Python function of a seed and a dataset: plain NumPy, plain PyTorch, anything that runs here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from guarantees.checks import require
from mechanisms.adapters.batch import checked_outputs
from mechanisms.contract import Described, Draw, name_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallableStep(Described):
    """Audit ``function(seed, dataset) -> vector``; the seed, below 2^64, must be its only source of randomness.

    With ``workers`` the function is called in that many spawned processes, so it must be importable (defined at
    the top of a module); ``settings`` is what the record says about it.
    """

    function: Callable[[int, Any], Any] = dataclasses.field(kw_only=False)
    settings: Mapping[str, Any] | None = None
    workers: int = 0
    timeout: float = 60.0

    def __post_init__(self):
        require("function", callable(self.function), "callable", self.function)
        require("workers", self.workers >= 0, ">= 0", self.workers)
        require("timeout", self.timeout > 0, "> 0", self.timeout)

    @property
    def name(self) -> str:
        """The function's own name."""
        return name_of(self.function)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the record should say about the function."""
        return dict(self.settings or {})

    def prepare(self, dataset: Any) -> Draw:
        """Nothing is shared between trials."""

        def draw(seeds: np.ndarray) -> np.ndarray:
            rows = [np.asarray(self.function(int(seed), dataset), np.float32).ravel() for seed in seeds]
            return checked_outputs(np.stack(rows), len(seeds))

        return draw


callable_step = CallableStep
"""The constructor, by the name that docs use."""
