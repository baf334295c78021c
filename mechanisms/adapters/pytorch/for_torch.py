"""A user's own PyTorch training, with Opacus or without: their model, optimizer, loader and loop, as they stand."""

from __future__ import annotations

import copy
import dataclasses
import math
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import jax
import numpy as np

from guarantees.checks import AboveZero, Positive, checked, require
from guarantees.claim import Claim
from guarantees.families.accountant_tables import Entry, claim_from_history, claim_from_table
from mechanisms.adapters.pytorch.for_opacus import quiet
from mechanisms.adapters.pytorch.opacus_claims import rates_note
from mechanisms.adapters.pytorch.watch import Watch, plain_name
from mechanisms.adapters.told import told_numbers
from mechanisms.contract import RELEASES, Described, Draw, OutputKind, Releases, name_of
from mechanisms.networks.torch_gradients import loss_gradients
from mechanisms.pairs.datasets import is_torch_dataset, records_of
from mechanisms.pairs.gradient_pairs import GradientsError
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import host_array, leaves

MOST_EMPTY = 100
"""Runs after which a record that no batch held is given up."""
MOST_RECORDS = 256
"""Records above which their gradients are not worked out, one run each."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchTraining(Described):
    """A user's training in PyTorch: what ``torch_training`` builds."""

    train: Callable[[Any, int], Any] = dataclasses.field(kw_only=False)
    releases: Releases = "update"  # pyright: ignore[reportIncompatibleMethodOverride]
    steps: int | None = None
    workers: int = 0
    timeout: AboveZero = 60.0
    clip: Positive | None = None
    noise_multiplier: Positive | None = None
    own_gradients: Callable[[Any], Any] | None = None
    loss: Callable[..., Any] | None = None

    def __post_init__(self):
        require("train", callable(self.train), "a function of a dataset and a seed", self.train)
        if hasattr(self.train, "parameters"):
            raise TypeError(
                "train must be a function of a dataset and a seed, which builds and trains a model; "
                f"got the model {type(self.train).__name__}."
            )
        require("releases", self.releases in RELEASES, f"one of {RELEASES}", self.releases)
        good = self.steps is None or (self.steps >= 1 and self.releases == "transcript")
        require("steps", good, ">= 1, and only with releases='transcript'", self.steps)
        require("workers", self.workers >= 0, ">= 0", self.workers)

    @property
    def name(self) -> str:
        """The function's own name."""
        return name_of(self.train)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Where it is ended, and the versions that train."""
        own = dict(told_numbers(clip=self.clip, noise_multiplier=self.noise_multiplier))
        own |= {} if self.steps is None else {"steps": self.steps}
        return own | {library: _version(library) for library in ("torch", "opacus") if _version(library)}

    @property
    def kind(self) -> OutputKind:
        """A transcript, or a vector."""
        return "transcript" if self.releases == "transcript" else "vector"

    @property
    def libraries(self) -> tuple[str, ...]:
        """What it imports when it runs."""
        return ("torch",)

    def steps_on(self, dataset: Any) -> int | None:
        """Steps of one run; None where weights are updated by no optimizer of torch.optim, or by several."""
        if self.releases != "final":
            return 1 if self.releases == "update" else self.steps
        return self._watched(dataset, 0).taken

    def prepare(self, dataset: Any) -> Draw:
        """Nothing is shared between trials but the initial weights, which need no sharing."""
        if multiprocessing.parent_process() is not None:
            import torch

            torch.set_num_threads(1)
        first: list[list[Any]] = []

        def release(seed: int) -> dict[str, np.ndarray]:
            watch = self._watched(dataset, seed)
            if not first:
                first.append(watch.start)
            if not _equal(first[0], watch.start):
                raise ValueError(
                    f"the weights that {self.name} gives its optimizer differ from trial to trial; every trial must "
                    "build a new model, whose initial weights must not come from a generator that follows the seed."
                )
            return self._release(watch)

        def draw(seeds: np.ndarray) -> Any:
            trials = [release(int(seed)) for seed in seeds]
            for trial in trials:
                _require_one_form(trials[0], trial)
            return {name: np.stack([trial[name] for trial in trials]) for name in trials[0]}

        return draw

    @property
    def tracer(self) -> str | None:
        """Its operations are followed by PyTorch's own hooks."""
        return "torch"

    def replayed(self, dataset: Any, seed: int, tell: Callable[[str, Any], None]) -> None:
        """One trial that tells of every tensor it releases, while that tensor is what the code made."""
        watch = Watch(seed=seed, steps=self._most_steps, tell=tell)
        self._run(watch, dataset)
        if self.releases == "final":
            for name, tensor in _ends(watch):
                tell(name, tensor)

    @property
    def gradients_told(self) -> bool:
        """Whether the user gave them."""
        return self.own_gradients is not None

    def gradients(self, dataset: Any) -> Any:
        """Per-example gradients: the user's own, or of every weight at its initial value.

        By ``loss``, where it is given; else each comes from a run on a dataset of that one record: as Opacus computes
        it (under ghost clipping, which computes none one by one, it is clipped), or as the loop itself does, the first
        one that it computes.
        """
        if self.own_gradients is not None:
            return self.own_gradients(dataset)
        if self.loss is not None:
            return self._in_form(self._by_loss(self.loss, dataset), dataset)
        records = records_of(dataset)
        good = records is not None and records <= MOST_RECORDS
        require("dataset", good, f"of a known number of records, at most {MOST_RECORDS}, for their gradients", records)
        rows = [self._sample(one_record(dataset, index)) for index in range(records or 0)]
        again = self._sample(one_record(dataset, 0), first_seed=MOST_EMPTY)
        if not all(np.allclose(rows[0][name], again[name], rtol=1e-3, atol=1e-6) for name in again):
            raise ValueError(f"the gradients of {self.name} change from trial to trial (dropout, augmentation).")
        return self._in_form({name: np.stack([row[name] for row in rows]) for name in rows[0]}, dataset)

    def _in_form(self, rows: dict[str, np.ndarray], dataset: Any) -> dict[str, np.ndarray]:
        """Rows for every tensor that is released: a released model has buffers, too."""
        if self.releases != "final":
            return rows
        released = self._release(self._watched(dataset, 0))
        if not rows.keys() <= released.keys():
            raise ValueError(f"{self.name} gives back something else than the weights whose gradients are known.")
        records = len(next(iter(rows.values())))
        return {name: rows.get(name, np.zeros((records, *part.shape), np.float32)) for name, part in released.items()}

    def _by_loss(self, loss: Callable[..., Any], dataset: Any) -> dict[str, np.ndarray]:
        """By torch.func, of the model that the training calls, at its initial weights."""
        watch = Watch(seed=0, steps=math.inf, until_called=True)
        self._run(watch, dataset)
        model = getattr(watch.model, "_module", watch.model)
        if model is None:
            raise GradientsError(f"loss= of {self.name!r} needs a module that the training calls; it calls none.")
        try:
            found = loss_gradients(copy.deepcopy(model), loss, dataset)
        except Exception as error:
            raise GradientsError(
                f"loss= of {self.name!r}: {error} It is called as loss(outputs, target) where records are pairs "
                "(inputs, target), else as loss(model, batch), with a batch of one record."
            ) from error
        names, parameters = watch.trained
        own = {id(p): name for name, p in model.named_parameters()}
        records = len(next(iter(found.values())))
        return {
            name: found[own[id(p)]] if id(p) in own else np.zeros((records, *p.shape), np.float32)
            for name, p in zip(names, parameters, strict=True)
        }

    def _sample(self, dataset: Any, *, first_seed: int = 0) -> dict[str, np.ndarray]:
        """The gradient of the one record, from the first run whose batch holds it."""
        zero: dict[str, np.ndarray] | None = None
        for seed in range(first_seed, first_seed + MOST_EMPTY):
            watch = Watch(seed=seed, steps=1, samples=True)
            try:
                self._run(watch, dataset)
            except Exception as error:
                raise ValueError(f"{self.name} does not run on one record alone: {error}") from error
            if watch.first_gradient is not None:
                row = dict(zip(watch.trained[0], watch.first_gradient, strict=True))
                # an empty batch has a loss, too: 0, or NaN where it is a mean
                if all(np.isfinite(part).all() for part in row.values()):
                    if any(part.any() for part in row.values()):
                        return row
                    zero = row
            elif watch.samples is not None:
                if all(len(sample) for sample in watch.samples):
                    return {name: own[0] for name, own in zip(watch.names, watch.samples, strict=True)}
            elif watch.model is not None:
                break
        if zero is not None:
            return zero
        raise ValueError(f"{self.name} does not tell its per-example gradients.")

    def history(self, dataset: Any) -> list[Entry]:
        """(noise multiplier, rate, steps) as the accountants of one run on this dataset keep them."""
        if isinstance(dataset, Neighbours):
            raise TypeError("history(dataset) reads one dataset, got a pair; ask for pair.without or pair.with_record.")
        return [(float(noise), float(rate), int(steps)) for book in self._books(dataset) for noise, rate, steps in book]

    def claim(self, neighbours: Neighbours, *, deltas: Sequence[float] | None = None) -> Claim:
        """What the training's own Opacus accountant promises for what is released.

        Without ``deltas`` its history, judged exactly: every (noise multiplier, rate, steps) composed. With them what
        it prints, ``get_epsilon`` at each delta. One run is made on each dataset; where the two accounts differ (the
        rate is 1/len(loader)) the claim is the weaker one: the smaller noise, larger rate and more steps, or
        the larger epsilons.
        """
        if not isinstance(neighbours, Neighbours):
            raise TypeError(
                f"claim(pair) reads both datasets of a pair, got {type(neighbours).__name__}; "
                "build one with mechanisms.add_record(dataset, record)."
            )
        unit = "step" if self.releases == "update" else "training"
        sides = (neighbours.without, neighbours.with_record)
        if deltas is None:
            histories = [self.history(side) for side in sides]
            entries, note = _weaker(histories), _note(*histories)
            source = f"the accountant of {self.name}, Opacus {_version('opacus')}, composed by this package{note}"
            return claim_from_history(entries, relation=neighbours.relation, unit=unit, source=source)
        require("deltas", len(deltas) and all(0 < delta < 1 for delta in deltas), "numbers in (0, 1)", deltas)
        relation = neighbours.relation
        require("relation", relation != "substitution", "one that Opacus's accountants speak about", relation)
        books, printed = zip(*(self._printed(side, deltas) for side in sides), strict=True)
        # an accountant may print an epsilon below 0, which promises what 0 does
        points = list(zip(np.max(printed, axis=0, initial=0.0).tolist(), deltas, strict=True))
        source = f"get_epsilon of the accountant of {self.name}, Opacus {_version('opacus')}{_note(*books)}"
        return claim_from_table(points, relation=relation, unit=unit, source=source)

    def _books(self, dataset: Any) -> list[Any]:
        return [accountant.history for accountant in self._accountants(dataset)]

    def _printed(self, dataset: Any, deltas: Sequence[float]) -> tuple[list[Entry], list[float]]:
        """The history of the one accountant, and its epsilons."""
        found = self._accountants(dataset)
        require("train", len(found) == 1, "a training with one accountant, to be asked for its epsilon", len(found))
        with quiet():
            return found[0].history, [float(found[0].get_epsilon(delta)) for delta in deltas]

    def _accountants(self, dataset: Any) -> list[Any]:
        watch = Watch(seed=0, steps=self._most_steps, accounts=True)
        self._run(watch, dataset)
        counted = [accountant for accountant in watch.accountants if accountant.history]
        if not counted:
            raise ValueError(
                f"{self.name} made no Opacus accountant that counted a step; state the claim yourself: "
                "guarantees.poisson_training(...), claim_from_history(...), claim_from_table(...)."
            )
        return counted

    @property
    def _most_steps(self) -> float:
        return {"update": 1, "transcript": self.steps or math.inf, "final": 0}[self.releases]

    def _run(self, watch: Watch, dataset: Any) -> None:
        with quiet():
            try:
                watch.run(self.train, dataset)
            except ImportError as error:
                if "torchcsprng" not in str(error):
                    raise
                raise ImportError(
                    "secure_mode=True draws from torchcsprng, which is not installed and is built for few versions of "
                    f"PyTorch (this is {_version('torch')}); audit with secure_mode=False, which differs in the "
                    "generator and in summing four draws for one."
                ) from error

    def _watched(self, dataset: Any, seed: int) -> Watch:
        watch = Watch(seed=seed, steps=self._most_steps)
        self._run(watch, dataset)
        if watch.never_began:
            raise ValueError(
                f"{self.name} builds modules but neither calls one, as module(x), nor builds an optimizer of "
                "torch.optim: where its training begins, and with it the trial's own randomness, cannot be seen."
            )
        return watch

    def _release(self, watch: Watch) -> dict[str, np.ndarray]:
        if self.releases == "final":
            return _final(watch)
        wanted = self.steps or 1
        if len(watch.updates) < wanted:
            raise ValueError(
                f"{self.name} took {len(watch.updates)} steps with optimizers of torch.optim, {wanted} were to be "
                "released; a loop that updates weights by hand is audited by what it gives back: releases='final'."
            )
        if self.releases == "update":
            return dict(zip(watch.names, watch.updates[0], strict=True))
        parts = zip(*watch.updates, strict=True)
        return {name: np.stack(part) for name, part in zip(watch.names, parts, strict=True)}


