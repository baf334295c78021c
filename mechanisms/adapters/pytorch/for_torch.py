"""A user's own PyTorch training, with Opacus or without: their model, optimizer, loader and loop, as they stand."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import multiprocessing
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpsgd_audit.spelling import counted
from guarantees.answers import answers
from guarantees.checks import AboveZero, FromZero, Positive, checked, require, require_takes
from guarantees.claim import Claim
from guarantees.families.accountant_tables import Entry
from mechanisms.adapters.pytorch.batches_seen import SAYS, AfterTheStep, batches_seen
from mechanisms.adapters.pytorch.for_opacus import quiet
from mechanisms.adapters.pytorch.opacus_claims import searches_kept
from mechanisms.adapters.pytorch.record_gradients import gradients_by_loss, gradients_by_runs
from mechanisms.adapters.pytorch.threads import Threads, threads
from mechanisms.adapters.pytorch.training_accounts import Accounts, version_of
from mechanisms.adapters.pytorch.watch import Watch, plain_name
from mechanisms.adapters.stated_by_user import StatedByUser, stated_functions, stated_numbers
from mechanisms.adapters.worker_time import WORKER_SECONDS, worker_seconds
from mechanisms.contract import Draw, Releases
from mechanisms.names import name_of, place_of
from mechanisms.pairs.lent import copied
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import host_array, leaves

COUNTED = 3
"""Runs whose steps are counted before the weights at the end are judged against a claim about steps."""


@answers(libraries=("torch",), tracer="torch")
@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchTraining(StatedByUser):
    """A user's training in PyTorch: what ``torch_training`` builds."""

    train: Callable[[Any, int], Any] = dataclasses.field(kw_only=False)
    releases: Releases = "update"  # pyright: ignore[reportIncompatibleMethodOverride]
    steps: int | None = None
    workers: FromZero = 0
    timeout: AboveZero = WORKER_SECONDS
    clip: Positive | None = None
    noise_multiplier: Positive | None = None
    own_gradients: Callable[[Any], Any] | None = None
    loss: Callable[..., Any] | None = None

    def __post_init__(self):
        if hasattr(self.train, "parameters"):
            raise TypeError(
                "train must be a function of a dataset and a seed, which builds and trains a model; "
                f"got the model {type(self.train).__name__}."
            )
        require_takes("train", self.train, "dataset", "seed")
        good = self.steps is None or (self.steps >= 1 and self.releases == "transcript")
        require("steps", good, ">= 1, and only with releases='transcript'", self.steps)

    @property
    def name(self) -> str:
        """The function's own name."""
        return name_of(self.train)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Where the function is found, what was told of it, where it is ended, and the versions that train."""
        own: dict[str, Any] = {"train": place_of(self.train)}
        own |= dict(stated_numbers(clip=self.clip, noise_multiplier=self.noise_multiplier))
        own |= stated_functions(gradients=self.own_gradients, loss=self.loss)
        own |= {} if self.steps is None else {"steps": self.steps}
        return own | {library: version_of(library) for library in ("torch", "opacus") if version_of(library)}

    def steps_on(self, dataset: Any) -> int | None:
        """Steps of a run; None where runs take other numbers, or no optimizer of torch.optim takes them, or several."""
        if self.releases != "final":
            return 1 if self.releases == "update" else self.steps
        taken = {self._watched(copied(dataset), seed).taken for seed in range(COUNTED)}
        return taken.pop() if len(taken) == 1 else None

    def seen_on(self, dataset: Any) -> Mapping[str, str]:
        """Its sampler, and the divisor of Opacus's optimizer, as the first step of one run shows them.

        With a warning also whether that optimizer has another clipping norm or noise multiplier than was told, and of
        updates whether the loop changes the weights between steps.
        """
        seen, after = batches_seen(lambda: self._run(Watch(seed=0, steps=1), dataset)), AfterTheStep()
        shown = dict(seen.told)
        if other := seen.contradicts(clip=self.clip, noise_multiplier=self.noise_multiplier):
            warnings.warn(f"{self.name}: {other}.", UserWarning, stacklevel=2)
            shown["contradicted"] = other
        if self.releases == "final":
            return shown
        # what follows the first step may fail, and no trial of an update comes to it
        with after.watched(), contextlib.suppress(Exception):
            self._run(Watch(seed=0, steps=0), dataset)
        if not after.changed:
            return shown
        warnings.warn(f"{self.name}: {SAYS}.", UserWarning, stacklevel=2)
        return {**shown, "after_step": SAYS}

    def prepare(self, dataset: Any) -> Draw:
        """Nothing is shared between trials but the initial weights, which need no sharing."""
        if multiprocessing.parent_process() is not None:
            import torch

            torch.set_num_threads(1)
        first: list[list[Any]] = []
        trained: list[weakref.ref[Any]] = []
        best = Threads()

        def release(seed: int) -> dict[str, np.ndarray]:
            watch = self._watched(dataset, seed)
            if not first:
                first.append(watch.start)
                trained.extend(map(weakref.ref, watch.parameters))
            elif not equal(first[0], watch.start) and any(
                a() is b for a, b in zip(trained, watch.parameters, strict=False)
            ):
                raise ValueError(
                    f"all trials of {self.name} train one model, such as a global one, so each starts where the one "
                    "before it ended; every trial must build a new model, or train a copy (copy.deepcopy)."
                )
            if not equal(first[0], watch.start):
                raise ValueError(
                    f"the weights that {self.name} gives its optimizer differ from trial to trial; every trial must "
                    "build a new model with the same initial weights. Do not draw them with the trial's seed: write "
                    "them in place (torch.nn.init, p.normal_()), or draw them from a generator with a constant seed."
                )
            return self._release(watch)

        def draw(seeds: np.ndarray) -> Any:
            # the first and the last: batches differ in size. A first trial alone is asked for its form
            asked = (seeds[0], seeds[-1]) if first or len(seeds) > 1 else ()
            with quiet(), best.chosen(*(functools.partial(release, int(seed)) for seed in asked)):
                trials = [release(int(seed)) for seed in seeds]
            for trial in trials:
                require_one_form(trials[0], trial)
            return {name: np.stack([trial[name] for trial in trials]) for name in trials[0]}

        return draw

    def replayed(self, dataset: Any, seed: int, tell: Callable[[str, Any], None]) -> None:
        """One trial that tells of every tensor it releases, while that tensor is what the code made."""
        watch = Watch(seed=seed, steps=self._most_steps, tell=tell)
        # who replays it follows what becomes of this very dataset
        self._run_on(dataset, watch)
        if self.releases == "final":
            for name, tensor in ends(watch):
                tell(name, tensor)
        else:
            self._require_steps(watch)

    def gradients(self, dataset: Any) -> Any:
        """Per-example gradients: the user's own, or of every weight at its initial value.

        By ``loss``, where it is given; else each comes from a run on a dataset of that one record: as Opacus computes
        it (under ghost clipping, which computes none one by one, it is clipped), or as the loop itself does, the first
        one that it computes.
        """
        if self.own_gradients is not None:
            return self.own_gradients(copied(dataset))
        if self.loss is not None:
            return self._in_form(gradients_by_loss(self._run, self.loss, dataset, name=self.name), dataset)
        # each run has one record, which several threads would wait for
        with threads(1):
            rows = gradients_by_runs(self._run, dataset, name=self.name)
        return self._in_form(rows, dataset)

    def _in_form(self, rows: dict[str, np.ndarray], dataset: Any) -> dict[str, np.ndarray]:
        """Rows for every tensor that is released: a released model has buffers, too."""
        if self.releases != "final":
            return rows
        released = self._release(self._watched(copied(dataset), 0))
        if not rows.keys() <= released.keys():
            raise ValueError(
                f"{self.name} does not return the weights it trains, so its gradients are not known; return the model."
            )
        records = len(next(iter(rows.values())))
        return {name: rows.get(name, np.zeros((records, *part.shape), np.float32)) for name, part in released.items()}

    def history(self, dataset: Any) -> list[Entry]:
        """(noise multiplier, rate, steps) as the accountants of one run on this dataset keep them."""
        return self._accounts.history(dataset)

    def claim(self, neighbours: Neighbours, *, deltas: Sequence[float] | None = None) -> Claim:
        """What the training's own Opacus accountant promises for what is released.

        Without ``deltas`` its history, judged exactly: every (noise multiplier, rate, steps) composed. With them what
        it prints, ``get_epsilon`` at each delta. One run is made on each dataset; where the two accounts differ (the
        rate is 1/len(loader)) the claim is the weaker one: the smaller noise, larger rate and more steps, or
        the larger epsilons. A warning says so, and also where the divisor of a mean differs or batches are not Poisson.
        """
        return self._accounts.claim(neighbours, deltas=deltas)

    @property
    def _accounts(self) -> Accounts:
        unit = "step" if self.releases == "update" else "training"
        return Accounts(run=self._run, name=self.name, steps=self._most_steps, unit=unit)

    @property
    def _most_steps(self) -> float:
        return {"update": 1, "transcript": self.steps or math.inf, "final": 0}[self.releases]

    def _run(self, watch: Watch, dataset: Any) -> None:
        """One run on a copy, which the training may write into."""
        self._run_on(copied(dataset), watch)

    def _run_on(self, dataset: Any, watch: Watch) -> None:
        with quiet(), searches_kept():
            try:
                watch.run(self.train, dataset)
            except ImportError as error:
                if "torchcsprng" not in str(error):
                    raise
                raise ImportError(
                    "secure_mode=True needs torchcsprng, which is not installed and supports only a few versions of "
                    f"PyTorch (this is {version_of('torch')}); audit with secure_mode=False, which has another "
                    "generator and draws one number where secure mode adds up four."
                ) from error

    def _watched(self, dataset: Any, seed: int) -> Watch:
        watch = Watch(seed=seed, steps=self._most_steps)
        self._run_on(dataset, watch)
        if watch.never_began:
            raise ValueError(
                f"{self.name} builds modules but neither calls one, as module(x), nor builds an optimizer of "
                "torch.optim, so the audit cannot see where its training, and the trial's own randomness, begins."
            )
        return watch

    def _release(self, watch: Watch) -> dict[str, np.ndarray]:
        if self.releases == "final":
            return final(watch)
        self._require_steps(watch)
        if self.releases == "update":
            return dict(zip(watch.names, watch.updates[0], strict=True))
        parts = zip(*watch.updates, strict=True)
        return {name: np.stack(part) for name, part in zip(watch.names, parts, strict=True)}

    def _require_steps(self, watch: Watch) -> None:
        wanted = self.steps or 1
        if len(watch.updates) < wanted:
            raise ValueError(
                f"{self.name} took {counted(len(watch.updates), 'step')} with optimizers of torch.optim, but {wanted} "
                "should be released; if your loop updates weights by hand, audit what it returns: "
                "releases='final'."
            )


@checked
def torch_training(
    train: Callable[[Any, int], Any],
    *,
    releases: Releases = "update",
    steps: int | None = None,
    workers: FromZero = 0,
    timeout: AboveZero | None = None,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    gradients: Callable[[Any], Any] | None = None,
    loss: Callable[..., Any] | None = None,
) -> TorchTraining:
    """Audit ``train(dataset, seed)``, your function that builds model, optimizer and loader and trains.

    An update is the gradient that an optimizer of torch.optim reads, after clipping and noise. The claim is about
    that; what Adam or a schedule makes of it is post-processing. If a step changes the weights itself, as your own
    optimizer may, an update is their change, before minus after. Final weights are start minus end of the model that
    ``train`` returns, with its buffers, or else of the optimizer's parameters. Anything else that ``train`` returns
    (tensors, arrays, dicts of them) is released as it is.

    Initial weights are the same in every trial: while modules are built they are drawn from fixed streams. From the
    first optimizer on PyTorch, NumPy and ``random``, and with them loaders and Opacus, follow the trial's seed. If
    ``train`` makes a generator, seed it with the ``seed`` that it is given. Random numbers from elsewhere
    (``secure_mode``, a GPU's atomics) are audited too, but then no trial can be repeated.

    Args:
      train: what is audited. With ``workers`` it must be importable.
      releases: the first ``"update"`` (the training is stopped there), the ``"transcript"`` of all updates, or the
        ``"final"`` weights. An update is judged against one step's claim, the others against the whole training's.
        A score reads the tensors one after the other, sorted by name: fc.bias comes before fc.weight.
      steps: ends a transcript early.
      workers: spawned processes that train; 0 trains here.
      timeout: seconds after which a worker counts as stuck (60 by default), and 180 more to start, import and
        prepare a side. It needs workers: nothing can end code that runs here.
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
        timeout=worker_seconds(timeout, workers=workers),
        clip=clip,
        noise_multiplier=noise_multiplier,
        own_gradients=gradients,
        loss=loss,
    )


