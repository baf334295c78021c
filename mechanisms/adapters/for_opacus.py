"""Opacus as its users call it: one step of PrivacyEngine.make_private on a model whose gradients are the dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import multiprocessing
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from guarantees.claim import require
from mechanisms.adapters.batch import Draw
from mechanisms.adapters.opacus_versions import LEGACY, LegacyTraining, library_folder
from mechanisms.contract import OutputKind
from mechanisms.neighbours import materialise

REDUCTIONS = ("mean", "sum")
CLIPPINGS = ("flat", "per_layer", "adaptive")
MODES = ("hooks", "functorch", "ew", "ghost")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpacusStep:
    """One optimiser step of Opacus on a linear model: every record's gradient is its own row of the dataset."""

    batch_size: int
    clip: float
    noise_multiplier: float
    loss_reduction: Literal["mean", "sum"] = "mean"
    poisson_sampling: bool = True
    clipping: Literal["flat", "per_layer", "adaptive"] = "flat"
    grad_sample_mode: Literal["hooks", "functorch", "ew", "ghost"] = "hooks"
    layers: int = 1
    physical_batch: int | None = None
    expected_batch_size: float | None = None
    version: str | None = None
    workers: int = 0
    timeout: float = 60.0

    def __post_init__(self):
        require("batch_size", self.batch_size >= 1, ">= 1", self.batch_size)
        require("clip", self.clip > 0, "> 0", self.clip)
        require("noise_multiplier", self.noise_multiplier >= 0, ">= 0", self.noise_multiplier)
        require("loss_reduction", self.loss_reduction in REDUCTIONS, f"one of {REDUCTIONS}", self.loss_reduction)
        require("clipping", self.clipping in CLIPPINGS, f"one of {CLIPPINGS}", self.clipping)
        require("grad_sample_mode", self.grad_sample_mode in MODES, f"one of {MODES}", self.grad_sample_mode)
        require("layers", self.layers >= 1, ">= 1", self.layers)
        require("workers", self.workers >= 0, ">= 0", self.workers)
        if self.version is not None and not self.workers:
            raise ValueError("version= is not the installed Opacus and needs a process of its own: workers=1.")

    @property
    def name(self) -> str:
        """As suites spell it."""
        return "opacus_step"

    @property
    def kind(self) -> OutputKind:
        """The whole update."""
        return "vector"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the constructor was given."""
        return dataclasses.asdict(self)

    def prepare(self, dataset: Any) -> Draw:
        """Model, optimiser and loader made private once; a trial resets the parameters and reseeds PyTorch."""
        training = make_private(self, dataset)

        def draw(seeds: np.ndarray) -> np.ndarray:
            with quiet():
                return np.stack([training.step(int(seed)) for seed in seeds])

        return draw


class Training:
    """What make_private returned, and a step on it."""

    def __init__(self, step: OpacusStep, *, model: Any, private: Iterable[Any], engine: Any):
        import torch

        self._torch = torch
        self.model = model
        self.module, self.optimizer, self.criterion, self.loader = private
        self.engine = engine
        self._physical_batch = step.physical_batch
        self._bound = self.optimizer.max_grad_norm

    def step(self, seed: int) -> np.ndarray:
        """The update of one logical batch, with the sign of the gradient and learning rate 1."""
        torch = self._torch
        # torch.manual_seed also queues a seed, with a traceback, for every kind of accelerator
        torch.default_generator.manual_seed(seed)
        self.optimizer.max_grad_norm = self._bound
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.zero_()
        self.optimizer.zero_grad()
        if self._physical_batch is None:
            self._run(next(iter(self.loader)))
        else:
            self._run_split()
        return -torch.cat([p.detach().ravel() for p in self.model.parameters()]).numpy()

    def _run(self, batch: Any) -> None:
        gradients, ones = batch
        self.optimizer.zero_grad()
        self.criterion(self.module(gradients), ones).backward()
        self.optimizer.step()

    def _run_split(self) -> None:
        from opacus.utils.batch_memory_manager import BatchMemoryManager

        with BatchMemoryManager(
            data_loader=self.loader, max_physical_batch_size=self._physical_batch, optimizer=self.optimizer
        ) as loader:
            for batch in loader:
                self._run(batch)
                if not self.optimizer._is_last_step_skipped:
                    return


def make_private(step: OpacusStep, dataset: Any, accountant: str | None = None) -> Training | LegacyTraining:
    """PrivacyEngine(accountant).make_private(...) on a linear model, with SGD at learning rate 1."""
    if step.version is not None and (folder := library_folder(step.version)) not in sys.path:
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
    gradients = torch.from_numpy(np.array(materialise(dataset), np.float32))
    records = TensorDataset(gradients, torch.ones(len(gradients)))
    model = linear_model(gradients.shape[1], step.layers)
    if step.version in LEGACY:
        return _legacy(step, gradients, model)
    criterion = linear_loss(step.loss_reduction)
    with quiet():
        # the default differs between versions, and a step of another version must not name one it lacks
        engine = PrivacyEngine(accountant=accountant) if accountant else PrivacyEngine()
        private = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            data_loader=DataLoader(records, batch_size=step.batch_size, shuffle=True),
            noise_multiplier=step.noise_multiplier,
            max_grad_norm=_bounds(step),
            loss_reduction=step.loss_reduction,
            poisson_sampling=step.poisson_sampling,
            clipping=step.clipping,
            **_settings(step, criterion),
        )
    if len(private) == 3:
        module, optimizer, loader = private
        private = (module, optimizer, criterion, loader)
    if step.expected_batch_size is not None:
        private[1].expected_batch_size = step.expected_batch_size
    return Training(step, model=model, private=private, engine=engine)


def _legacy(step: OpacusStep, gradients: Any, model: Any) -> LegacyTraining:
    """Before 1.0 the sampling rate was the caller's; it is taken as 1/len(loader), as later versions do."""
    plain = step.poisson_sampling and step.clipping == "flat" and step.physical_batch is None
    require("version", plain and step.grad_sample_mode == "hooks", "1.0 or later for these settings", step.version)
    settings = {
        "max_grad_norm": step.clip,
        "noise_multiplier": step.noise_multiplier,
        "loss_reduction": step.loss_reduction,
    }
    with quiet():
        rate = 1 / -(-len(gradients) // step.batch_size)
        return LegacyTraining(str(step.version), gradients, model, settings, rate)


def _bounds(step: OpacusStep) -> Any:
    """Per-layer clipping takes one bound a layer; these have the length ``clip`` together."""
    return [step.clip / step.layers**0.5] * step.layers if step.clipping == "per_layer" else step.clip


def _settings(step: OpacusStep, criterion: Any) -> dict[str, Any]:
    """Arguments that older versions do not know are passed only where they say something."""
    settings: dict[str, Any] = {}
    if step.grad_sample_mode != "hooks":
        settings["grad_sample_mode"] = step.grad_sample_mode
    if step.grad_sample_mode == "ghost":
        settings["criterion"] = criterion
    if step.clipping == "adaptive":
        settings |= {
            "target_unclipped_quantile": 0.5,
            "clipbound_learning_rate": 0.2,
            "max_clipbound": 10 * step.clip,
            "min_clipbound": step.clip / 10,
            "unclipped_num_std": max(1.0, step.noise_multiplier),
        }
    return settings


def linear_model(dimension: int, layers: int = 1) -> Any:
    """``sum_k <w_k, x_k>`` over ``layers`` slices of the input: its gradient at x is x itself, wherever w is."""
    import torch

    class LinearModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = [len(part) for part in np.array_split(np.arange(dimension), layers)]
            self.parts = torch.nn.ModuleList(torch.nn.Linear(size, 1, bias=False) for size in self.sizes)

        def forward(self, x: Any) -> Any:
            slices = torch.split(x, self.sizes, dim=1)
            return torch.stack([part(piece)[:, 0] for part, piece in zip(self.parts, slices, strict=True)]).sum(0)

    return LinearModel()


def linear_loss(reduction: str) -> Any:
    """The model's output itself, reduced as PyTorch's losses are."""
    import torch

    class LinearLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.reduction = reduction

        def forward(self, outputs: Any, ones: Any) -> Any:
            losses = outputs * ones
            return {"mean": losses.mean, "sum": losses.sum, "none": lambda: losses}[self.reduction]()

    return LinearLoss()


def opacus_step(
    *,
    batch_size: int,
    clip: float,
    noise_multiplier: float,
    loss_reduction: Literal["mean", "sum"] = "mean",
    poisson_sampling: bool = True,
    clipping: Literal["flat", "per_layer", "adaptive"] = "flat",
    grad_sample_mode: Literal["hooks", "functorch", "ew", "ghost"] = "hooks",
    layers: int = 1,
    physical_batch: int | None = None,
    expected_batch_size: float | None = None,
    version: str | None = None,
    workers: int = 0,
    timeout: float = 60.0,
) -> OpacusStep:
    """The update of one step of the installed Opacus, on a dataset of per-example gradients.

    The loader has ``batch_size``, so Opacus samples at ``1/len(loader)`` and, under ``mean``, divides by
    ``int(N / len(loader))``. ``expected_batch_size`` replaces that divisor after make_private, which is what a user
    can do about it; ``physical_batch`` goes through BatchMemoryManager; ``layers`` splits the model's parameters;
    ``version`` is another Opacus (0.12.0 to 1.6.0), installed in a folder of its own and imported in the workers only.

    Under adaptive clipping the update is audited and the adapted bound is not.
    """
    return OpacusStep(
        batch_size=batch_size,
        clip=clip,
        noise_multiplier=noise_multiplier,
        loss_reduction=loss_reduction,
        poisson_sampling=poisson_sampling,
        clipping=clipping,
        grad_sample_mode=grad_sample_mode,
        layers=layers,
        physical_batch=physical_batch,
        expected_batch_size=expected_batch_size,
        version=version,
        workers=workers,
        timeout=timeout,
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Opacus and PyTorch warn on every run about secure mode, hooks, empty batches; errors still come through."""
    log = logging.getLogger("opacus")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
