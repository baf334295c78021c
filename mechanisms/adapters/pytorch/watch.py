"""One run of a user's PyTorch training, watched from outside: seeded, stopped, and its updates written down."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.adapters.pytorch import streams
from mechanisms.adapters.pytorch.optimizer_steps import Steps, watching_gradients
from mechanisms.adapters.watched_calls import replaced
from mechanisms.networks import INITIAL_SEED

if TYPE_CHECKING:
    from mechanisms.adapters.pytorch.early_draws import EarlyDraws

BUILDING = ("__init__", "create_accountant")
"""Functions of Opacus's accountants that are also on the way when an engine makes its own."""


class Enough(BaseException):
    """All steps that were asked for are taken. Not an Exception: a user's ``except Exception`` must not catch it."""


class Watch:
    """What a run showed. Everything is found through PyTorch's own hooks: the user's code stays as it is.

    - Modules are built from fixed streams, one for each module in its order, until the first optimizer is built or
      the first module called: initial weights are the same in every trial and on both datasets. From then on every
      generator follows the trial's seed, and so do PyTorch's draws before that which make no weights.
    - ``updates``: what the steps of an optimizer apply (``Steps``), at most ``steps`` times: then the run is
      ended, unless that is 0, which asks for none. Under Opacus that is the optimizer inside its
      own, so they are clipped, noised and scaled; physical batches that it only accumulates are not steps.
    - ``tell`` is told of the same updates as tensors, by name.
    - ``accountants``: those of Opacus that count the steps; ``samples``: its per-example gradients at the first
      step. Both only where they are asked for.
    - ``first_gradient``, asked for with ``samples``: where Opacus computes none, the first gradient that the loop
      computes, by whatever means; the run is ended there.
    - ``until_called`` ends the run when the model is called, before anything is trained.
    """

    def __init__(
        self,
        seed: int,
        *,
        steps: float,
        accounts: bool = False,
        samples: bool = False,
        until_called: bool = False,
        tell: Callable[[str, Any], None] | None = None,
    ):
        self.seed, self.steps, self._tell = seed, steps, tell
        self._asks = {"accounts": accounts, "samples": samples, "called": until_called}
        self.updates: list[list[Any]] = []
        self.samples: list[Any] | None = None
        self.first_gradient: list[Any] | None = None
        self.accountants: list[Any] = []
        self.start: list[Any] = []
        self.parameters: list[Any] = []
        self.model: Any = None
        self.given: Any = None
        self._owned: set[int] = set()
        self._modules: list[weakref.ref[Any]] = []
        self._named: dict[int, str] = {}
        self._built = 0
        self._switched = False
        self._early: EarlyDraws | None = None
        self._own_stream: Any = None
        self._in_own_stream = False
        self._forwards: Any = None
        self._stepped: list[int] = []
        self._optimizer_steps = Steps(self.parameters, begun=self._step, applied=self._applied if steps else None)

    def run(self, train: Callable[[Any, int], Any], dataset: Any) -> None:
        """Call ``train(dataset, seed)``; ``given`` is what it gives back, None where it was stopped."""
        import torch
        from torch.nn.modules.module import register_module_forward_pre_hook

        from mechanisms.adapters.pytorch.early_draws import EarlyDraws

        with contextlib.ExitStack() as stack:
            self._early = EarlyDraws(self._drawn_early, self._weights)
            self._early.begin()
            stack.callback(self._early.end)
            stack.enter_context(after(torch.nn.Module, self._module_is_built))
            stack.enter_context(after(torch.optim.Optimizer, self._optimizer_is_built))
            stack.enter_context(self._optimizer_steps.watched())
            self._forwards = register_module_forward_pre_hook(self._forward)
            stack.callback(self._forwards.remove)
            if self._asks["samples"]:
                stack.enter_context(watching_gradients(self._differentiated, self._mapped))
            if self._asks["accounts"]:
                stack.enter_context(self._watch_accountants())
            stack.enter_context(streams.seeding_what_there_is())
            stack.enter_context(streams.generators_kept())
            streams.seed_all(self.seed)
            with contextlib.suppress(Enough):
                self.given = train(dataset, self.seed)

    @property
    def released(self) -> Any:
        """The module in what was given back: itself, or the first of a tuple; None where there is none."""
        import torch

        parts = self.given if isinstance(self.given, tuple | list) else (self.given,)
        return next((part for part in parts if isinstance(part, torch.nn.Module)), None)

    @property
    def names(self) -> list[str]:
        """Of the optimizer's parameters, as the model that holds them calls them; by their number where none does."""
        known = dict(self._named)
        for module in (self.released, self.model):
            # one that was built before the run, or copied
            if module is not None:
                known = {id(p): plain_name(name) for name, p in module.named_parameters()} | known
        return [known.get(id(p), f"parameter_{i}") for i, p in enumerate(self.parameters)]

    @property
    def trained(self) -> tuple[list[str], list[Any]]:
        """Names and parameters that a gradient is taken of: the optimizer's, or without one the model's."""
        if self.parameters or self.model is None:
            return self.names, self.parameters
        own = [(plain_name(name), p) for name, p in self.model.named_parameters() if p.requires_grad]
        return [name for name, _ in own], [p for _, p in own]

    @property
    def never_began(self) -> bool:
        """Whether modules were built, and all random numbers after that are still those that build modules."""
        return self._built > 0 and not self._switched and not self._in_own_stream

    @property
    def taken(self) -> int | None:
        """Steps of the one optimizer; None where none or several were seen to step."""
        return len(self._stepped) if len(set(self._stepped)) == 1 else None

    def _switch(self) -> None:
        if self._switched:
            return
        self._follow_own_seed()
        self._switched = True
        if self._early is not None:
            self._early.end()

    def _follow_own_seed(self) -> None:
        """The trial's stream from its beginning, or from where modules that were built last left it."""
        if self._own_stream is not None:
            streams.restore(self._own_stream)
        elif not self._in_own_stream:
            streams.seed_all(self.seed)
        self._own_stream, self._in_own_stream = None, True

    def _drawn_early(self) -> None:
        """A draw that gives no module its weights: a batch, or noise, of a loop that has no optimizer."""
        import torch

        fixed = self._built and torch.default_generator.initial_seed() == streams.stream_of(
            INITIAL_SEED + self._built - 1
        )
        if fixed and not self._switched and not self._in_own_stream:
            self._follow_own_seed()

    def _weights(self) -> list[Any]:
        # one of them may only just be in construction
        built = [module for ref in self._modules if (module := ref()) is not None]
        return [p for module in built for p in vars(module).get("_parameters", {}).values() if p is not None]

    def _module_is_built(self, module: Any) -> None:
        # weakly: a training may build and drop many
        self._modules.append(weakref.ref(module))
        if not self._switched:
            if self._in_own_stream:
                self._own_stream, self._in_own_stream = streams.states(), False
            streams.seed_all(INITIAL_SEED + self._built)
            self._built += 1

    def _optimizer_is_built(self, optimizer: Any) -> None:
        named = _names_in_trees([module for ref in self._modules if (module := ref()) is not None])
        for p in _parameters(optimizer):
            if id(p) not in self._owned:
                self._owned.add(id(p))
                if id(p) in named:
                    self._named[id(p)] = named[id(p)]
                if p.requires_grad:
                    self.parameters.append(p)
                    self.start.append(p.detach().clone())
        self._optimizer_steps.built(optimizer)
        self._switch()

    def _forward(self, module: Any, _: Any) -> None:
        if self.model is None and any(True for _ in module.parameters()):
            self.model = module
            # a hook on every call of every module costs a fifth of a small training
            self._forwards.remove()
            if self._asks["called"]:
                raise Enough
        if not self._switched and self._built and streams.others_drew(INITIAL_SEED + self._built - 1):
            raise ValueError(
                "numbers of np.random or random are drawn after a module is built and before it is called or an "
                "optimizer is built, so the audit cannot tell whether they make initial weights or batches. Draw them "
                "from np.random.default_rng(seed), with the seed that the training is given."
            )
        self._switch()

    def _differentiated(self, grad: Callable[..., Any], tensors: Any, weights: Any) -> None:
        """The gradient that the loop is about to compute; Opacus's hooks would count it twice."""
        _, parameters = self.trained
        if not parameters or any(hasattr(p, "grad_sample") for p in parameters):
            return
        with contextlib.suppress(RuntimeError):
            found = grad(tensors, parameters, weights, retain_graph=True, allow_unused=True)
            if any(part is not None for part in found):
                self._keep([p.new_zeros(p.shape) if g is None else g for g, p in zip(found, parameters, strict=True)])

    def _mapped(self, leaves: list[Any]) -> None:
        """What vmap gave for a batch of one record, if it is a gradient of every parameter in order."""
        _, parameters = self.trained
        shapes = [(1, *p.shape) for p in parameters]
        for first in range(len(leaves) - len(shapes) + 1) if shapes else ():
            own = leaves[first : first + len(shapes)]
            if [tuple(leaf.shape) for leaf in own] == shapes:
                self._keep([leaf[0] for leaf in own])

    def _keep(self, gradient: list[Any]) -> None:
        self.first_gradient = [part.detach().cpu().float().numpy().copy() for part in gradient]
        raise Enough

    def _step(self, optimizer: Any) -> None:
        self._stepped.append(id(optimizer))
        if not self.steps:
            return
        if {id(p) for p in _parameters(optimizer)} != self._owned:
            raise ValueError(
                "the optimizers of this training step on different parameters, so its updates differ in shape; "
                "audit the final weights instead: releases='final'."
            )
        if self._asks["samples"] and not self.updates:
            self.samples = _samples(self.parameters)

    def _applied(self, update: list[Any]) -> None:
        if self._tell is not None:
            for name, part in zip(self.names, update, strict=True):
                if part is not None:
                    self._tell(f"{name} of step {len(self.updates) + 1}", part)
        self.updates.append([_array(part, p) for part, p in zip(update, self.parameters, strict=True)])
        if len(self.updates) >= self.steps:
            raise Enough

    def _watch_accountants(self) -> contextlib.AbstractContextManager[None]:
        try:
            from opacus.accountants.accountant import IAccountant
        except ImportError:
            return contextlib.nullcontext()
        return after(IAccountant, self._accountant_is_built)

    def _accountant_is_built(self, accountant: Any) -> None:
        if not _made_for_an_answer():
            self.accountants.append(accountant)