@checked
def torch_training(
    train: Callable[[Any, int], Any],
    *,
    releases: Releases = "update",
    steps: int | None = None,
    workers: int = 0,
    timeout: AboveZero = 60.0,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    gradients: Callable[[Any], Any] | None = None,
    loss: Callable[..., Any] | None = None,
) -> TorchTraining:
    """Audit ``train(dataset, seed)``, a function of the user's that builds model, optimizer and loader and trains.

    An update is the gradient with which the optimizer steps, after clipping and noise: what the claim speaks about; all
    that Adam or a schedule makes of it is post-processing. Final weights are those of the model that ``train`` gives
    back,
    with its buffers, or else of its optimizer, as start minus end; anything else that it gives back (tensors, arrays,
    dicts of them) is released as it is.

    Initial weights are the same in every trial, drawn from fixed streams while modules are built; from the first
    optimizer on PyTorch, NumPy, ``random``, and with them loaders and Opacus, follow the trial's seed. A generator that
    ``train`` seeds itself follows what it was given: the trial's seed is handed over for that. Random numbers
    from elsewhere (``secure_mode``, a GPU's atomics) are audited all the same, but no trial can be repeated.

    Args:
      train: what is audited. With ``workers`` it must be importable.
      releases: the first ``"update"`` (the training is stopped there), the ``"transcript"`` of all updates, or the
        ``"final"``
        weights. An update is judged against one step's claim, the others against the whole training's.
      steps: ends a transcript early.
      workers: spawned processes that train; 0 trains here.
      timeout: seconds after which a worker counts as stuck.
      clip: the bound that it clips to, where it does; with ``noise_multiplier`` diagnoses can ask about its noise.
      noise_multiplier: deviation of its noise over ``clip``.
      gradients: ``gradients(dataset)``, its per-example gradients (records, coordinates), not clipped: scores and
        diagnoses read them, nothing else does. Without it they come from ``loss``, or else from runs on one record
        each: as Opacus computes them, or as the first backward, ``autograd.grad`` or ``vmap(grad)`` of the loop does.
      loss: ``loss(outputs, target)`` where records are pairs (inputs, target), otherwise ``loss(model, batch)``: with
        it torch.func takes the gradients of the model that the training calls, at its initial weights.

    Returns:
      A mechanism for ``run_audit`` that trains once for every seed.

    Raises:
      ValueError: an argument is out of range.
      TypeError: ``train`` is a model, not a function that trains one.

    Examples:
      >>> import mechanisms
      >>> def train(dataset, seed):
      ...     raise NotImplementedError("build the model, the optimizer and the loader here, and train")
      >>> mechanisms.torch_training(train, releases="transcript", steps=2).kind
      'transcript'
    """
    return TorchTraining(
        train,
        releases=releases,
        steps=steps,
        workers=workers,
        timeout=timeout,
        clip=clip,
        noise_multiplier=noise_multiplier,
        own_gradients=gradients,
        loss=loss,
    )


