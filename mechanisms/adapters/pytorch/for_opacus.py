"""Opacus as its users call it: one step of PrivacyEngine.make_private on a model, in this version or another."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import multiprocessing
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from guarantees.checks import AboveZero, Count, Finite, FromZero, checked, require
from mechanisms.adapters.environments import Environment
from mechanisms.adapters.worker_time import WORKER_SECONDS, require_workers
from mechanisms.contract import Described, Draw
from mechanisms.networks import PARAMETERS
from mechanisms.networks.for_torch import (
    Network,
    mean_or_sum,
    network,
    parameters_of,
    per_example_gradients,
    reset_parameters,
)
from mechanisms.pairs.neighbours import materialise

LEGACY = ("0.12.0", "0.13.0", "0.14.0", "0.15.0")
"""Versions with PrivacyEngine(module, ...).attach(optimizer); 0.9 to 0.11 cannot take Poisson batches."""
POISSON_FLAG = ("0.14.0", "0.15.0")
MOST_EMPTY = 1000


RELEASE = re.compile(r"[1-9]\d*\.\d+\.\d+")
STOP_ON_EMPTY = ("1.0.", "1.1.", "1.2.")
"""Versions whose per-example gradients fail on an empty Poisson batch."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class OpacusStep(Described):
    """The update of one step of the installed Opacus, from the same initial weights in every trial.

    The loader has ``batch_size``, so Opacus samples at ``1/len(loader)`` and, under ``mean``, divides by
    ``int(N / len(loader))``.

    Under adaptive clipping the update is audited and the adapted bound is not. Versions before 1.3 stop on an empty
    Poisson batch; here they take the next one, so what is audited is the step of a training that did not stop.

    Args:
      batch_size: of the loader, at least 1.
      clip: ``max_grad_norm``, above 0.
      noise_multiplier: standard deviation of the noise of the sum over ``clip``, at least 0.
      loss_reduction: ``"mean"`` or ``"sum"``.
      poisson_sampling: whether Opacus replaces the loader by one that draws Poisson batches.
      clipping: ``"flat"``, ``"per_layer"`` or ``"adaptive"``.
      grad_sample_mode: ``"hooks"``, ``"functorch"``, ``"ew"``, ``"ghost"`` or ``"fast"``.
      network: ``"linear"``, whose per-example gradients are the rows of the dataset, or one that reads images
        (image_pair): the ``"classifier"`` of 26,010 parameters or the ``"denoiser"`` of 1,485,217, whose own noise
        comes, too, from the trial's seed.
      layers: into how many the linear model's parameters are split.
      physical_batch: largest batch that BatchMemoryManager computes at once; by default it is not used.
      expected_batch_size: replaces the divisor after make_private, which is what a user can do about it.
      infinite: a number that stands for every coordinate that is not finite (None refuses them): post-processing, so
        bounds hold.
      version: another Opacus (0.12.0 to 1.6.0), installed in a folder of its own and imported in the workers only.
      workers: spawned processes that train; 0 trains here. At least 1 with ``version``.
      timeout: seconds after which a worker counts as stuck (60 by default), and 180 more to start, import and
        prepare a side. Without workers nothing could end it, and a timeout is refused.

    Raises:
      ValueError: an argument is out of range, or ``version`` or a timeout is given without workers.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.opacus_step(batch_size=2, clip=0.1, noise_multiplier=10.0)
      >>> step.libraries  # imported when it draws: pip install 'dpsgd-audit[opacus]'
      ('torch', 'opacus')
    """

    batch_size: Count
    clip: AboveZero
    noise_multiplier: float
    loss_reduction: Literal["mean", "sum"] = "mean"
    poisson_sampling: bool = True
    clipping: Literal["flat", "per_layer", "adaptive"] = "flat"
    grad_sample_mode: Literal["hooks", "functorch", "ew", "ghost", "fast"] = "hooks"
    network: Literal["linear", "classifier", "denoiser"] = "linear"
    layers: Count = 1
    physical_batch: int | None = None
    expected_batch_size: float | None = None
    infinite: Finite | None = None
    version: str | None = None
    workers: FromZero = 0
    timeout: AboveZero = WORKER_SECONDS

    def __post_init__(self):
        require("noise_multiplier", self.noise_multiplier >= 0, ">= 0", self.noise_multiplier)
        require_workers(self.timeout, workers=self.workers)
        size = self.expected_batch_size
        require("expected_batch_size", size is None or size > 0, "> 0 or None", size)
        known = self.version is None or self.version in LEGACY or RELEASE.fullmatch(self.version)
        require("version", known, f"one of {LEGACY} or a release from 1.0.0 on", self.version)
        if self.version is not None and not self.workers:
            raise ValueError(
                "version= names another Opacus than the installed one, which needs its own process; pass workers=1."
            )

    @property
    def libraries(self) -> tuple[str, ...]:
        """What it imports when it runs."""
        return ("torch",) if self.version else ("torch", "opacus")

    @property
    def installs(self) -> Environment | None:
        """What must be installed before it runs: another version of Opacus, without what it depends on."""
        return None if self.version is None else Environment(packages=(f"opacus=={self.version}",), beside=True)

    @property
    def coordinates(self) -> int | None:
        """Length of an output; None for that of the dataset's rows."""
        return PARAMETERS.get(self.network)

    def gradients(self, dataset: Any) -> np.ndarray:
        """Per-example gradients at the initial weights, shape (records, parameters); not clipped."""
        require("network", self.network != "denoiser", "one whose gradients are the same in every trial", self.network)
        import torch

        rows = torch.from_numpy(np.array(materialise(dataset), np.float32))
        return per_example_gradients(network(self.network, columns=rows.shape[1]), rows)

    @property
    def tracer(self) -> str | None:
        """Its operations are followed by PyTorch's own hooks; another version's run in another process."""
        return None if self.version else "torch"

    def replayed(self, dataset: Any, seed: int, tell: Callable[[str, Any], None]) -> None:
        """One trial that tells of the update, while it is a tensor of PyTorch."""
        training = make_private(self, dataset)
        assert isinstance(training, Training)
        with quiet():
            tell("the update", training.moved(seed))

    def prepare(self, dataset: Any) -> Draw:
        """Model, optimiser and loader made private once; a trial resets the parameters and reseeds PyTorch."""
        training = make_private(self, dataset)

        def draw(seeds: np.ndarray) -> np.ndarray:
            with quiet():
                updates = np.stack([training.step(int(seed)) for seed in seeds])
            if self.infinite is None:
                return updates
            return np.nan_to_num(updates, nan=self.infinite, posinf=self.infinite, neginf=-self.infinite)

        return draw