def plain_name(name: str) -> str:
    """A tensor's name without what Opacus and DistributedDataParallel put in front of it."""
    for wrapper in ("_module.", "module."):
        name = name.removeprefix(wrapper)
    return name


def _names_in_trees(modules: list[Any]) -> dict[int, str]:
    """Names of all parameters in the trees that these modules form, whether or not one was called.

    Every tree but the first that has parameters puts its number in front: two models may use the same names.
    """
    inner = {id(child) for module in modules for child in module.children()}
    known: dict[int, str] = {}
    trees = 0
    for root in modules:
        if id(root) in inner:
            continue
        new = {id(p): plain_name(name) for name, p in root.named_parameters() if id(p) not in known}
        known |= {key: f"module_{trees}.{name}" if trees else name for key, name in new.items()}
        trees += bool(new)
    return known


@contextlib.contextmanager
def after(owner: type, tell: Callable[[Any], None]) -> Iterator[None]:
    """Tell of every object of a class when its ``__init__`` is done."""
    original: Any = owner.__init__

    @functools.wraps(original)
    def watched(self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        tell(self)

    with replaced(owner, "__init__", watched):
        yield


def _made_for_an_answer() -> bool:
    """Whether an accountant of Opacus makes this one to find an answer: it counts no step that was taken.

    PRV's ``get_epsilon`` asks RDP how far its grid must reach; ``make_private_with_epsilon`` tries noise multipliers.
    """
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("opacus.accountants.") and frame.f_code.co_name not in BUILDING:
            return True
    return False


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _array(part: Any, parameter: Any) -> np.ndarray:
    """A parameter's part of an update; zero where nothing came."""
    if part is None:
        return np.zeros(tuple(parameter.shape), np.float32)
    # a copy: optimizers and zero_grad write into the same memory
    return part.detach().cpu().float().numpy().copy()


def _samples(parameters: list[Any]) -> list[Any] | None:
    """Opacus's per-example gradients of the batch; where it computes none one by one, its clipped sum as one row."""
    import torch

    found: list[Any] = []
    for parameter in parameters:
        sample, total = getattr(parameter, "grad_sample", None), getattr(parameter, "summed_grad", None)
        if isinstance(sample, list):
            sample = torch.cat(sample) if sample else None
        if sample is None and total is not None:
            sample = total.view_as(parameter)[None]
        if sample is None:
            return None
        found.append(sample.detach().cpu().float().numpy().copy())
    return found
