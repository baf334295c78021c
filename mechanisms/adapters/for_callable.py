"""Any Python function of a seed and a dataset: plain NumPy, plain PyTorch, anything that runs here."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from guarantees.checks import AboveZero, FromZero, Positive, checked, require_takes
from mechanisms.adapters.stated_by_user import StatedByUser, stated_functions, stated_numbers
from mechanisms.adapters.worker_time import WORKER_SECONDS, worker_seconds
from mechanisms.contract import Draw, Releases
from mechanisms.names import name_of
from mechanisms.release import leaves, stack


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CallableStep(StatedByUser):
    """A function of a seed and a dataset: what ``callable_step`` builds."""

    function: Callable[[int, Any], Any] = dataclasses.field(kw_only=False)
    settings: Mapping[str, Any] | None = None
    releases: Releases = "update"  # pyright: ignore[reportIncompatibleMethodOverride]
    workers: FromZero = 0
    timeout: AboveZero = WORKER_SECONDS
    clip: Positive | None = None
    noise_multiplier: Positive | None = None
    own_gradients: Callable[[Any], Any] | None = None

    def __post_init__(self):
        require_takes("function", self.function, "seed", "dataset")

    @property
    def name(self) -> str:
        """The function's own name."""
        return name_of(self.function)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the record should say about the function."""
        told = stated_numbers(clip=self.clip, noise_multiplier=self.noise_multiplier)
        functions = stated_functions(function=self.function, gradients=self.own_gradients)
        return {**(self.settings or {}), **told, **functions}

    @property
    def libraries(self) -> tuple[str, ...]:
        """PyTorch, where the function's module has imported it."""
        own = getattr(inspect.unwrap(self.function), "__globals__", {}).values()
        return ("torch",) if any(inspect.ismodule(each) and each.__name__.startswith("torch") for each in own) else ()

    @property
    def tracer(self) -> str | None:
        """What it does with PyTorch can be followed, where PyTorch is installed."""
        return "torch" if importlib.util.find_spec("torch") else None

    def replayed(self, dataset: Any, seed: int, tell: Callable[[str, Any], None]) -> None:
        """One trial that tells of everything it gives back."""
        for name, leaf in leaves(self.function(seed, dataset)):
            tell(name, leaf)

    def prepare(self, dataset: Any) -> Draw:
        """Nothing is shared between trials."""

        def draw(seeds: np.ndarray) -> Any:
            return stack([self.function(int(seed), dataset) for seed in seeds])

        return draw


@checked
def callable_step(
    function: Callable[[int, Any], Any],
    *,
    settings: Mapping[str, Any] | None = None,
    releases: Releases = "update",
    workers: FromZero = 0,
    timeout: AboveZero | None = None,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    gradients: Callable[[Any], Any] | None = None,
) -> CallableStep:
    """Audit ``function(seed, dataset) -> output``, whatever it is written in.

    An output is an array, a tensor or any pytree of them, kept in float32; in a transcript each one has the rounds as
    its first axis. Float64 or int64 outputs whose changes float32 would round away are refused: release float32
    yourself, or subtract a constant. The seed, below 2^64, must be the function's only source of randomness: what it
    draws from elsewhere is audited too, but no trial can be repeated. Arrays of the dataset are copies: a function may
    write into them, and the next trial gets them as they were.

    Args:
      function: what is audited. With ``workers`` it must be importable, that is defined at the top of a module.
      settings: what the record says about it.
      releases: how much of a training it releases: ``"update"``, ``"transcript"`` or ``"final"``.
      workers: spawned processes that call it; 0 calls it here.
      timeout: seconds after which a worker counts as stuck (60 by default), and 180 more to start, import and
        prepare a side. It needs workers: nothing can end code that runs here.
      clip: the bound that it clips to, where it does; with ``noise_multiplier`` diagnoses can ask about its noise.
      noise_multiplier: deviation of its noise over ``clip``.
      gradients: ``gradients(dataset)``, its per-example gradients (records, coordinates), not clipped: scores and
        diagnoses read them, nothing else does. Without it they are the records themselves, where those fit the output.

    Returns:
      A mechanism for ``run_audit`` that calls the function once for every seed.

    Raises:
      ValueError: an argument is out of range, or a timeout is given without workers.

    Examples:
      >>> import mechanisms, numpy as np
      >>> def release(seed, gradients):
      ...     return gradients.sum(0) + np.random.default_rng(seed).standard_normal(2)
      >>> mechanisms.callable_step(release).name
      'release'
    """
    return CallableStep(
        function,
        settings=settings,
        releases=releases,
        workers=workers,
        timeout=worker_seconds(timeout, workers=workers),
        clip=clip,
        noise_multiplier=noise_multiplier,
        own_gradients=gradients,
    )