opacus_step = OpacusStep
"""The constructor, by the name that suites and records use."""


class Training:
    """What make_private returned, and a step on it."""

    def __init__(self, step: OpacusStep, *, network: Network, private: Iterable[Any], engine: Any):
        import opacus
        import torch

        self._torch = torch
        self._network = network
        self._start = parameters_of(network.model)
        self.module, self.optimizer, self.criterion, self.loader = private
        self.engine = engine
        self._physical_batch = step.physical_batch
        self._bound = self.optimizer.max_grad_norm
        self._stops = opacus.__version__.startswith(STOP_ON_EMPTY)

    def step(self, seed: int) -> np.ndarray:
        """The update of one logical batch, with the sign of the gradient and learning rate 1."""
        return self.moved(seed).numpy()

    def moved(self, seed: int) -> Any:
        """The same as a tensor."""
        # torch.manual_seed also queues a seed, with a traceback, for every kind of accelerator
        self._torch.default_generator.manual_seed(seed)
        self.optimizer.max_grad_norm = self._bound
        reset_parameters(self._network.model, self._start)
        self.optimizer.zero_grad()
        if self._physical_batch is None:
            self._run(first_batch(self.loader, lambda batch: len(batch[0]) > 0 or not self._stops))
        else:
            self._run_split(self._physical_batch)
        return self._start - parameters_of(self._network.model)

    def _run(self, batch: Any) -> None:
        inputs, target = self._network.batch(batch[0])
        self.optimizer.zero_grad()
        self.criterion(self.module(*inputs), target).backward()
        self.optimizer.step()

    def _run_split(self, physical_batch: int) -> None:
        from opacus.utils.batch_memory_manager import BatchMemoryManager

        with BatchMemoryManager(
            data_loader=self.loader, max_physical_batch_size=physical_batch, optimizer=self.optimizer
        ) as loader:
            for batch in loader:
                self._run(batch)
                if not self.optimizer._is_last_step_skipped:
                    return


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


