"""How noise goes through an operation: as sums of independent numbers, or its variance alone; NaN is "unknown"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from mechanisms.adapters.noise_terms import MOST_TERMS, Terms, of_terms
from mechanisms.adapters.pytorch.replay.cells import Operation, shadow
from mechanisms.adapters.pytorch.replay.draws import UNIFORM
from mechanisms.adapters.pytorch.replay.storages import nothing, seen_through, tensors_among

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
        "zeros",
        "ones",
        "full",
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


def drawn_variance(name: str) -> float:
    """Variance of each element of a draw; NaN where it is not written here."""
    if name in ("randn", "randn_like"):
        return 1.0
    if name in UNIFORM:
        return 1 / 12
    return math.nan


def followed(done: Operation) -> Terms | None:
    """A result of noise and constants as a linear map of independent numbers; None where it is none, or too large."""
    try:
        found = _followed(done)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return None
    shape = tuple(done.out.shape)
    if found is None or found.times.shape[:-1] == shape:
        return found
    if found.times[..., 0].size == done.out.numel():
        return found.reshaped(shape)
    return found.scaled(np.ones(shape))


def _followed(done: Operation) -> Terms | None:
    name, args = done.name, done.args
    if name in SAME:
        first = done.terms(args[1] if name == "copy_" else args[0])
        return first and (first.scaled(-1.0) if name.startswith("neg") else first)
    if name in ADDING:
        factor = done.kwargs.get("alpha", 1) * (1 if name.startswith("add") else -1)
        one, other = (_terms(part, done) for part in (args[1::-1] if name == "rsub" else args[:2]))
        added = other and other.scaled(factor)
        return one and added and one.plus(added)
    if name in SCALING and len(args) == 2:
        noisy, factor = _factor(done)
        first = done.terms(noisy)
        return first and first.scaled(factor.double().reciprocal() if name.startswith("div") else factor.double())
    if name in ("sum", "mean"):
        first, share = done.terms(args[0]), _share(done)
        summed = first and first.summed(axes_of(args))
        return summed and summed.scaled(1 / share)
    if (moving := name.removesuffix("_")) in MOVING:
        noisy = [part for part in tensors_among(args) if _is_noisy(part, done)]
        parts = [done.terms(part) for part in noisy]
        if any(part is None for part in parts):
            return None

        def move(arrays: Sequence[np.ndarray | None]) -> Any:
            known = {id(part): torch.as_tensor(array) for part, array in zip(noisy, arrays, strict=True)}
            zeros = tree_map(lambda part: known.get(id(part), _without_noise(part)), args)
            return getattr(torch.ops.aten, moving)(*zeros, **done.kwargs).numpy()

        return of_terms(move, parts)
    return _multiplied(done) if name in ("mm", "mv", "dot") else None


def _multiplied(done: Operation) -> Terms | None:
    """A product of noise with a constant matrix or vector."""
    left, right = done.args
    first, wide = _is_noisy(left, done), right.dim() == 2
    terms, by = (done.terms(left), right) if first else (done.terms(right), left)
    if first == _is_noisy(right, done) or terms is None:
        return None
    if wide:
        # rows, what is summed over, columns
        terms = Terms(*(np.expand_dims(array, 2 if first else 0) for array in (terms.numbers, terms.times)))
        by = by.unsqueeze(0 if first else 2)
    shape = np.broadcast_shapes(terms.times.shape[:-1], tuple(by.shape))
    if math.prod(shape) * terms.times.shape[-1] > MOST_TERMS:
        return None
    scaled = terms.scaled(by.detach().double())
    return scaled and scaled.summed([1 if wide else len(shape) - 1])


def _terms(part: Any, done: Operation) -> Terms | None:
    return done.terms(part) if isinstance(part, torch.Tensor) else nothing()


def _without_noise(part: Any) -> Any:
    """Of what is moved: numbers that are filled in have none."""
    if isinstance(part, float):
        return 0.0
    return torch.zeros(part.shape, dtype=torch.float64) if _is_real(part) else part


def axes_of(args: tuple[Any, ...]) -> list[int]:
    """Those that a sum or a mean is taken over."""
    summed, *more = args
    axes = more[0] if more and more[0] else range(summed.dim())
    return [axis % summed.dim() for axis in axes]


def _share(done: Operation) -> int:
    return max(1, done.args[0].numel() // max(1, done.out.numel())) if done.name == "mean" else 1


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
        return torch.sum(done.variance(args[0]), *args[1:]) / _share(done) ** 2
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
    noisy, factor = _factor(done)
    square = factor.float() ** 2
    return done.variance(noisy) / square if done.name.startswith("div") else done.variance(noisy) * square


def _factor(done: Operation) -> tuple[torch.Tensor, torch.Tensor]:
    """The noise, and what it is multiplied or divided by."""
    left, right = (_is_noisy(part, done) for part in done.args)
    if left == right or (right and done.name.startswith("div")):
        raise ValueError
    # one that is written over is needed as it was
    noisy, factor = (done.args[0], done.args[1]) if left else (done.args[1], done.before[0])
    return noisy, torch.as_tensor(factor).detach()
