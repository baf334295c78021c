"""What a training's own loop computes: what each step of an optimizer applies to the weights, and its gradients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mechanisms.adapters.watched_calls import removed_after, replaced


class Steps:
    """Tells of the update of every step, as tensors, one for each of ``parameters`` (None: nothing came).

    - Where an optimizer of torch.optim changes the weights, it is the gradient that this optimizer reads: after hooks,
      after what a subclass does in its own ``step``, after a closure.
    - Where a step changes the weights otherwise, alone or besides, it is the change, before minus after: noise may
      be anywhere in it. A ``step`` around one of torch.optim that reads and changes nothing (it accumulates) is none.

    ``parameters`` may grow; ``begun`` is told of an optimizer when its step begins.
    """

    def __init__(
        self, parameters: list[Any], *, begun: Callable[[Any], None], applied: Callable[[list[Any]], None] | None
    ):
        self._parameters, self._begun, self._applied = parameters, begun, applied
        self._patches = contextlib.ExitStack()
        self._patched: set[tuple[type, str]] = set()
        self._built = self._depth = 0
        self._plain = self._touched = False
        self._before: list[Any] = []
        self._last: list[np.ndarray] = []
        self._reads: list[list[Any]] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While this is entered."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        hooks = [register_optimizer_step_pre_hook(self._begin), register_optimizer_step_post_hook(self._end)]
        with self._patches, removed_after(*hooks):
            yield

    def built(self, optimizer: Any) -> None:
        """An optimizer was built, and is about to be used."""
        self._built += 1
        for name, patch in (("_init_group", self._before_it_reads), ("step", self._after_it_changed)):
            owner = _torch_owner(type(optimizer), name)
            if self._applied is not None and owner is not None and (owner, name) not in self._patched:
                self._patched.add((owner, name))
                self._patches.enter_context(replaced(owner, name, patch(vars(owner)[name])))

    def _begin(self, optimizer: Any, *_: Any) -> None:
        if _is_opacus(optimizer):
            return
        self._depth += 1
        if self._depth > 1:
            return
        self._begun(optimizer)
        self._plain = (
            type(optimizer).step.__module__.startswith("torch.optim.")
            and _torch_owner(type(optimizer), "_init_group") is not None
            and not optimizer._optimizer_step_post_hooks
        )
        self._reads, self._touched = [], False
        if not self._plain and self._applied is not None:
            self._before = [p.detach().clone() for p in self._parameters]
            self._last = self._weights()

    def _end(self, optimizer: Any, *_: Any) -> None:
        if _is_opacus(optimizer):
            return
        self._depth -= 1
        if self._depth or self._plain or self._applied is None:
            return
        self._compare()
        if self._touched:
            self._applied([before - p.detach() for before, p in zip(self._before, self._parameters, strict=True)])
            return
        for read in self._reads:
            self._applied(read)
        might_accumulate = self._built > 1 or _torch_owner(type(optimizer), "_init_group") is not None
        if not self._reads and not might_accumulate:
            self._applied([None] * len(self._parameters))

    def _before_it_reads(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(optimizer: Any, group: Any, *given: Any, **named: Any) -> Any:
            if self._applied is not None and self._depth and group is optimizer.param_groups[0]:
                if self._plain:
                    self._applied([p.grad for p in self._parameters])
                else:
                    self._compare()
                    self._reads.append([None if p.grad is None else p.grad.detach().clone() for p in self._parameters])
            return original(optimizer, group, *given, **named)

        return read

    def _after_it_changed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        hooked = getattr(original, "hooked", False)
        inner: Any = original.__wrapped__ if hooked else original  # pyright: ignore[reportFunctionMemberAccess]

        @functools.wraps(inner)
        def step(optimizer: Any, *given: Any, **named: Any) -> Any:
            out = inner(optimizer, *given, **named)
            if not self._plain and self._depth:
                self._last = self._weights()
            return out

        if not hooked:
            return step
        # between the hooks of the optimizer, which PyTorch puts around a class's step once
        around: Any = torch.optim.Optimizer.profile_hook_step(step)
        around.hooked = True
        return around

    def _weights(self) -> list[np.ndarray]:
        return [p.detach().cpu().float().numpy().copy() for p in self._parameters]

    def _compare(self) -> None:
        """Whether anything but an optimizer of torch.optim has changed the weights since it last did."""
        now = self._weights()
        self._touched |= not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self._last, now, strict=True))


def _is_opacus(optimizer: Any) -> bool:
    """Whether it is Opacus's, around the one that steps."""
    return hasattr(optimizer, "original_optimizer")


def _torch_owner(kind: type, name: str) -> type | None:
    """The class that has torch.optim's own function of this name; None where there is none."""
    for owner in kind.__mro__:
        function = vars(owner).get(name)
        if function is not None and function.__module__.startswith("torch.optim.") and owner.__name__ != "Optimizer":
            return owner
    return None


@contextlib.contextmanager
def watching_gradients(differentiated: Callable[..., None], mapped: Callable[[list[Any]], None]) -> Iterator[None]:
    """Tell of every tensor before it is differentiated, and of what every outermost vmap around a grad gave.

    ``differentiated(grad, tensors, weights)``, where ``grad`` is PyTorch's own ``torch.autograd.grad`` and ``weights``
    are the tensors' own where given; ``mapped(leaves)``. Code that imported these functions earlier is seen, too, but
    for ``from torch.autograd import grad``.
    """
    import torch
    from torch._functorch import apis, eager_transforms  # pyright: ignore[reportPrivateImportUsage]
    from torch.utils import _pytree

    backward, grad = torch.autograd.backward, torch.autograd.grad
    depth = {"vmap": 0, "grad": 0}

    def told_backward(tensors: Any, grad_tensors: Any = None, *given: Any, **named: Any) -> Any:
        differentiated(grad, tensors, grad_tensors)
        return backward(tensors, grad_tensors, *given, **named)

    def told_grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *given: Any, **named: Any) -> Any:
        if not depth["vmap"]:
            differentiated(grad, outputs, grad_outputs)
        return grad(outputs, inputs, grad_outputs, *given, **named)

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:
            depth["grad"] += 1
            return original(*given, **named)

        return counting

    def told_vmap(*given: Any, **named: Any) -> Any:
        before = depth["grad"]
        depth["vmap"] += 1
        try:
            found = vmap(*given, **named)
        finally:
            depth["vmap"] -= 1
        if not depth["vmap"] and depth["grad"] > before:
            mapped([leaf for leaf in _pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)])
        return found

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.autograd, "backward", told_backward))
        stack.enter_context(replaced(torch.autograd, "grad", told_grad))
        # private names, which a later PyTorch may lack: then only backward and autograd.grad are seen
        vmap: Any = getattr(apis, "vmap_impl", None)
        inner = [name for name in ("grad_impl", "grad_and_value_impl") if hasattr(eager_transforms, name)]
        if vmap is not None and inner:
            stack.enter_context(replaced(apis, "vmap_impl", told_vmap))
            for name in inner:
                stack.enter_context(replaced(eager_transforms, name, counted(getattr(eager_transforms, name))))
        yield