def make_private(step: OpacusStep, dataset: Any, accountant: str | None = None) -> Training | LegacyTraining:
    """PrivacyEngine(accountant).make_private(...) on the step's network, with SGD at learning rate 1."""
    if step.installs is not None and (folder := str(step.installs.required())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        import torch
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset
    except ImportError as error:
        raise ImportError(
            f"{error}; opacus_step needs PyTorch and Opacus: pip install 'dpsgd-audit[opacus]'."
        ) from error
    if multiprocessing.parent_process() is not None:
        torch.set_num_threads(1)
    rows = torch.from_numpy(np.array(materialise(dataset), np.float32))
    trained = network(step.network, columns=rows.shape[1], layers=step.layers)
    if step.version in LEGACY:
        return _legacy(step, rows, trained)
    criterion = mean_or_sum(trained.losses, step.loss_reduction)
    with quiet():
        # the default differs between versions, and a step of another version must not name one it lacks
        engine = PrivacyEngine(accountant=accountant) if accountant else PrivacyEngine()
        private: tuple[Any, ...] = engine.make_private(
            module=_fast(trained.model, step) if step.grad_sample_mode == "fast" else trained.model,
            optimizer=torch.optim.SGD(trained.model.parameters(), lr=1.0),
            data_loader=DataLoader(TensorDataset(rows), batch_size=step.batch_size, shuffle=True),
            noise_multiplier=step.noise_multiplier,
            max_grad_norm=_bounds(step, trained.model),
            loss_reduction=step.loss_reduction,
            poisson_sampling=step.poisson_sampling,
            clipping=step.clipping,
            **_settings(step, criterion),
        )
    # with ghost clipping Opacus gives back a criterion, too
    module, optimizer, *wrapped, loader = private
    if step.expected_batch_size is not None:
        optimizer.expected_batch_size = step.expected_batch_size
    return Training(
        step, network=trained, private=(module, optimizer, *(wrapped or [criterion]), loader), engine=engine
    )


def _legacy(step: OpacusStep, rows: Any, trained: Network) -> LegacyTraining:
    """Before 1.0 the sampling rate was the caller's; it is taken as 1/len(loader), as later versions do."""
    plain = step.poisson_sampling and step.clipping == "flat" and step.grad_sample_mode == "hooks"
    whole = step.physical_batch is None and step.expected_batch_size is None
    require("version", plain and whole, "1.0 or later for these settings", step.version)
    require("batch_size", step.batch_size < len(rows), "below the number of records in these versions", step.batch_size)
    settings = {
        "max_grad_norm": step.clip,
        "noise_multiplier": step.noise_multiplier,
        "loss_reduction": step.loss_reduction,
    }
    with quiet():
        rate = 1 / -(-len(rows) // step.batch_size)
        return LegacyTraining(str(step.version), rows, trained, settings, rate)


def _fast(model: Any, step: OpacusStep) -> Any:
    """Fast gradient clipping without ghost norms: make_private takes it as a module that is wrapped already."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    # its default, 1, makes type checkers think that norms are whole numbers
    norm: Any = step.clip
    return GradSampleModuleFastGradientClipping(
        model, loss_reduction=step.loss_reduction, max_grad_norm=norm, use_ghost_clipping=False
    )


def _bounds(step: OpacusStep, model: Any) -> Any:
    """Per-layer clipping takes one bound for every tensor of parameters; these have the length ``clip`` together."""
    tensors = len(list(model.parameters()))
    return [step.clip / tensors**0.5] * tensors if step.clipping == "per_layer" else step.clip


def _settings(step: OpacusStep, criterion: Any) -> dict[str, Any]:
    """Arguments that older versions do not know are passed only where they say something."""
    settings: dict[str, Any] = {}
    if step.grad_sample_mode in ("ghost", "fast"):
        settings |= {"grad_sample_mode": "ghost", "criterion": criterion}
    elif step.grad_sample_mode != "hooks":
        settings["grad_sample_mode"] = step.grad_sample_mode
    if step.clipping == "adaptive":
        settings |= {
            "target_unclipped_quantile": 0.5,
            "clipbound_learning_rate": 0.2,
            "max_clipbound": 10 * step.clip,
            "min_clipbound": step.clip / 10,
            "unclipped_num_std": max(1.0, step.noise_multiplier),
        }
    return settings


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Opacus and PyTorch warn on every run about secure mode, hooks, empty batches; errors still come through."""
    log = logging.getLogger("opacus")
    level = log.level
    # a level that is set empties the caches of all loggers there are, which for every trial is a twentieth of its time
    if level != logging.ERROR:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if log.level != level:
            log.setLevel(level)
