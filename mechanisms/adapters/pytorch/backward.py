"""The gradients that a user's own loop computes: by backward, by autograd.grad, or by torch.func's vmap(grad)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


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
        stack.enter_context(_replaced(torch.autograd, "backward", told_backward))
        stack.enter_context(_replaced(torch.autograd, "grad", told_grad))
        # private names, which a later PyTorch may lack: then only backward and autograd.grad are seen
        vmap: Any = getattr(apis, "vmap_impl", None)
        inner = [name for name in ("grad_impl", "grad_and_value_impl") if hasattr(eager_transforms, name)]
        if vmap is not None and inner:
            stack.enter_context(_replaced(apis, "vmap_impl", told_vmap))
            for name in inner:
                stack.enter_context(_replaced(eager_transforms, name, counted(getattr(eager_transforms, name))))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)
