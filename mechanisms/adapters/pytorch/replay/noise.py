"""How noise goes through an operation, as sums of independent numbers or coordinate by coordinate; how records do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from mechanisms.adapters.noise_terms import MOST_TERMS, Terms, independent, of_terms
from mechanisms.adapters.pytorch.replay import noise
from mechanisms.adapters.pytorch.replay.cells import Cell, Operation
from mechanisms.adapters.pytorch.replay.draws import UNIFORM
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.storages import laid, nothing, seen, tensors_among
from mechanisms.adapters.pytorch.replay.weights import is_number

ORTHOGONAL = 1e-4
"""Cosine below which two rows of a matrix are at right angles, up to rounding."""
ADDING = frozenset(("add", "add_", "sub", "sub_", "rsub"))
SCALING = frozenset(("mul", "mul_", "div", "div_"))
SAME = frozenset(
    {"clone", "detach", "_to_copy", "copy_", "contiguous", "lift_fresh", "alias", "neg", "neg_", "_unsafe_view"}
    | {"squeeze_", "unsqueeze_"}
)
"""Operations that leave the deviation of each element unchanged."""
MOVING = frozenset(
    {"cat", "stack", "index_select", "index", "index_put", "index_fill", "gather", "repeat", "flip", "roll"}
    | {"slice_scatter", "select_scatter", "masked_fill", "where", "constant_pad_nd", "expand_copy", "tril", "triu"}
    | {"take_along_dim", "masked_select", "unfold_copy"}
)
"""Operations that move elements and change none."""
NEW = frozenset(
    {"zeros", "ones", "full", "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones"}
    | {"new_empty", "new_full", "zero_", "fill_", "new_empty_strided"}
)
"""Operations that take a shape and no value from their input."""


def way(done: Operation) -> str:
    """In words: an operation through which noise or data cannot be followed."""
    placing = done.name.removesuffix("_") in MOVING | SCALING | {"index_add", "scatter_add"}
    chosen = any(cell.data and not (cell.summed and part.is_floating_point()) for part, cell in done.pairs)
    if placing and chosen and any(cell.noise for cell in done.cells):
        told = "by which the records decide which of its places get noise, or how much: a place without noise shows"
        return f"{done.name}, {told} what the batch holds"
    return f"{done.name}, an operation of PyTorch's that is not followed here"


def drawn(name: str, first: int, shape: Sequence[int]) -> Terms:
    """What a draw gives, with numbers from ``first`` on; of unknown deviation (NaN) where that is not written here."""
    variance = 1.0 if name in ("randn", "randn_like") else 1 / 12 if name in UNIFORM else math.nan
    known = None if math.isnan(variance) else independent(first, shape, variance)
    return _deviation(math.sqrt(variance), shape) if known is None else known


def made_alike(one: Terms, other: Terms) -> bool:
    """Whether the noise of two runs is made of as many numbers, drawn in the same order, with the same coefficients."""
    if one.numbers is None or other.numbers is None:
        return False
    # what a sum of tensors without noise has room for is none
    one, other = (terms.without(terms.times == 0) or terms for terms in (one, other))
    if one.times.shape != other.times.shape:
        return False
    later = (one.numbers - other.numbers)[one.times != 0]
    return bool(np.allclose(one.times, other.times)) and bool(np.all(later == later[:1]))


def _deviation(deviation: float, shape: Sequence[int]) -> Terms:
    """Of coordinates of which nobody knows the numbers."""
    return Terms(None, np.full((*shape, 1), deviation))


def followed(done: Operation) -> Terms:
    """A result of noise and constants, as a linear map of independent numbers.

    Where it is none, or too large, each of its coordinates by itself; NaN where that is not known, either.
    """
    shape = tuple(done.out.shape)
    for alone in (False, True):
        try:
            found = _followed(done, alone)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            continue
        if found is not None and found.times[..., 0].size == done.out.numel():
            return found.reshaped(shape)
        if found is not None and (spread := found.scaled(np.ones(shape))) is not None:
            return spread
    return _deviation(math.nan, shape)


def _followed(done: Operation, alone: bool) -> Terms | None:
    """``alone``: of coordinates each by itself, else of numbers that are known."""
    name, args = done.name, done.args
    noisy = [part for part in tensors_among(args) if _is_noisy(part, done)]
    if not noisy:
        return nothing(*done.out.shape)
    if not alone and any(done.terms(part).numbers is None for part in noisy):
        return None

    def terms(part: Any) -> Terms:
        own = done.terms(part) if isinstance(part, torch.Tensor) else nothing()
        return own.alone if alone else own

    if name in SAME:
        first = terms(args[1] if name == "copy_" else args[0])
        return first.scaled(-1.0) if name.startswith("neg") else first
    if name in ADDING:
        factor = done.kwargs.get("alpha", 1) * (1 if name.startswith("add") else -1)
        one, other = args[1::-1] if name == "rsub" else args[:2]
        added = terms(other).scaled(factor)
        return None if alone and _of_one_draw(one, other, done) else added and terms(one).plus(added)
    if name in SCALING and len(args) == 2:
        own, factor = _factor(done)
        return terms(own).scaled(factor.double().reciprocal() if name.startswith("div") else factor.double())
    if name in ("sum", "mean"):
        summed = terms(args[0]).summed(axes_of(args))
        return summed and summed.scaled(1 / _share(done))
    if (moving := name.removesuffix("_")) in MOVING:

        def move(arrays: Sequence[np.ndarray | None]) -> Any:
            known = {id(part): torch.as_tensor(array) for part, array in zip(noisy, arrays, strict=True)}
            zeros = tree_map(lambda part: known.get(id(part), _without_noise(part)), args)
            return getattr(torch.ops.aten, moving)(*zeros, **done.kwargs).numpy()

        return of_terms(move, list(map(terms, noisy)))
    if not alone:
        return _multiplied(done) if name in ("mm", "mv", "dot") else None
    if name not in ("mm", "mv", "bmm", "dot") or len(noisy) != 1 or not _turned(args, noisy[0], done):
        return None
    squares = [done.variance(part) if part is noisy[0] else part.detach().float() ** 2 for part in args]
    return Terms(None, getattr(torch, name)(*squares).sqrt().double().numpy()[..., None])


def _multiplied(done: Operation) -> Terms | None:
    """A product of noise with a constant matrix or vector."""
    left, right = done.args
    first, wide = _is_noisy(left, done), right.dim() == 2
    terms, by = (done.terms(left), right) if first else (done.terms(right), left)
    if first == _is_noisy(right, done):
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


def _without_noise(part: Any) -> Any:
    """Of what is moved: numbers that are filled in have none."""
    if isinstance(part, float):
        return 0.0
    real = isinstance(part, torch.Tensor) and part.is_floating_point()
    return torch.zeros(part.shape, dtype=torch.float64) if real else part


def axes_of(args: tuple[Any, ...]) -> list[int]:
    """The axes over which a sum or a mean is taken."""
    summed, *more = args
    axes = more[0] if more and more[0] else range(summed.dim())
    return [axis % summed.dim() for axis in axes]


def _share(done: Operation) -> int:
    return max(1, done.args[0].numel() // max(1, done.out.numel())) if done.name == "mean" else 1


def _of_one_draw(one: Any, other: Any, done: Operation) -> bool:
    """Whether two noises may hold the same numbers, as noise and its mean do; separate parts of one tensor do not."""
    left, right = (done.cell(part) if isinstance(part, torch.Tensor) else None for part in (one, other))
    if left is None or right is None or not left.noise or not right.noise or not left.draws & right.draws:
        return False
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return True
    return bool(seen(laid(one, _deviation(1.0, one.shape)), other).times.any())


def _turned(args: tuple[torch.Tensor, ...], noisy: torch.Tensor, done: Operation) -> bool:
    """Whether a product leaves the coordinates of even noise independent: a matrix with orthogonal rows or columns."""
    left, right = args
    constant, own = (right if left is noisy else left).float(), done.variance(noisy)
    if constant.dim() < 2:
        return True
    matrix = constant.mT if left is noisy else constant
    gram = matrix @ matrix.mT
    apart = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    alone = gram.size(-1) == 1
    return alone or bool(own.min() == own.max() and apart.abs().max() <= ORTHOGONAL * gram.abs().max())


def _is_noisy(part: Any, done: Operation) -> bool:
    return isinstance(part, torch.Tensor) and bool(done.terms(part).times.any())


def _factor(done: Operation) -> tuple[torch.Tensor, torch.Tensor]:
    """The noise, and what it is multiplied or divided by."""
    left, right = (_is_noisy(part, done) for part in done.args)
    if left == right or (right and done.name.startswith("div")):
        raise ValueError
    # one that is written over is needed as it was
    noisy, factor = (done.args[0], done.args[1]) if left else (done.args[1], done.before[0])
    return noisy, torch.as_tensor(factor).detach()


PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "mv", "dot"))
STRAIGHT = (
    noise.ADDING
    | noise.SAME
    | noise.MOVING
    | frozenset(("sum", "mean", "view", "index_put_", "index_put", "select_backward", "slice_backward", "cumsum"))
)
"""Operations that are linear in their arguments."""
WEIGHING = PRODUCTS | frozenset(
    {"convolution", "convolution_backward", "embedding", "native_layer_norm", "native_group_norm"}
    | {"native_batch_norm", "mul", "div"}
)
"""Where a drawn tensor that meets data is a weight, and no noise that covers them."""


GROUPING = ("index_add", "scatter_add", "bincount", "histc")
"""What sums records group by group: how names of operations begin."""


def record_sum(done: Operation) -> bool:
    """Whether this may be where records are summed, by the form of the operation alone (both runs must agree)."""
    data = [part for part, cell in done.pairs if cell.data]
    if done.name in noise.ADDING:
        # records that a loop adds up one by one; a sum and that of an earlier round, as in weights, is none
        return len(data) > 1 and len({cell.round for cell in done.cells if cell.data and cell.summed}) < 2
    fewer = done.out.dim() < max(part.dim() for part in data)
    if done.name in PRODUCTS:
        return fewer or len(data) > 1 or any(done.args[-1] is part for part in data)
    return fewer or done.name.endswith("_backward") or done.name.startswith(GROUPING)


def bends(done: Operation) -> bool:
    """Whether an operation is not linear in the sums over records that it gets."""
    if done.name in STRAIGHT:
        return False
    return sum(cell.data for cell in done.cells) > 1 or done.name not in noise.SCALING | PRODUCTS


def multiple(done: Operation) -> float | None:
    """The number by which a tensor is multiplied or divided; for a mean, the number of records that it divides by.

    A number of Python's, or one that was drawn, as the size of a batch is.
    """
    if done.name == "mean":
        (part,) = (part for part, cell in done.pairs if cell.data)
        return part.numel() / max(1, done.out.numel())
    given: list[Any] = [done.kwargs.get("alpha")] if done.name in noise.ADDING else []
    given += [*done.args] if done.name in noise.SCALING else []
    for one in given:
        if is_number(one):
            return float(one)
        if isinstance(one, torch.Tensor) and one.numel() == 1 and not getattr(done.cell(one), "data", False):
            return float(one)
    return None


def resized(done: Operation, own: Cell) -> tuple[tuple[Stack, float], ...]:
    """Where what ``own`` tells of has been multiplied by a number after it was bounded, and by which."""
    factor = multiple(done)
    if not factor or (done.name in noise.ADDING and done.cell(done.args[1]) is not own):
        return own.resized
    factor = 1 / factor if done.name == "mean" or done.name.startswith("div") else factor
    return own.resized if factor == 1 else (*own.resized, (done.where, factor))