def require_one_form(first: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Every trial releases the same tensors, each of the same shape."""
    if extra := [name for name in other if name not in first]:
        raise ValueError(
            f"a trial releases {', '.join(extra)}, which the first trial does not; every trial must release the same "
            "parts."
        )
    if missing := [name for name in first if name not in other]:
        raise ValueError(
            f"the first trial releases {', '.join(missing)}, which another trial does not; every trial must release "
            "the same parts."
        )
    for name, part in first.items():
        shape = other[name].shape
        if shape != part.shape:
            rounds = shape[1:] == part.shape[1:] and shape[:1] != part.shape[:1]
            hint = (
                "; if the number of steps varies, steps= ends a transcript early, and releases='final' needs none"
                if rounds
                else ""
            )
            raise ValueError(f"every trial must release {name} in one shape, got {shape} after {part.shape}{hint}.")


def equal(one: list[Any], other: list[Any]) -> bool:
    """Whether two lists of tensors are the same."""
    import torch

    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def ends(watch: Watch) -> list[tuple[str, Any]]:
    """The weights and buffers of the model at its end; or what was given back instead."""
    model = watch.released
    if model is None and watch.given is not None:
        return leaves(watch.given)
    if model is None:
        return list(zip(watch.names, watch.parameters, strict=True))
    state = [*model.named_parameters(), *model.named_buffers()]
    return [(plain_name(name), tensor) for name, tensor in state if tensor.is_floating_point()]


def final(watch: Watch) -> dict[str, np.ndarray]:
    """Start minus end of every weight that is trained, the buffers as they are; or what was given back instead."""
    ended = ends(watch)
    if watch.released is None and watch.given is not None:
        return {name: host_array(leaf).astype(np.float32) for name, leaf in ended}
    if not ended:
        raise ValueError(
            "the training releases nothing: it returned None and built no optimizer of torch.optim; return its weights."
        )
    start = {id(p): before for p, before in zip(watch.parameters, watch.start, strict=True)}
    moved = {name: start[id(end)] - end if id(end) in start else end for name, end in ended}
    return {name: tensor.detach().cpu().float().numpy().copy() for name, tensor in moved.items()}
