"""How the variance of noise goes through an operation: exactly for linear ones, as NaN ("unknown") for others."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_map

from mechanisms.adapters.pytorch.replay.cells import seen_through, shadow
from mechanisms.adapters.pytorch.replay.operation import Operation

ORTHOGONAL = 1e-4
"""Cosine below which two rows of a matrix are at right angles, up to rounding."""
ADDING = frozenset(("add", "add_", "sub", "sub_", "rsub"))
SCALING = frozenset(("mul", "mul_", "div", "div_"))
SAME = frozenset(
    [
        "clone",
        "detach",
        "_to_copy",
        "copy_",
        "contiguous",
        "lift_fresh",
        "alias",
        "neg",
        "neg_",
        "abs",
        "abs_",
        "_unsafe_view",
        "squeeze_",
        "unsqueeze_",
    ]
)
"""What leaves the deviation of each element as it is."""
MOVING = frozenset(
    [
        "cat",
        "stack",
        "index_select",
        "index",
        "index_put",
        "index_fill",
        "gather",
        "repeat",
        "flip",
        "roll",
        "slice_scatter",
        "select_scatter",
        "masked_fill",
        "where",
        "constant_pad_nd",
        "expand_copy",
        "tril",
        "triu",
        "take_along_dim",
        "masked_select",
        "unfold_copy",
    ]
)
"""What moves elements and changes none."""
NEW = frozenset(
    [
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "zero_",
        "fill_",
        "new_empty_strided",
    ]
)
"""What takes a shape and no value from its input."""


def drawn_variance(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Variance of each element of a draw; NaN where it is not written here."""
    if name in ("randn", "randn_like"):
        return 1.0
    if name in ("rand", "rand_like"):
        return 1 / 12
    if name == "uniform_":
        low = args[1] if len(args) > 1 else kwargs.get("from", 0.0)
        high = args[2] if len(args) > 2 else kwargs.get("to", 1.0)
        return (high - low) ** 2 / 12
    return math.nan


def carried(done: Operation) -> torch.Tensor:
    """Variance of the elements of a result of noise and constants."""
    try:
        found = _carried(done)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        found = None
    return torch.full(done.out.shape, math.nan) if found is None else found


def _carried(done: Operation) -> Any:
    name, args, shape = done.name, done.args, done.out.shape
    if name in SAME:
        return done.variance(args[1] if name == "copy_" else args[0]).expand(shape)
    if name in ADDING:
        factor = done.kwargs.get("alpha", 1)
        one, other = (args[1], args[0]) if name == "rsub" else (args[0], args[1])
        if _of_one_draw(one, other, done):
            return None
        return _known(one, done) + factor**2 * _known(other, done) + torch.zeros(shape)
    if name in SCALING and len(args) == 2:
        return _scaled(done).expand(shape)
    if name in ("sum", "mean"):
        share = max(1, args[0].numel() // max(1, done.out.numel())) if name == "mean" else 1
        return torch.sum(done.variance(args[0]), *args[1:]) / share**2
    if (moving := name.removesuffix("_")) in MOVING:
        return getattr(torch.ops.aten, moving)(*tree_map(lambda part: _moved(part, done), args), **done.kwargs)
    if name in ("mm", "mv", "bmm", "dot"):
        noisy = [_is_noisy(part, done) for part in args]
        if sum(noisy) == 1 and _turned(args, noisy, done):
            squares = (_known(part, done) if own else part.float() ** 2 for part, own in zip(args, noisy, strict=True))
            return getattr(torch, name)(*squares)
    return None


def _of_one_draw(one: Any, other: Any, done: Operation) -> bool:
    """Whether two noises may hold the same numbers, as noise and its mean do; separate parts of one tensor do not."""
    left, right = (done.cell(part) if isinstance(part, torch.Tensor) else None for part in (one, other))
    if left is None or right is None or not left.noise or not right.noise or not left.draws & right.draws:
        return False
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return True
    return bool(seen_through(shadow(one, 1.0), other).any())


def _turned(args: tuple[torch.Tensor, ...], noisy: list[bool], done: Operation) -> bool:
    """Whether a product leaves the coordinates of even noise independent: a matrix with orthogonal rows or columns."""
    constant, own = args[noisy.index(False)].float(), done.variance(args[noisy.index(True)])
    if constant.dim() < 2:
        return True
    matrix = constant.mT if noisy[0] else constant
    gram = matrix @ matrix.mT
    apart = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    alone = gram.size(-1) == 1
    return alone or bool(own.min() == own.max() and apart.abs().max() <= ORTHOGONAL * gram.abs().max())


def _moved(part: Any, done: Operation) -> Any:
    """The variance of what is moved; numbers that are filled in have none."""
    if isinstance(part, float):
        return 0.0
    return _known(part, done) if _is_real(part) else part


def _is_real(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.is_floating_point()


def _is_noisy(part: Any, done: Operation) -> bool:
    return isinstance(part, torch.Tensor) and bool((done.variance(part) != 0).any())


def _known(part: Any, done: Operation) -> Any:
    return done.variance(part) if isinstance(part, torch.Tensor) else 0.0


def _scaled(done: Operation) -> torch.Tensor:
    left, right = (_is_noisy(part, done) for part in done.args)
    divides = done.name.startswith("div")
    if left == right or (right and divides):
        raise ValueError
    noisy, factor = done.args if left else done.args[::-1]
    square = torch.as_tensor(factor).detach().float() ** 2
    return done.variance(noisy) / square if divides else done.variance(noisy) * square