def one_record(dataset: Any, index: int) -> Any:
    """The dataset that holds one record of another and has its type, where that can be built."""
    from torch.utils.data import Subset, TensorDataset

    if isinstance(dataset, TensorDataset):
        return TensorDataset(*(tensor[index : index + 1] for tensor in dataset.tensors))
    if is_torch_dataset(dataset):
        return Subset(dataset, [index])
    if isinstance(dataset, list):
        return dataset[index : index + 1]
    return jax.tree.map(lambda column: column[index : index + 1], dataset)


def _require_one_form(first: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Every trial releases the same tensors, each of the same shape."""
    if extra := [name for name in other if name not in first]:
        raise ValueError(f"a trial releases {', '.join(extra)}, which the first trial does not.")
    if missing := [name for name in first if name not in other]:
        raise ValueError(f"the first trial releases {', '.join(missing)}, which another trial does not.")
    for name, part in first.items():
        shape = other[name].shape
        if shape != part.shape:
            rounds = shape[1:] == part.shape[1:] and shape[:1] != part.shape[:1]
            hint = "; if the number of steps varies, steps= ends a transcript early" if rounds else ""
            raise ValueError(f"every trial must release {name} in one shape, got {shape} after {part.shape}{hint}.")


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _note(without: list[Entry], with_record: list[Entry]) -> str:
    """Says so where the first rates differ, to whoever asked for the claim."""
    return rates_note(without[0][1], with_record[0][1], stacklevel=3)


def _weaker(histories: list[list[Entry]]) -> list[Entry]:
    """An account that promises no more than either: entry by entry less noise, more often, for longer."""
    one, other = histories
    if len(one) != len(other):
        raise ValueError(
            f"the accounts of the two datasets have {len(one)} and {len(other)} entries and cannot be compared: {one}, "
            f"{other}; state the claim with guarantees.claim_from_history."
        )
    return [(min(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])) for a, b in zip(one, other, strict=True)]


def _equal(one: list[Any], other: list[Any]) -> bool:
    import torch

    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _ends(watch: Watch) -> list[tuple[str, Any]]:
    """The weights and buffers of the model at its end; or what was given back instead."""
    model = watch.released
    if model is None and watch.given is not None:
        return leaves(watch.given)
    if model is None:
        return list(zip(watch.names, watch.parameters, strict=True))
    state = [*model.named_parameters(), *model.named_buffers()]
    return [(plain_name(name), tensor) for name, tensor in state if tensor.is_floating_point()]


def _final(watch: Watch) -> dict[str, np.ndarray]:
    """Start minus end of every weight that is trained, the buffers as they are; or what was given back instead."""
    ends = _ends(watch)
    if watch.released is None and watch.given is not None:
        return {name: host_array(leaf).astype(np.float32) for name, leaf in ends}
    if not ends:
        raise ValueError("the training gave back nothing and built no optimizer of torch.optim: nothing is released.")
    start = {id(p): before for p, before in zip(watch.parameters, watch.start, strict=True)}
    moved = {name: start[id(end)] - end if id(end) in start else end for name, end in ends}
    return {name: tensor.detach().cpu().float().numpy().copy() for name, tensor in moved.items()}
